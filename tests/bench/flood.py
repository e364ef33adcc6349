#!/usr/bin/env python3
"""Workers that flood their output: 4 ranks write lines of 100 bytes, one by one, and dlaunch puts "[rank] " before each.

    tests/bench/flood.py BUILD_DIR [--lines N] [--rounds R] [--against DLAUNCH]

The floor is cat: the same program four times, each through a pipe into a cat that writes where dlaunch does. Every round
runs each contestant once, in turn, into /dev/null, a file and a pipe. Printed: the median time in GB/s of the lines, the
readers' processor time in s for 1 GB, user and system, and both as a ratio to the floor's. On a busy machine the
processor time tells more. --against: another dlaunch, to compare with.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = 4
LINE_BYTES = 100


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build")
LINES = int(option("--lines", 500_000))
ROUNDS = int(option("--rounds", 5))
FLOOD = f"{BUILD}/bench/flood_rank"


class Sink:
    """Where the lines go: a descriptor, and what reads a pipe."""

    def __init__(self, kind, folder):
        self.reader = None
        if kind == "pipe":
            self.reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            self.fd = os.dup(self.reader.stdin.fileno())
            self.reader.stdin.close()
        else:
            path = "/dev/null" if kind == "/dev/null" else f"{folder}/out"
            self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def close(self):
        os.close(self.fd)
        if self.reader:
            self.reader.wait()


def cats(sink, words):
    children = []
    for _ in range(RANKS):
        rank = subprocess.Popen(words, stdout=subprocess.PIPE)
        children += [rank, subprocess.Popen(["cat"], stdin=rank.stdout, stdout=sink.fd)]
        rank.stdout.close()
    return children


def launched(dlaunch):
    def start(sink, words):
        return [subprocess.Popen([dlaunch, "--standalone", "--nproc-per-node", str(RANKS), *words], stdout=sink.fd)]
    return start


def measure(start, kind):
    """Seconds, and the readers' processor time, user and system."""
    with tempfile.TemporaryDirectory() as folder:
        sink = Sink(kind, folder)
        begin = time.monotonic()
        user = system = 0.0
        for child in start(sink, [FLOOD, str(LINES), f"{folder}/used"]):
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                sys.exit(f"{child.args}: exit code {child.returncode}")
            user, system = user + used.ru_utime, system + used.ru_stime
        took = time.monotonic() - begin
        sink.close()
        with open(f"{folder}/used") as file:
            for line in file:
                own = line.split()
                user, system = user - float(own[0]), system - float(own[1])
        return took, user, system


def main():
    contestants = {"cat": cats, "dlaunch": launched(f"{BUILD}/bin/dlaunch")}
    if other := option("--against", None):
        contestants["other"] = launched(other)
    gigabytes = RANKS * LINES * LINE_BYTES / 1e9
    print(f"{RANKS} ranks, {LINES} lines each, {ROUNDS} rounds, load {os.getloadavg()[0]:.1f}")
    for kind in ("/dev/null", "file", "pipe"):
        results = {name: [] for name in contestants}
        for _ in range(ROUNDS):
            for name, start in contestants.items():
                results[name].append(measure(start, kind))
        middle = {name: [statistics.median(column) / gigabytes for column in zip(*rows)]
                  for name, rows in results.items()}
        floor = middle["cat"]
        for name, (took, user, system) in middle.items():
            print(f"  {kind:9} {name:8} {1 / took:5.2f} GB/s ({floor[0] / took:4.2f})   "
                  f"{user:5.2f} s user, {system:5.2f} s system for 1 GB "
                  f"({(user + system) / (floor[1] + floor[2]):4.2f})")


if __name__ == "__main__":
    main()
