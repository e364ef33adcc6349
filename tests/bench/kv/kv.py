#!/usr/bin/env python3
"""Key-value servers side by side: dlaunch natively, dlaunch's front for PyTorch, Redis, PyTorch.

Each figure is measured for one server after the other, so that what disturbs the machine disturbs
all alike; read the ratios. Servers run on core 0, the client on core 1.

    tests/bench/kv/kv.py BUILD_DIR [--quick] [--only load,pipeline,wake,init,gather]

Servers that are not installed (redis-server, python3-torch) are left out."""
import argparse
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


class Server:
    def __init__(self, name, protocol, command, port):
        self.name, self.protocol, self.port = name, protocol, port
        self.process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"{name} does not start")
                time.sleep(0.02)

    def cpu_ns(self):
        return sum(int(task.joinpath("schedstat").read_text().split()[0])
                   for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir())

    def stop(self):
        self.process.kill()
        self.process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def start_servers(build):
    servers = []
    binary = str(build / "bench" / "kv_server")
    candidates = [("dlaunch", "dlaunch", lambda p: [binary, str(p)]), ("front", "torch", lambda p: [binary, str(p)])]
    if shutil.which("redis-server"):
        candidates.append(("redis", "redis", lambda p: [
            "redis-server", "--port", str(p), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--maxclients", "15000", "--tcp-backlog", "4096"]))
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode == 0:
        candidates.append(("torch", "torch", lambda p: ["/usr/bin/python3", str(HERE / "torch_server.py"), str(p)]))
    for name, protocol, command in candidates:
        port = free_port()
        servers.append(Server(name, protocol, command(port), port))
    return servers


def measure(build, server, mode, **options):
    command = [str(build / "bench" / "kv_client"), mode, server.protocol, str(server.port), "--cpu", "1"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    before = server.cpu_ns()
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    result = json.loads(done.stdout)
    if result.get("done"):
        result["cpu_ns"] = (server.cpu_ns() - before) / result["done"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="load,pipeline,wake,init,gather")
    parser.add_argument("--servers", default="dlaunch,front,redis,torch")
    args = parser.parse_args()
    seconds, reps = (0.3, 3) if args.quick else (0.8, 7)
    wanted = args.only.split(",")
    servers = [s for s in start_servers(args.build)]
    for unwanted in [s for s in servers if s.name not in args.servers.split(",")]:
        unwanted.stop()
        servers.remove(unwanted)

    def row(title, show, mode, only=None, floor=None, **options):
        cells = [floor] if floor else []
        for server in servers:
            if only and server.name not in only:
                continue
            result = measure(args.build, server, mode, **options)
            cells.append(f"{server.name} {result['error'] if 'error' in result else show(result)}")
        print(f"{title:22} " + "   ".join(cells), flush=True)

    def throughput(r):
        return f"{r['ops_s']:>9,.0f}/s p99 {r['p99_us']:>6,.0f} us cpu {r['cpu_ns'] / 1000:.2f} us"

    try:
        if "load" in wanted:
            for clients in (1, 8, 64, 256):
                for op in ("set", "get", "add"):
                    row(f"{op}, {clients} clients", throughput, "load", clients=clients, op=op, seconds=seconds,
                        reps=reps)
        if "pipeline" in wanted:
            for op in ("set", "get", "add"):
                row(f"{op}, 8 x 64 deep", throughput, "load", clients=8, op=op, depth=64, seconds=seconds, reps=reps)
        if "wake" in wanted:
            for clients in (1, 8, 64, 256):
                floor = json.loads(subprocess.check_output(
                    [args.build / "bench" / "kv_wake_floor", str(clients), "30" if args.quick else "100"]))
                row(f"wake {clients}", lambda r: f"first {r['first_us']:,.0f} last {r['last_us']:,.0f} us "
                    f"(min {r['last_min_us']:,.0f})", "wake", clients=clients, reps=30 if args.quick else 100,
                    floor=f"floor last {floor['last_us']:,.0f} us (min {floor['last_min_us']:,.0f})")
        if "init" in wanted:
            for clients in (64, 256, 1024, 4096, 10000):
                row(f"init {clients}", lambda r: f"{r['ms']:,.1f} ms (connected {r['connected_ms']:,.1f})", "init",
                    clients=clients, op="barrier", reps=3 if args.quick else 5)
        if "gather" in wanted:
            for clients in (64, 256, 1024):
                row(f"all_gather {clients} x 64 B", lambda r: f"{r['ms']:,.1f} ms", "init", only=["dlaunch"],
                    clients=clients, op="gather", reps=3 if args.quick else 5)
    finally:
        for server in servers:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
