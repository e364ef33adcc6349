#!/usr/bin/env python3
"""Fails in ten ways under dlaunch and other launchers, keeps what each prints, and says how long each takes to end.

  failures.py BUILD_DIR OUT_DIR [--only FAILURE] [--launchers NAME,NAME...]

OUT_DIR/<failure>.<launcher>.txt has the command, its whole output, its exit code and the time from the failure to its
end; a table of these goes to stdout. Launchers that are not there are left out. srun is run in a Slurm of real daemons
(tests/process/schedulers/cluster_rig --slurm), which needs root.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RIG = HERE.parent.parent / "process" / "schedulers" / "cluster_rig"
LIMIT_S = 25
NODE_LIMIT_S = 180
MEMORY_BYTES = 400 << 20
FAILURES = ("exit", "raise", "segv", "memory", "leave", "hang", "argument", "not_found", "node", "ctrl_c")


class Launcher:
    def __init__(self, name, line, python, group):
        self.name = name
        self.line = line  # Up to the program, for two workers.
        self.python = python  # What a Python script is written behind.
        self.group = group  # The program that fails in a group of ranks.


def launchers(build, work):
    torch1, torch2 = "/usr/bin/python3", str(build / "torch2/bin/python")
    dlaunch = str(build / "bin/dlaunch")
    all_of_them = []

    def has_torch(python):
        line = [python, "-c", "import torch"]
        return shutil.which(python) and subprocess.run(line, capture_output=True).returncode == 0

    group = [str(HERE / "group.py")]
    if has_torch(torch2):
        # A script is run by this interpreter, and py-spy lies beside it.
        os.environ["PYTHON_EXEC"] = torch2
        os.environ["PATH"] = f"{build}/torch2/bin:{os.environ['PATH']}"
        all_of_them.append(Launcher("dlaunch", [dlaunch, "--nproc_per_node", "2"], [], group))
        run = [torch2, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        all_of_them.append(Launcher("torchrun-2", run, [], group))
    else:
        os.environ["PYTHON_EXEC"] = torch1
        all_of_them.append(Launcher("dlaunch", [dlaunch, "--nproc_per_node", "2"], [], group))
    if has_torch(torch1):
        run = [torch1, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        all_of_them.append(Launcher("torchrun-1", run, [], group))
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    for name, tool, extra in (("openmpi", "mpirun.openmpi", root + ["--oversubscribe"]), ("mpich", "mpiexec.mpich", [])):
        if not shutil.which(tool):
            continue
        program = None
        if shutil.which(f"mpicc.{name}"):
            program = str(work / f"group.{name}")
            subprocess.run([f"mpicc.{name}", "-o", program, str(HERE / "group.c")], check=True)
        all_of_them.append(Launcher(name, [tool] + extra + ["-n", "2"], ["/usr/bin/python3"], program and [program]))
    if program_in_slurm := shutil.which("srun"):
        mpi = str(work / "group.mpich")
        line = [str(RIG), "--slurm", program_in_slurm, "-K1", "-N1", "-n2"]
        all_of_them.append(Launcher("srun", line, ["/usr/bin/python3"], [mpi] if os.path.exists(mpi) else None))
    return all_of_them


def memory_group():
    """A cgroup with a limit, as the path of its cgroup.procs; None where none can be made."""
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = pathlib.Path(top) / f"failures-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(str(MEMORY_BYTES))
            return folder
        except OSError:
            if folder.is_dir():
                folder.rmdir()
    return None


def end_all(group):
    """What a launcher has left behind, too: all are in one session, or have left it for good reason."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(line, out, mark, interrupt=False, memory=None, environment=None, limit_s=LIMIT_S):
    """Returns the exit code, None where it still ran, and the seconds from the failure."""

    def begin():
        os.setsid()
        if memory:
            (memory / "cgroup.procs").write_text(str(os.getpid()))

    began = time.time()
    with open(out, "w") as file:
        file.write("$ " + " ".join(line) + "\n")
        file.flush()
        process = subprocess.Popen(line, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   preexec_fn=begin, env={**os.environ, **(environment or {})})
        failed_at = None
        if interrupt:
            while pathlib.Path(out).read_text().count("up\n") < 2 and time.time() < began + LIMIT_S:
                time.sleep(0.05)
            failed_at = time.time()
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        ended = time.time()
        code = process.poll()
        end_all(process.pid)
        process.wait()
    if os.path.exists(mark):
        failed_at = float(pathlib.Path(mark).read_text())
        os.unlink(mark)
    took = ended - (failed_at or began)
    with open(out, "a") as file:
        file.write(f"$ # exit code {code}, {took:.2f} s after the failure\n" if code is not None else
                   f"$ # still runs {took:.0f} s after the failure\n")
    return code, took


