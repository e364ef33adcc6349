#!/usr/bin/env python3
"""What dlaunch promises of faults, held against the clock: a gate, with room for a busy machine.

    tests/bench/promises/promises.py [--room FACTOR] [--state memory|sqlite] BUILD_DIR [PROMISE...]

Options stand anywhere. PROMISE is one of those below, fair:ATTACK for one attack of fair, or a group of promises, jobs
or servers; without any, all are measured. --state: crowd and fair with a daemon whose state is there; else with each.

Every promise is measured on real processes and printed with its bound, and with what fails here; the program ends with
1 where one took more than FACTOR (3) times its bound, or did not come true at all. FACTOR is 1 on an idle machine.
Memory and processor time have no such room, as a busy machine takes no more of them; nor has a crowd more than 1.5.
Those of jobs are about seconds, and a test may run beside them; those of servers, from slow on, are about
milliseconds, and need the machine. The promises:

  worker    kill -9 of a worker: its siblings have SIGTERM within 1 s, and nothing is left 1 s after the grace period
  stuck     a worker that cannot be killed: the launcher has ended within the grace period and 5 s, and has named it
  agent     kill -9 of an agent: its workers and what they forked are dead within 2 s, the other node ends within 6 s
  away      a dlaunchd that is away: its agents try again at least every 5 s, and not all at the same moments
  resume    kill -9 of a dlaunchd with its state on disk: all its 64 clients are answered within 2 s of it, and of one
            with its state in etcd by the one that follows within 11 s (it leads within 6, agents try every 5)
  silent    a connection that goes silent without an end: its agent connects anew within 7 s, and the other node has
            ended within 6 s
  cut       a node is cut off from its dlaunchd for 3 s, or stopped for 4 s: nothing happens; it is cut off for 20 s: it
            is lost between 4 and 6 s, its last word being up to 1 s old, and joins again with a new epoch
  rank      a rank is killed in a collective: each other one has an error within 1 s on its node, 2 s on another; a
            rank is stopped: within 5 s of the call's limit
  slow      a client that does not read is dropped; the others' p99 stays under twice what it was (or 2 ms)
  idle      10,000 idle connections: 100 MiB at most, a new one in 50 ms (p99), under 2 % of a core
  lengths   lengths of 2^32-1 and 2^63, and nested counts, of our protocol and PyTorch's: closed within 10 ms (p99), and
            memory grows by less than 1 MiB
  drip      1,000 that say a byte a second and never finish a hello: each is closed at 3 s, others are served
  files     no descriptor is left: accepting pauses without spinning, who is in is served, and it recovers
  connects  10,000 connect to a dlaunchd at once: none is refused, all are welcomed within 1 s
  secrets   a wrong secret and an unknown job are refused in times whose medians differ by less than 10 %
  crowd     10,000 nodes come to a dlaunchd at once: all of them are admitted within 1 s; with the state in memory, and
            in SQLite
  readers   four readers of the status of 10,000 nodes: a heartbeat is answered within 10 ms all the while (p99, or
            twice what it took before)
  fair      one job of a dlaunchd attacks: lists over a million keys, barriers that time out, waits for 100,000 keys,
            requests that name 128 Ki, 500 connections at once, under one name or 500, a hundred jobs that ask without
            end, answers that nobody reads, a memory-max that is full, jobs whose nodes hang up, 2,000 nodes that fail
            round after round, connections that never join; a set and a get of another job take 10 ms at most (p99, or
            twice what they took before; with SQLite 20 beside the rounds and 50 beside the nodes that hang up), and a
            newcomer is served; with the state in memory, and in SQLite
"""
import argparse
import functools
import itertools
import pathlib
import resource
import sys

import jobs
import servers
from gate import Gate, kill_children

GROUPS = {
    "jobs": (jobs.worker, jobs.stuck, jobs.agent, jobs.away, jobs.resume, jobs.silent, jobs.cut, jobs.rank),
    "servers": (servers.slow, servers.idle, servers.lengths, servers.drip, servers.files, servers.connects, servers.secrets,
                servers.crowd, servers.readers, servers.fair)}
PROMISES = {held.__name__: (held,) for group in GROUPS.values() for held in group}
PROMISES |= {f"fair:{attack}": (functools.partial(servers.fair, attacks=(attack,)),) for attack in servers.ATTACKS}


def build_folder(text):
    folder = pathlib.Path(text).resolve()
    if not (folder / "bin/dlaunchd").exists():
        raise argparse.ArgumentTypeError(f"{text!r} has no bin/dlaunchd; name the build directory before the promises")
    return folder


def promises_of(name):
    named = (GROUPS | PROMISES).get(name)
    if named is None:
        raise argparse.ArgumentTypeError(f"there is no promise {name!r}; there are {', '.join(GROUPS | PROMISES)}")
    return named


def room(text):
    factor = float(text)
    if factor < 1:
        raise argparse.ArgumentTypeError("less than 1 is more than what is promised")
    return factor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=build_folder, metavar="BUILD_DIR")
    parser.add_argument("promises", type=promises_of, nargs="*", metavar="PROMISE")
    parser.add_argument("--room", type=room, default=3, metavar="FACTOR")
    parser.add_argument("--state", choices=("memory", "sqlite"))
    asked = parser.parse_intermixed_args()
    # 10,000 connections, and some.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gate = Gate(asked.room, [asked.state] if asked.state else ["memory", "sqlite"])
    try:
        for held in itertools.chain(*(asked.promises or GROUPS.values())):
            held(gate, asked.build)
    finally:
        kill_children()
    print(f"{gate.failed} promises are broken")
    return 1 if gate.failed else 0


sys.exit(main())
