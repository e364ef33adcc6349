#!/usr/bin/env python3
"""PyTorch's own client on dlaunch's front and on PyTorch's own server, operation by operation.

    tests/bench/c10d.py BUILD_DIR [--quick]

Run it with an interpreter that has torch. Both servers are asked in turn, round by round, so that
what disturbs the machine disturbs both alike. Printed, in microseconds a call: the median over the
rounds of the time until the client has its answer, and the processor time that the server spent; and
of both the ratio of dlaunch to PyTorch. The servers run on core 0, the client on core 1. (tests/bench/kv/kv.py measures throughput with many connections and without Python.)"""
import argparse
import datetime
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

LIMIT = datetime.timedelta(seconds=60)
SERVE = "serve"


def connect(port):
    return dist.TCPStore("127.0.0.1", port, None, False, LIMIT, wait_for_workers=False)


def serve(port):
    """PyTorch's server, in a process of its own."""
    store = dist.TCPStore("127.0.0.1", port, None, True, LIMIT, wait_for_workers=False)
    threading.Event().wait()
    return store


class Server:
    def __init__(self, command):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(["taskset", "-c", "0", *command, str(self.port)],
                                        stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    sys.exit(f"{command[0]} does not start")
                time.sleep(0.02)

    def cpu_us(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3

    def stop(self):
        self.process.kill()
        self.process.wait()


def operations(store, modern):
    """name -> a call that does it once; what has no answer is followed by something that has one."""
    store.set("key", "v" * 32)
    store.set("large", "v" * (1 << 20))
    keys = [f"several/{n}" for n in range(100)]
    fresh = iter(range(1 << 60))

    def then(call):
        def both():
            call()
            store.num_keys()
        return both

    found = {
        "set": then(lambda: store.set("key", "v" * 32)),
        "get": lambda: store.get("key"),
        "get 1 MiB": lambda: store.get("large"),
        "add": lambda: store.add("counter", 1),
        "compare_set": lambda: store.compare_set("compared", "", "x"),
        "wait": lambda: store.wait(["key"]),
        "num_keys": store.num_keys,
        "delete_key": lambda: store.delete_key("none"),
    }
    if modern:
        store.multi_set(keys, ["v" * 32] * len(keys))

        def queue():
            store.queue_push("queue", "v" * 32)
            store.queue_pop("queue")

        def barrier():
            name = f"barrier{next(fresh)}"
            store.barrier(name, 1)
            store.delete_key(name)

        found |= {
            "check": lambda: store.check(["key"]),
            "append": then(lambda: store.append("appended", "")),
            "multi_set of 100": then(lambda: store.multi_set(keys, ["v" * 32] * len(keys))),
            "multi_get of 100": lambda: store.multi_get(keys),
            "queue push, pop": queue,
            "queue_len": lambda: store.queue_len("queue"),
            "list_keys of 105": store.list_keys,
            "barrier, delete": barrier,
        }
    return found


def per_call_us(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rounds, count = (7, 100) if arguments.quick else (25, 300)
    os.sched_setaffinity(0, {1})

    ours = Server([str(arguments.build / "bench" / "kv_server")])
    theirs = Server([sys.executable, __file__, SERVE])
    try:
        modern = not torch.__version__.startswith("1.")
        calls = [operations(connect(server.port), modern) for server in (ours, theirs)]
        print(f"torch {torch.__version__:18} dlaunch   torch   ratio |     cpu   torch   ratio")
        for name in calls[0]:
            times, cpu = ([], []), [0.0, 0.0]
            repeat = max(1, count // 10) if "MiB" in name else count
            for _ in range(rounds):
                for side, server in enumerate((ours, theirs)):
                    before = server.cpu_us()
                    times[side].append(per_call_us(calls[side][name], repeat))
                    cpu[side] += (server.cpu_us() - before) / repeat / rounds
            mine, other = (statistics.median(each) for each in times)
            print(f"{name:24} {mine:7.1f} {other:7.1f} {mine / other:7.2f} | {cpu[0]:7.1f} {cpu[1]:7.1f} "
                  f"{cpu[0] / cpu[1]:7.2f}", flush=True)
    finally:
        ours.stop()
        theirs.stop()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == SERVE:
        serve(int(sys.argv[2]))
    else:
        main()
