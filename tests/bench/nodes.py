#!/usr/bin/env python3
"""Several nodes on this host, side by side: dlaunch's agents, torchrun's, and one node of as many workers.

    tests/bench/nodes.py BUILD_DIR [--rounds R]

Each of K agents starts one trivial worker (/bin/true); measured is the time from the first agent's
start until all have exited. Every round runs each contestant once, in turn. Printed: medians in ms
with min..max, the ratio to torchrun, and the distance to the one-node launch. torchrun's interpreter:
DLAUNCH_TEST_TORCH2_PYTHON, or BUILD_DIR/torch2/bin/python.
"""
import os
import socket
import statistics
import subprocess
import sys
import time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build")
ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 11
TORCHRUN_ROUNDS_MAX = 3  # Seconds each.
DLAUNCH = f"{BUILD}/bin/dlaunch"
TORCH = os.environ.get("DLAUNCH_TEST_TORCH2_PYTHON", f"{BUILD}/torch2/bin/python")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def agents(k):
    return [[DLAUNCH, "--nnodes", str(k), "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "/bin/true"]] * k


def torchrun(k):
    return [[TORCH, "-m", "torch.distributed.run", "--nnodes", str(k), "--rdzv-backend", "c10d", "--rdzv-endpoint",
             f"127.0.0.1:{free_port()}", "--monitor-interval", "0.01", "--no-python", "/bin/true"]] * k


def one_node(k):
    return [[DLAUNCH, "--standalone", "--nproc-per-node", str(k), "/bin/true"]]


def measure(commands):
    begin = time.monotonic()
    children = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for c in commands]
    codes = [child.wait() for child in children]
    took = (time.monotonic() - begin) * 1000
    if any(codes):
        sys.exit(f"{commands[0]}: exit codes {codes}")
    return took


def main():
    for k in (2, 4):
        contestants = {"one node": one_node, "agents": agents}
        if os.path.exists(TORCH):
            contestants["torchrun"] = torchrun
        times = {name: [] for name in contestants}
        for round_number in range(ROUNDS):
            for name, commands in contestants.items():
                if name != "torchrun" or round_number < TORCHRUN_ROUNDS_MAX:
                    times[name].append(measure(commands(k)))
        median = {name: statistics.median(t) for name, t in times.items()}
        print(f"{k} nodes of one worker")
        for name, t in times.items():
            print(f"  {name:9} {median[name]:8.1f}  ({min(t):.1f}..{max(t):.1f})")
        print(f"  agents above one node: {median['agents'] - median['one node']:.1f} ms")
        if "torchrun" in median:
            print(f"  torchrun / agents: {median['torchrun'] / median['agents']:.0f}")


main()