def lost_node(launcher, out, mark):
    """Two hosts of a rig, one of which is cut off at one stroke."""
    worker = " ".join(launcher.python + [str(HERE / "worker.py"), "all_sleep", mark])
    beside, rig = [], [str(RIG)]
    if launcher.name == "dlaunch":
        line = f"{launcher.line[0]} --nnodes 2 --nproc_per_node 1 --rdzv-endpoint n1:29544 {worker}"
        beside = ["--beside", line]
    elif launcher.name.startswith("torchrun"):
        line = " ".join(launcher.line[:3]) + " --nnodes 2 --nproc_per_node 1 --rdzv_backend c10d " \
            f"--rdzv_endpoint n1:29545 --rdzv_id x {worker}"
        beside = ["--beside", line]
    elif launcher.name == "openmpi":
        line = f"{' '.join(launcher.line[:-2])} --mca plm_rsh_agent $RIG_SSH --host n1,n2 --map-by ppr:1:node {worker}"
    elif launcher.name == "mpich":
        line = f"{launcher.line[0]} -launcher ssh -launcher-exec $RIG_SSH -hosts n1,n2 -ppn 1 {worker}"
    else:
        rig.append("--slurm")
        line = f"srun -K1 -N2 -n2 --ntasks-per-node=1 -w n1,n2 {worker}"
    told = run(rig + [str(HERE / "power_cut"), mark] + beside + [line], out, mark, limit_s=NODE_LIMIT_S)
    for rank in range(2):
        pathlib.Path(f"{mark}.up.{rank}").unlink(missing_ok=True)
    return told


def fail(failure, launcher, out, mark):
    worker = launcher.python + [str(HERE / "worker.py")]
    if failure in ("exit", "raise", "segv"):
        return run(launcher.line + worker + [failure, mark], out, mark)
    if failure == "memory":
        group = None if launcher.name == "srun" else memory_group()
        if not group:
            return None
        try:
            return run(launcher.line + worker + [failure, mark], out, mark, memory=group)
        finally:
            time.sleep(0.2)
            try:
                group.rmdir()
            except OSError:
                pass
    if failure in ("leave", "hang", "argument"):
        if not launcher.group:
            return None
        line, environment = list(launcher.line), {}
        if failure == "hang":
            if launcher.name == "openmpi":
                line[1:1] = ["--timeout", "5"]
            elif launcher.name == "mpich":
                environment["MPIEXEC_TIMEOUT"] = "5"
            elif launcher.name == "dlaunch":
                line.append("--stack-on-timeout")
        if launcher.name == "srun":
            line.append("--mpi=pmi2")
        return run(line + launcher.group + [failure, mark], out, mark, environment=environment)
    if failure == "not_found":
        return run(launcher.line + (["--no_python"] if "torchrun" in launcher.name else []) + ["no-such-program"],
                   out, mark)
    if failure == "node":
        return lost_node(launcher, out, mark)
    if launcher.name == "srun":
        return None  # A signal to the rig ends all that is in it.
    return run(launcher.line + worker + ["all_sleep", mark], out, mark, interrupt=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", choices=FAILURES)
    parser.add_argument("--launchers")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        all_of_them = launchers(asked.build.resolve(), work)
        if asked.launchers:
            all_of_them = [one for one in all_of_them if one.name in asked.launchers.split(",")]
        print("| failure | " + " | ".join(one.name for one in all_of_them) + " |")
        print("|---" * (len(all_of_them) + 1) + "|")
        for failure in FAILURES:
            if asked.only not in (None, failure):
                continue
            cells = []
            for one in all_of_them:
                out = asked.out / f"{failure}.{one.name}.txt"
                told = fail(failure, one, out, str(work / "mark"))
                cells.append("-" if told is None else "runs on" if told[0] is None else f"{told[0]}, {told[1]:.2f} s")
            print(f"| {failure} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
