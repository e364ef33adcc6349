#!/usr/bin/env python3
"""The collectives, side by side: dlaunch, Open MPI, MPICH, Gloo, and floors written by hand.

    tests/bench/collectives/collectives.py BUILD_DIR [--quick] [--np 2,4] [--only OP] [--sizes 4,4K]
                                           [--agents 2 | --tcp] [--rounds R] [--json FILE]

All run the same measurement (harness.hpp). Every round runs each contestant once, in turn, so that
other load on the machine hits all alike; told is the median of the rounds' medians, in us. With as
many cores as ranks each rank has its own, else nobody is bound and peers keep their defaults.

  ours           dlaunch, ordinary buffers
  in C           dlaunch by its C API (messages, started calls, all_reduce), and how many times ours
  best peer      whoever is fastest in this row, in its fastest way
  floor          a program written for this one case; ordinary buffers
  mapped         the same where the buffers themselves are shared
  ours in place  dlaunch, buffers from Communicator::allocate, and how many times the mapped floor

--agents 2: dlaunch's ranks are those of two agents on this host, half of them each; MPI's are
measured as ever, and over TCP.

--tcp: two ranks in two network namespaces that a veth pair joins, as root, under the host's
congestion control and under reno. Programs are built into BUILD_DIR/bench; a peer that is not
installed (openmpi-bin libopenmpi-dev, mpich libmpich-dev, libgloo-dev) is left out, with a line.
"""
import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OPS = ["barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "ping_pong", "window",
       "halo", "random_pairs", "fan_in", "started", "started_test", "started_window", "started_then_blocking", "started_computing"]
OPS_IN_C = ["all_reduce", "ping_pong", "window", "halo", "random_pairs", "fan_in", "started", "started_test"]
SIZES = "4,256,4K,32K,256K,1M,8M,64M"
QUICK_SIZES = "4,4K,256K,1M,8M"
LIMIT_S = 300  # of one contestant in one round
NAMESPACES = ("dlaunch_bench_a", "dlaunch_bench_b")
ADDRESSES = ("10.77.1.1", "10.77.1.2")
LINKS = ("dlbencha", "dlbenchb")
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
# dlaunch takes its own variables for options.
ENV = {name: value for name, value in ENV.items() if not name.startswith(("DLAUNCH_", "PET_"))}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, repetitions and rounds")
    parser.add_argument("--np", default="2,4", help="numbers of ranks [2,4]")
    parser.add_argument("--only", default="", help="operations, by name")
    parser.add_argument("--sizes", default="", help=f"bytes [{SIZES}; {QUICK_SIZES} with --quick]")
    parser.add_argument("--agents", type=int, choices=(1, 2), default=1, help="dlaunch's agents on this host [1]")
    parser.add_argument("--tcp", action="store_true", help="between two network namespaces")
    parser.add_argument("--peers", default="", help="peers by name, of which MPICH is slow without a core for each rank")
    parser.add_argument("--rounds", type=int, default=0, help="[5; 3 with --quick]")
    parser.add_argument("--json", default="", help="write the rows to this file, too")
    chosen = parser.parse_args()
    chosen.build = os.path.abspath(chosen.build)
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 5)
    chosen.sizes = chosen.sizes or (QUICK_SIZES if chosen.quick else SIZES)
    chosen.ops = chosen.only.split(",") if chosen.only else OPS
    for op in chosen.ops:
        if op not in OPS:
            parser.error(f"--only: {op} is none of {', '.join(OPS)}")
    return chosen


def build_peer(chosen, name, source, command):
    """Path of the peer's program, or None where it cannot be built here, which is said."""
    program = f"{chosen.build}/bench/collectives_{name}"
    sources = [f"{HERE}/{source}", f"{HERE}/harness.hpp"]
    if os.path.exists(program) and os.path.getmtime(program) > max(map(os.path.getmtime, sources)):
        return program
    compiler, *libraries = command
    why = f"there is no {compiler}"
    if shutil.which(compiler):
        built = subprocess.run([compiler, "-O3", "-march=native", "-std=c++17", "-o", program, sources[0], *libraries],
                               stderr=subprocess.PIPE, text=True)
        if built.returncode == 0:
            return program
        why = next((line for line in built.stderr.splitlines() if "error" in line), "it does not compile")
    print(f"{name} is left out: {why}", flush=True)
    return None


