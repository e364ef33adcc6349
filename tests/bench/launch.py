#!/usr/bin/env python3
"""Launch, side by side: the posix_spawn floor, the peers that are installed, and dlaunch.

    tests/bench/launch.py BUILD_DIR [--quick] [--rounds R]

Every round runs each contestant once, in turn, so that other load on the machine hits all alike.
Printed: medians in ms with min..max, and the ratio of dlaunch to the floor and to each peer.

  true     command to exit of N times /bin/true
  barrier  command to exit of N workers that initialise and pass one barrier; Gloo, which has no
           launcher, under the floor, over a FileStore and its full mesh
  death    a worker is killed -9: from the kill to the launcher's exit
  gone     a worker, or the launcher's first process, is killed -9: from the kill until no process of
           the job is left, launchers included; those that are left after 5 s are counted
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


GLOO_HELLO = """
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <cstdlib>
#include <unistd.h>

int main(int, char** argv) {
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore files(argv[1]);
  gloo::rendezvous::PrefixStore store(std::to_string(::getppid()), files);  // each launch its own
  auto context = std::make_shared<gloo::rendezvous::Context>(std::atoi(std::getenv("RANK")),
                                                             std::atoi(std::getenv("WORLD_SIZE")));
  context->connectFullMesh(store, device);
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
}
"""


MPI_HELLO = """
#include <mpi.h>
int main(int c, char** v) { MPI_Init(&c, &v); MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); return 0; }
"""


def compiled(workdir, name, suffix, source, command):
    """Path of the program, or None where it cannot be built here, which is said."""
    program = f"{workdir}/hello_{name}"
    with open(program + suffix, "w") as out:
        out.write(source)
    if have(command[0]) and subprocess.run([command[0], "-O2", "-o", program, program + suffix, *command[1:]],
                                           stderr=subprocess.DEVNULL).returncode == 0:
        return program
    print(f"barrier  no {name}: {command[0]} or its library's headers are missing")
    return None


def bench_barrier(workdir):
    gloo = compiled(workdir, "gloo", ".cpp", GLOO_HELLO, ["c++", "-std=c++17", "-lgloo", "-pthread"])
    mpi = {name: compiled(workdir, name, ".c", MPI_HELLO, [compiler])
           for name, compiler in (("openmpi", "mpicc.openmpi"), ("hydra", "mpicc.mpich")) if name in launchers(1)}
    os.mkdir(f"{workdir}/gloo_store")
    for n in (2, 4, 16, 64):
        commands = {"dlaunch": DLAUNCH + [str(n), f"{BUILD}/bench/hello"]}
        if gloo:
            commands["gloo"] = launchers(n)["floor"] + [gloo, f"{workdir}/gloo_store"]
        for name, program in mpi.items():
            if program and n <= 16:
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


def ms_until_gone(pidfds, start, limit_s):
    """Milliseconds until all these processes have ended, and how many have not at the limit."""
    left = set(pidfds)
    while left:
        ready, _, _ = select.select(left, [], [], max(0, start + limit_s - time.perf_counter()))
        if not ready:
            break
        left -= set(ready)
    return (time.perf_counter() - start) * 1e3, len(left)


def bench_gone():
    n, limit_s = 4, 5
    for victim in ("worker", "launcher"):
        times, leavers = {}, {}
        for _ in range(ROUNDS):
            for name, prefix in launchers(n).items():
                if name == "floor" or name in leavers:
                    continue
                child, workers = started(prefix, n, ["/bin/sleep", "100"])
                pids = tree(child.pid)
                pidfds = [os.pidfd_open(pid) for pid in pids]
                start = time.perf_counter()
                os.kill(workers[1] if victim == "worker" else child.pid, signal.SIGKILL)
                took, left = ms_until_gone(pidfds, start, limit_s)
                if left:
                    leavers[name] = left
                    for pidfd in pidfds:
                        try:
                            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                else:
                    times.setdefault(name, []).append(took)
                await_exit(child)
                for pidfd in pidfds:
                    os.close(pidfd)
        report(f"gone/{victim[0]}", n, times)
        for name, left in leavers.items():
            print(f"gone/{victim[0]}   N={n:<4} {name:14} {left} processes left after {limit_s} s")


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
        bench_gone()
        bench_memory()


main()
