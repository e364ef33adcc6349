#!/usr/bin/env python3
"""Launch, side by side: the posix_spawn floor, the peers that are installed, and dlaunch.

    tests/bench/launch.py BUILD_DIR [--quick] [--rounds R]

Every round runs each contestant once, in turn, so that other load on the machine hits all alike.
Printed: medians in ms with min..max, and the ratio of dlaunch to the floor and to each peer.

  true     command to exit of N times /bin/true
  barrier  command to exit of N workers that initialise and pass one barrier
  death    a worker is killed -9: from the kill to the launcher's exit
  memory   all launcher processes together with N=64 workers asleep: RSS and PSS in KiB
"""
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build")
QUICK = "--quick" in sys.argv
ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else (5 if QUICK else 15)
LIMIT_S = 20
DLAUNCH = [f"{BUILD}/bin/dlaunch", "--standalone", "--nproc-per-node"]
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def have(name):
    return shutil.which(name) is not None


def torchrun_python():
    """PyTorch 2's interpreter. Debian's 1.13 cannot run torchrun under its own Python 3.11."""
    python = os.environ.get("DLAUNCH_TEST_TORCH2_PYTHON", f"{BUILD}/torch2/bin/python")
    return python if os.path.exists(python) else None


def launchers(n):
    """name -> command prefix that starts n copies of what follows"""
    found = {"floor": [f"{BUILD}/bench/spawn_floor", str(n)], "dlaunch": DLAUNCH + [str(n)]}
    if have("mpiexec.hydra"):
        found["hydra"] = ["mpiexec.hydra", "-n", str(n)]
    if have("mpirun.openmpi"):
        found["openmpi"] = ["mpirun.openmpi", "--oversubscribe", "-np", str(n)]
    return found


def torchrun(python, n):
    return [python, "-m", "torch.distributed.run", "--standalone", "--monitor_interval", "0.01",
            "--nproc_per_node", str(n)]


def await_exit(child):
    """Its exit code, or None after LIMIT_S. Popen.wait with a timeout polls at doubling intervals and
    would measure those; a pidfd wakes at once."""
    pidfd = os.pidfd_open(child.pid)
    try:
        ready, _, _ = select.select([pidfd], [], [], LIMIT_S)
    finally:
        os.close(pidfd)
    if not ready:
        child.kill()
    code = child.wait()
    return code if ready else None


def wall_ms(command):
    start = time.perf_counter()
    child = subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             stdin=subprocess.DEVNULL)
    code = await_exit(child)
    took = (time.perf_counter() - start) * 1e3
    if code is None:  # Open MPI 4.1 hangs now and then when workers end while others start
        return None
    if code != 0:
        raise RuntimeError(f"{' '.join(command)} exited with {code}")
    return took


def interleaved(commands, rounds):
    times = {name: [] for name in commands}
    hung = set()
    for round_number in range(rounds + 1):
        for name, command in commands.items():
            if name in hung:
                continue
            took = wall_ms(command)
            if took is None:
                print(f"{name}: hung for {LIMIT_S} s: {' '.join(command)}", flush=True)
                hung.add(name)
            elif round_number > 0:  # the first is a warm-up
                times[name].append(took)
    return {name: values for name, values in times.items() if values}


def report(title, n, times):
    ours = statistics.median(times["dlaunch"])
    for name, values in times.items():
        middle = statistics.median(values)
        ratio = "" if name == "dlaunch" else f"   dlaunch / {name} = {ours / middle:.2f}"
        print(f"{title:8} N={n:<4} {name:14} {middle:9.2f} ms [{min(values):.2f}..{max(values):.2f}]{ratio}", flush=True)


def bench_true():
    for n in (2, 4, 16, 64):
        report("true", n, interleaved({name: prefix + ["/bin/true"] for name, prefix in launchers(n).items()}, ROUNDS))
    if python := torchrun_python():
        for n in (2, 16):
            times = interleaved({"dlaunch": DLAUNCH + [str(n), "/bin/true"],
                                 "torchrun": torchrun(python, n) + ["--no-python", "/bin/true"]}, 3)
            report("true", n, times)
    else:
        print("true     no torchrun: no PyTorch 2 (set DLAUNCH_TEST_TORCH2_PYTHON)")