def cpu_seconds():
    """Busy seconds of the whole machine, and ours, children included."""
    with open("/proc/stat") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:8]]
    mine = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return busy, sum(usage.ru_utime + usage.ru_stime for usage in mine)


class Contestant:
    """`commands`: one to start all ranks, or one for each rank. `prepare` gives each run its variables."""

    def __init__(self, name, role, commands, prepare=lambda folder: {}, per_rank=False, ops=OPS):
        self.name, self.role, self.commands, self.prepare = name, role, commands, prepare
        self.per_rank, self.ops = per_rank, ops

    def run(self, options):
        """Its rows, and the other load meanwhile in cores; None where it failed, which is said."""
        folder = tempfile.mkdtemp(prefix="dlaunch_bench_", dir="/dev/shm")
        variables = {**ENV, **self.prepare(folder)}
        started, before, children = time.monotonic(), cpu_seconds(), []
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            try:
                for rank, command in enumerate(self.commands):
                    place = {"RANK": str(rank), "WORLD_SIZE": str(len(self.commands))} if self.per_rank else {}
                    children.append(subprocess.Popen(command + options, env={**variables, **place}, stdout=out, stderr=err,
                                                     stdin=subprocess.DEVNULL, start_new_session=True))
                codes = [child.wait(max(0.1, started + LIMIT_S - time.monotonic())) for child in children]
            except subprocess.TimeoutExpired:
                codes = [f"no end after {LIMIT_S} s"]
            finally:
                for child in children:
                    with contextlib.suppress(ProcessLookupError):
                        if child.poll() is None:
                            os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                shutil.rmtree(folder, ignore_errors=True)
            out.seek(0), err.seek(0)
            rows = [json.loads(line) for line in out if line.startswith("{")]
            if any(codes):
                last = (err.read().strip().splitlines() or ["nothing was said"])[-1]
                print(f"  {self.name} failed ({codes}): {last[:160]}", flush=True)
                return None
        busy, mine = (after - earlier for after, earlier in zip(cpu_seconds(), before))
        return rows, max(0.0, busy - mine) / (time.monotonic() - started)


