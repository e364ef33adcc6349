#!/usr/bin/env python3
"""Gradients of 64 layers, 1 MiB each, on ranks of one node: dlaunch beside DistributedDataParallel on gloo.

    tests/bench/training/training.py BUILD_DIR [--python PYTHON] [--np N] [--rounds R] [--steps S]

Every round runs each contestant once, in turn, so that other load on the machine hits all alike; told is the median of
the rounds' medians, in ms. `added` is what a step costs more than its computation alone, which is what summing costs
where nothing overlaps; `times` is how often the row's cost goes into PyTorch's. Without a PYTHON that has torch the
rows of dlaunch stand alone.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def rows_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    lines = (line[line.index("{"):] for line in done.stdout.splitlines() if "{" in line)
    return [json.loads(line) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--python")
    parser.add_argument("--np", default="2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", default="15")
    arguments = parser.parse_args()

    launch = [str(arguments.build / "bin/dlaunch"), "--standalone", "--nproc_per_node", arguments.np]
    contestants = [[*launch, str(arguments.build / "bench/training_ours"), "--steps", arguments.steps]]
    if arguments.python:
        ddp = [*launch, arguments.python, str(HERE / "ddp.py"), "--steps", arguments.steps]
        contestants += [ddp, [*ddp, "--view"]]

    seen = {}
    for _ in range(arguments.rounds):
        for command in contestants:
            for row in rows_of(command):
                seen.setdefault((row["who"], row["way"]), []).append(row)
    medians = {key: (statistics.median(r["ms"] for r in rows), statistics.median(r["added"] for r in rows))
               for key, rows in seen.items()}
    peers = [figures for (who, _), figures in medians.items() if who != "dlaunch"]
    peer_ms = min((ms for ms, _ in peers), default=None)
    peer_added = min((added for _, added in peers), default=None)

    print(f"{'who':<16}{'way':<40}{'ms':>9}{'times':>7}{'added':>9}{'times':>7}")
    for (who, way), (ms, added) in medians.items():
        of_ms = f"{peer_ms / ms:.1f}" if peer_ms else ""
        of_added = f"{peer_added / added:.1f}" if peer_added and added > 0 else ""
        print(f"{who:<16}{way:<40}{ms:>9.2f}{of_ms:>7}{added:>9.2f}{of_added:>7}")


main()
