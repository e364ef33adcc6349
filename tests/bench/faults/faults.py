#!/usr/bin/env python3
"""From a fault to the error on each of the other ranks, in ms: dlaunch, and torch gloo where PYTHON has torch.

    tests/bench/faults/faults.py BUILD_DIR [--np N] [--runs R] [--python PYTHON] [--gloo-runs R]

  kill      the last rank is killed -9 while all make all_reduces of 64 KiB: until each survivor has its error
  stop      the same with SIGSTOP, where a call has a limit of 1 s (ours alone)
  mismatch  the last rank makes a barrier where the others make an all_reduce: from when the last of both was called
            until each rank has its error, which prints both calls

Over shared memory, over TCP on one host, and from two agents on this host as from two nodes. Printed: the median and
the longest time over all runs and ranks, and how many ranks had no error after 10 s.
"""
import argparse
import json
import os
import pathlib
import select
import signal
import socket
import statistics
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 10
START_LIMIT_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def lines_of(children, limit_s, enough):
    """What they print as JSON, one by one, until `enough` of all of it, their ends or the limit."""
    pipes = {child.stdout.fileno(): (child, bytearray()) for child in children}
    until, seen = time.monotonic() + limit_s, []
    while pipes and time.monotonic() < until and not enough(seen):
        for fd in select.select(list(pipes), [], [], max(0, until - time.monotonic()))[0]:
            text = os.read(fd, 1 << 16)
            if not text:
                del pipes[fd]
                continue
            buffer = pipes[fd][1]
            buffer += text
            while b"\n" in buffer:
                line, _, rest = bytes(buffer).partition(b"\n")
                buffer[:] = rest
                if b"{" in line:
                    seen.append(json.loads(line[line.index(b"{"):]))
    return seen


def names_victim(seen):
    return any("victim" in line for line in seen)


class Ours:
    def __init__(self, build, way, ranks):
        self.name, self.ranks = f"dlaunch, {way}", ranks
        self.way, self.dlaunch, self.program = way, str(build / "bin/dlaunch"), str(build / "bench/faults_ours")

    def start(self, fault, runs):
        transport = "tcp" if self.way == "tcp" else "shared"
        program = [self.program, fault, transport, str(runs)]
        options = ["--shutdown-timeout", "1", "--nproc-per-node"]
        lines = [[self.dlaunch, "--standalone", *options, str(self.ranks), *program]]
        if self.way == "two nodes":
            meet = ["--nnodes", "2", "--shared-memory", "node", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
            lines = [[self.dlaunch, *meet, "--node-id", node, *options, str(self.ranks // 2), *program]
                     for node in "ab"]
        return [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
                for line in lines]


class Gloo:
    def __init__(self, python, ranks):
        self.name, self.ranks, self.python = "torch gloo", ranks, python

    def start(self, fault, _):
        port = free_port()
        return [subprocess.Popen([self.python, str(HERE / "gloo.py"), fault], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, bufsize=0,
                                 env=dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                                          WORLD_SIZE=str(self.ranks), OMP_NUM_THREADS="1"))
                for rank in range(self.ranks)]


def end(children):
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


STRIKES = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def struck(who, fault, runs):
    """Times in ms, and how many survivors said nothing."""
    times, silent = [], 0
    for run in range(runs):
        children = who.start(fault, 1)
        victim = [line["victim"] for line in lines_of(children, START_LIMIT_S, names_victim) if "victim" in line]
        if not victim:
            end(children)
            raise SystemExit(f"{who.name}: no rank got as far as to be killed within {START_LIMIT_S} s")
        # At another place in the call each time.
        time.sleep(0.002 + 0.0137 * (run % 7) / 7)
        begin = time.monotonic_ns()
        os.kill(victim[0], STRIKES[fault])
        told = lines_of(children, LIMIT_S, lambda seen: len(seen) == who.ranks - 1)
        times += [(line["told"] - begin) / 1e6 for line in told]
        silent += who.ranks - 1 - len(told)
        end(children)
    return times, silent


def mismatched(who, runs):
    children = who.start("mismatch", runs)
    lines = lines_of(children, LIMIT_S + runs, lambda seen: len(seen) == runs * who.ranks)
    end(children)
    times = []
    for run in range(runs):
        mine = [line for line in lines if line["run"] == run]
        begin = max((line["began"] for line in mine), default=0)
        # Those who came first may have been told before the last one's clock was read.
        times += [max(0, line["told"] - begin) / 1e6 for line in mine if line["told"] > 0]
    return times, runs * who.ranks - len(times)


def mismatched_gloo(who, runs):
    times, silent = [], 0
    for _ in range(runs):
        children = who.start("mismatch", 1)
        lines_of(children, START_LIMIT_S, names_victim)
        begin = time.monotonic_ns()
        told = lines_of(children, LIMIT_S, lambda seen: len(seen) == who.ranks)
        times += [(line["told"] - begin) / 1e6 for line in told]
        silent += who.ranks - len(told)
        end(children)
    return times, silent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--np", type=int, default=4)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--python")
    parser.add_argument("--gloo-runs", type=int, default=5)
    arguments = parser.parse_args()

    rows = []
    for way in ("shared memory", "tcp", "two nodes"):
        who = Ours(arguments.build, way, arguments.np)
        for fault in STRIKES:
            rows.append((who.name, fault, arguments.runs, *struck(who, fault, arguments.runs)))
        rows.append((who.name, "mismatch", arguments.runs, *mismatched(who, arguments.runs)))
    if arguments.python:
        who = Gloo(arguments.python, arguments.np)
        rows.append((who.name, "kill", arguments.gloo_runs, *struck(who, "kill", arguments.gloo_runs)))
        rows.append((who.name, "mismatch", arguments.gloo_runs, *mismatched_gloo(who, arguments.gloo_runs)))
    print(f"{'who':<24}{'fault':<10}{'runs':>6}{'p50 ms':>10}{'max ms':>10}{'no error':>10}")
    for name, fault, runs, times, silent in rows:
        p50 = f"{statistics.median(times):.2f}" if times else "-"
        most = f"{max(times):.2f}" if times else "-"
        print(f"{name:<24}{fault:<10}{runs:>6}{p50:>10}{most:>10}{silent:>10}")


if __name__ == "__main__":
    main()