def contestants(chosen, ranks):
    """The contestants on one node."""
    bench, short = f"{chosen.build}/bench", ranks > os.cpu_count()
    peers = []
    start = [f"{chosen.build}/bin/dlaunch", "--log-line-prefix-template", ""]

    def launched(program):
        if chosen.agents == 1:
            return [[*start, "--standalone", "--nproc-per-node", str(ranks), program]]
        return [[*start, "--nnodes", str(chosen.agents), "--node-id", f"agent{agent}", "--rdzv-endpoint",
                 "127.0.0.1:29401", "--nproc-per-node", str(ranks // chosen.agents), program]
                for agent in range(chosen.agents)]
    peers.append(Contestant("dlaunch", "ours", launched(f"{bench}/collectives_ours"), ops=["barrier_ordered"] + OPS))
    peers.append(Contestant("dlaunch in C", "in C", launched(f"{bench}/collectives_ours_c"), ops=OPS_IN_C))
    peers.append(Contestant("floor", "floor", [[f"{bench}/collectives_floor_shm"]] * ranks, per_rank=True,
                            prepare=lambda folder: {"SEGMENT": f"{folder}/segment", "YIELD": str(int(short))}))
    if program := build_peer(chosen, "openmpi", "mpi.cpp", ["mpicxx.openmpi"]):
        binding = ["--oversubscribe"] if short else ["--bind-to", "core"]
        peers.append(Contestant("openmpi", "peer", [["mpirun.openmpi", *binding, "-np", str(ranks), program]]))
        if chosen.agents > 1:
            peers.append(Contestant("openmpi tcp", "peer", [["mpirun.openmpi", *binding, "--mca", "pml", "ob1", "--mca", "btl",
                                                             "tcp,self", "-np", str(ranks), program]]))
    if program := build_peer(chosen, "mpich", "mpi.cpp", ["mpicxx.mpich"]):
        binding = [] if short else ["-bind-to", "core"]
        peers.append(Contestant("mpich", "peer", [["mpiexec.hydra", "-n", str(ranks), *binding, program]]))
        if chosen.agents > 1:
            peers.append(Contestant("mpich tcp", "peer", [["mpiexec.hydra", "-n", str(ranks), *binding, "-genv", "UCX_TLS",
                                                           "tcp,self", program]]))
    if program := build_peer(chosen, "gloo", "gloo.cpp", ["c++", "-lgloo", "-pthread"]):
        peers.append(Contestant("gloo", "peer", [[program]] * ranks, per_rank=True,
                                prepare=lambda folder: {"STORE": folder, "INTERFACE": "lo"}))
    return peers


@contextlib.contextmanager
def namespaces(congestion):
    """Two of them, joined. `congestion`: TCP's algorithm in both; None: the host's."""
    def ip(*words):
        subprocess.run(["ip", *words], check=True)
    try:
        for name in NAMESPACES:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            if congestion:
                subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw",
                                f"net.ipv4.tcp_congestion_control={congestion}"], check=True)
        ip("link", "add", LINKS[0], "netns", NAMESPACES[0], "type", "veth", "peer", "name", LINKS[1], "netns", NAMESPACES[1])
        for name, link, address in zip(NAMESPACES, LINKS, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
        yield
    finally:
        for name in NAMESPACES:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


REMOTE_SHELL = """#!/bin/sh
# What mpirun and mpiexec take for ssh: runs a command in the namespace that has the address.
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in %s) name=%s ;; *) name=%s ;; esac
shift
exec ip netns exec $name unshare -u sh -c "hostname $name; $*"
"""


def tcp_contestants(chosen, folder):
    """The contestants on two ranks, each in a namespace of its own."""
    bench = f"{chosen.build}/bench"
    inside = [["ip", "netns", "exec", name] for name in NAMESPACES]
    shell = f"{folder}/shell"
    with open(shell, "w") as out:
        out.write(REMOTE_SHELL % (ADDRESSES[0], NAMESPACES[0], NAMESPACES[1]))
    os.chmod(shell, 0o755)
    named = inside[0] + ["unshare", "-u", "sh", "-c", f'hostname {NAMESPACES[0]}; exec "$@"', "sh"]
    ours = [enter + [f"{chosen.build}/bin/dlaunch", "--nnodes", "2", "--node-id", name, "--rdzv-endpoint",
                     f"{ADDRESSES[0]}:29400", "--log-line-prefix-template", "", f"{bench}/collectives_ours"]
            for enter, name in zip(inside, NAMESPACES)]
    found = [Contestant("dlaunch", "ours", ours, ops=["barrier_ordered"] + OPS)]
    for wait in ("spin", "poll"):
        found.append(Contestant(f"floor {wait}", "floor", [enter + [f"{bench}/collectives_floor_tcp"] for enter in inside],
                                prepare=lambda _, wait=wait: {"ADDRESS": ADDRESSES[0], "WAIT": wait}, per_rank=True))
    if program := build_peer(chosen, "openmpi", "mpi.cpp", ["mpicxx.openmpi"]):
        found.append(Contestant("openmpi", "peer", [named + [
            "mpirun.openmpi", "-np", "2", "--host", ",".join(f"{address}:1" for address in ADDRESSES),
            "--mca", "plm_rsh_agent", shell, "--mca", "oob_tcp_if_include", "10.77.1.0/24",
            "--mca", "btl_tcp_if_include", "10.77.1.0/24", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
            "--bind-to", "none", program]]))
    if program := build_peer(chosen, "mpich", "mpi.cpp", ["mpicxx.mpich"]):
        found.append(Contestant("mpich", "peer", [named + [
            "mpiexec.hydra", "-n", "2", "-hosts", ",".join(ADDRESSES), "-ppn", "1", "-launcher", "ssh",
            "-launcher-exec", shell, "-genv", "UCX_TLS", "tcp,self", program]]))
    if program := build_peer(chosen, "gloo", "gloo.cpp", ["c++", "-lgloo", "-pthread"]):
        commands = [enter + ["env", f"INTERFACE={link}", program] for enter, link in zip(inside, LINKS)]
        found.append(Contestant("gloo", "peer", commands, per_rank=True, prepare=lambda folder: {"STORE": folder}))
    return found


def rounds(chosen, competitors, pin):
    """(op, bytes, contestant, way) -> the rounds' medians."""
    samples, wrong, loads, failed = {}, set(), [], set()
    for number in range(chosen.rounds):
        for competitor in competitors:
            is_asked = competitor.role != "peer" or not chosen.peers or competitor.name in chosen.peers.split(",")
            if competitor.name in failed or not is_asked:
                continue
            ops = [op for op in competitor.ops if op in chosen.ops or (op == "barrier_ordered" and "barrier" in chosen.ops)]
            if not ops:
                continue
            # Gloo's own thread does the work: its ranks are not bound.
            bound = pin and competitor.name != "gloo"
            options = ["--ops", ",".join(ops), "--sizes", chosen.sizes, "--pin", str(int(bound)),
                       "--reps", "5" if chosen.quick else "9", "--rep-ms", "10" if chosen.quick else "30"]
            result = competitor.run(options)
            if result is None:
                failed.add(competitor.name)
                continue
            loads.append(result[1])
            for row in result[0]:
                key = row["op"], row["bytes"], competitor.role, competitor.name, row["way"]
                if row["right"]:
                    samples.setdefault(key, []).append(row["us"])
                else:
                    wrong.add(key)
    for op, size, _, name, way in sorted(wrong):
        print(f"WRONG RESULT, not counted: {name} {way} {op} of {size} bytes")
    print(f"other load meanwhile: {statistics.median(loads):.2f} cores, at most {max(loads):.2f}")
    return {key: statistics.median(values) for key, values in samples.items()}


def figure(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def ratio(above, below):
    return figure(above / below) if above and below else "-"


def report(title, medians):
    """Prints a line for each operation and size; returns them."""
    head = ("op", "bytes", "ours", "in C", "in C/ours", "best peer", "", "floor", "ours/floor", "peer/ours", "mapped",
            "ours in place", "in place/mapped")
    form = "{:<22} {:>9} {:>9} {:>9} {:>9} {:>9} {:<16} {:>9} {:>10} {:>9} {:>9} {:>13} {:>15}"
    print(f"\n## {title}\n" + form.format(*head))
    rows = []
    for op in ["barrier", "barrier_ordered"] + OPS[1:]:
        for size in sorted({key[1] for key in medians if key[0] == op}):
            found = {key[2:]: value for key, value in medians.items() if key[:2] == (op, size)}

            def best(role, shared=False):
                fitting = [(value, f"{name} {way}".strip()) for (whose, name, way), value in found.items()
                           if whose == role and (way in ("mapped", "in place")) == shared]
                return min(fitting, default=(None, ""))
            (ours, _), (in_c, _), (peer, who), (floor, _) = best("ours"), best("in C"), best("peer"), best("floor")
            (mapped, _), (in_place, _) = best("floor", True), best("ours", True)
            print(form.format(op, size, figure(ours), figure(in_c), ratio(in_c, ours), figure(peer), who, figure(floor),
                              ratio(ours, floor), ratio(peer, ours), figure(mapped), figure(in_place),
                              ratio(in_place, mapped)), flush=True)
            rows.append({"title": title, "op": op, "bytes": size, "ours_us": ours, "in_c_us": in_c, "peer_us": peer,
                         "peer": who, "floor_us": floor, "mapped_floor_us": mapped, "ours_in_place_us": in_place,
                         "all": {f"{name} {way}".strip(): value for (_, name, way), value in found.items()}})
    return rows


def main():
    chosen = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # The contestants end with it.
    for program in ("bin/dlaunch", "bench/collectives_ours", "bench/collectives_ours_c", "bench/collectives_floor_shm"):
        if not os.path.exists(f"{chosen.build}/{program}"):
            sys.exit(f"there is no {chosen.build}/{program}: build dlaunch with its tests first")
    cores, rows = os.cpu_count(), []
    if chosen.tcp:
        if os.geteuid() != 0:
            sys.exit("--tcp needs root: it makes network namespaces")
        for congestion in (None, "reno"):
            with namespaces(congestion), tempfile.TemporaryDirectory() as folder:
                medians = rounds(chosen, tcp_contestants(chosen, folder), pin=cores >= 2)
            rows += report(f"2 ranks, TCP between two namespaces, congestion control {congestion or 'of the host'}, us", medians)
    else:
        for ranks in map(int, chosen.np.split(",")):
            medians = rounds(chosen, contestants(chosen, ranks), pin=ranks <= cores)
            agents = f" of {chosen.agents} agents" if chosen.agents > 1 else ""
            rows += report(f"{ranks} ranks{agents} on {cores} cores, us", medians)
    if chosen.json:
        with open(chosen.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