def bench_barrier(workdir):
    hello = {"openmpi": "mpicc.openmpi", "hydra": "mpicc.mpich"}
    source = f"{workdir}/hello.c"
    with open(source, "w") as out:
        out.write("#include <mpi.h>\nint main(int c, char** v) { MPI_Init(&c, &v); MPI_Barrier(MPI_COMM_WORLD);"
                  " MPI_Finalize(); return 0; }\n")
    for n in (2, 4, 16, 64):
        commands = {"dlaunch": DLAUNCH + [str(n), f"{BUILD}/bench/hello"]}
        for name, compiler in hello.items():
            program = f"{workdir}/hello_{name}"
            if have(compiler) and name in launchers(n) and n <= 16:
                if not os.path.exists(program):
                    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
                commands[name] = launchers(n)[name] + [program]
        report("barrier", n, interleaved(commands, ROUNDS if n <= 4 else max(3, ROUNDS // 3)))


def tree(pid):
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as children:
            for child in children.read().split():
                found += tree(int(child))
    return found


def comm(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def wait_for(condition, what):
    deadline = time.perf_counter() + LIMIT_S
    while not (value := condition()):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"waited {LIMIT_S} s for {what}")
    return value


def started(prefix, n, program):
    child = subprocess.Popen(prefix + program, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             stdin=subprocess.DEVNULL)
    name = os.path.basename(program[0])[:15]

    def workers():
        try:
            pids = [pid for pid in tree(child.pid) if comm(pid) == name]
        except (FileNotFoundError, ProcessLookupError):
            return None
        return pids if len(pids) == n else None
    return child, wait_for(workers, f"{n} workers of {prefix[0]}")


def wait_channel(pid):
    with open(f"/proc/{pid}/wchan") as file:
        return file.read()


def bench_death():
    n, times = 4, {}
    plain = ["/bin/sleep", "100"]
    contestants = {name: (prefix, plain) for name, prefix in launchers(n).items() if name != "floor"}
    contestants["dlaunch, runtime workers"] = (DLAUNCH + [str(n)], [f"{BUILD}/bench/hello", "--then-wait"])
    for _ in range(ROUNDS):
        for name, (prefix, program) in contestants.items():
            child, workers = started(prefix, n, program)
            victim = workers[1]
            if program is not plain:  # rank 1 pauses, the others wait for it in a barrier
                def all_wait():
                    return sorted(("poll" in channel) + 2 * ("pause" in channel)
                                  for channel in map(wait_channel, workers)) == [1, 1, 1, 2]
                wait_for(all_wait, "the workers to wait in a barrier")
                victim = next(pid for pid in workers if "pause" in wait_channel(pid))
            start = time.perf_counter()
            os.kill(victim, signal.SIGKILL)
            await_exit(child)
            times.setdefault(name, []).append((time.perf_counter() - start) * 1e3)
    report("death", n, times)


def bench_memory():
    n = 64
    for name, prefix in launchers(n).items():
        if name == "floor":
            continue
        child, workers = started(prefix, n, ["/bin/sleep", "100"])
        rss = pss = 0
        for pid in set(tree(child.pid)) - set(workers):
            with open(f"/proc/{pid}/smaps_rollup") as file:
                for line in file:
                    rss += int(line.split()[1]) if line.startswith("Rss:") else 0
                    pss += int(line.split()[1]) if line.startswith("Pss:") else 0
        print(f"memory   N={n:<4} {name:14} RSS {rss:7d} KiB   PSS {pss:7d} KiB", flush=True)
        child.send_signal(signal.SIGTERM)
        await_exit(child)


def main():
    with tempfile.TemporaryDirectory() as workdir:
        bench_true()
        bench_barrier(workdir)
        bench_death()
        bench_memory()


main()
