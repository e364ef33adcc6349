"""A really booted systemd in namespaces of its own, over a copy-on-write view of this machine's root.

Nothing of it is left: its root, /run and processes go with the namespaces, and its cgroup is removed.
"""
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
PATIENCE_S = 30  # Every wait ends here at the latest; a test that meets it has failed.
SYSTEMD = "/lib/systemd/systemd"
# A booted machine starts more; this much is needed.
KEPT = ("systemd-journald", "dlaunchd")


class CannotBoot(Exception):
    """Why this machine cannot run such a test."""


def wait_until(what, condition):
    """Polls what the outside can only ask for; returns the condition's value."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.02)


def own_cgroup():
    """The folder of our cgroup in the unified hierarchy."""
    mounts = [line.split() for line in open("/proc/self/mounts")]
    points = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
    paths = [line.strip()[3:] for line in open("/proc/self/cgroup") if line.startswith("0::")]
    if not points or not paths:
        raise CannotBoot("there is no cgroup2 hierarchy")
    return points[0] + paths[0].rstrip("/")


def check_possible():
    if os.geteuid() != 0:
        raise CannotBoot("it needs root")
    for program in ("unshare", "nsenter", "mount", "pivot_root"):
        if shutil.which(program) is None:
            raise CannotBoot(f"there is no {program}")
    if not os.path.exists(SYSTEMD) or shutil.which("systemctl") is None:
        raise CannotBoot("systemd is not installed")
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts",
                            "--cgroup", "mount", "-t", "tmpfs", "none", "/mnt"],
                           capture_output=True, text=True)
    if tried.returncode != 0:
        raise CannotBoot("namespaces or mounts are not allowed: " + tried.stderr.strip())
    # The unit has PrivateUsers=yes.
    if subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode != 0:
        raise CannotBoot("user namespaces are refused, as in a chroot")


class Booted:
    """`files` is a folder that is laid over the root before systemd starts."""

    def __init__(self, files):
        check_possible()
        self.folder = tempfile.mkdtemp(prefix="dlaunch-booted-")
        self.cgroup = f"{own_cgroup()}/dlaunch-booted-{os.getpid()}"
        self.process = None
        try:
            os.mkdir(self.cgroup)
        except OSError as error:
            os.rmdir(self.folder)
            raise CannotBoot(f"cgroups cannot be made: {error}")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts",
             "--cgroup", sys.executable, os.path.abspath(__file__), self.folder, files],
            preexec_fn=lambda: open(f"{self.cgroup}/cgroup.procs", "w").write("0"),
            stdin=subprocess.DEVNULL, stdout=open(f"{self.folder}.log", "w"),
            stderr=subprocess.STDOUT)

    def __enter__(self):
        wait_until("systemd's first process", self._find_init)
        wait_until("systemd's answer", lambda: self.run("systemctl", "is-system-running",
                   check=False).stdout.strip() in ("running", "degraded"))
        return self

    def _find_init(self):
        if self.process.poll() is not None:
            raise AssertionError("systemd did not boot: " + open(f"{self.folder}.log").read())
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        children = open(path).read().split()
        if not children:
            return False
        self.init = int(children[0])
        return os.readlink(f"/proc/{self.init}/exe").endswith("/systemd")

    def run(self, *command, check=True):
        """Runs a command inside."""
        done = subprocess.run(["nsenter", "-t", str(self.init), "--all", "--root", "--wd",
                               *command],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
        # The last processes of the pid namespace die after its first.
        populated = f"{self.cgroup}/cgroup.events"
        wait_until("the end of all its processes", lambda: "populated 0" in open(populated).read())
        for folder, _, _ in os.walk(self.cgroup, topdown=False):
            os.rmdir(folder)
        os.rmdir(self.folder)
        os.unlink(f"{self.folder}.log")


# ---- Inside, before systemd ----

def mount(kind, at, source="none", options=None):
    os.makedirs(at, exist_ok=True)
    subprocess.run(["mount", "-t", kind, *(["-o", options] if options else []), source, at],
                   check=True)


def make_root(folder, files):
    """A root of which nothing but memory changes."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    mount("tmpfs", folder)
    for name in ("upper", "work", "root"):
        os.mkdir(f"{folder}/{name}")
    root = f"{folder}/root"
    mount("overlay", root,
          options=f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work")
    mount("tmpfs", f"{root}/run")
    mount("tmpfs", f"{root}/tmp")
    mount("tmpfs", f"{root}/etc/systemd/system")
    mount("proc", f"{root}/proc")
    mount("sysfs", f"{root}/sys", options="ro")
    mount("cgroup2", f"{root}/sys/fs/cgroup")
    mount("tmpfs", f"{root}/dev", options="mode=755")
    for device in ("null", "zero", "full", "random", "urandom", "tty"):
        open(f"{root}/dev/{device}", "w").close()
        subprocess.run(["mount", "--bind", f"/dev/{device}", f"{root}/dev/{device}"], check=True)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    mount("devpts", f"{root}/dev/pts", options="newinstance,ptmxmode=0666")
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")
    mount("tmpfs", f"{root}/dev/shm")
    subprocess.run(["cp", "-a", f"{files}/.", root], check=True)
    return root


def mask_the_rest(root):
    """All that the machine's own units would start at boot."""
    units = f"{root}/etc/systemd/system"
    for wanted in glob.glob(f"{root}/lib/systemd/system/*.target.wants/*"):
        name = os.path.basename(wanted)
        mask = f"{units}/{name}"
        if not name.startswith(KEPT) and not name.endswith(".target") and not os.path.lexists(mask):
            os.symlink("/dev/null", mask)
    os.makedirs(f"{root}/run/systemd/system")
    with open(f"{root}/run/systemd/system/booted.target", "w") as unit:
        unit.write("[Unit]\nRequires=sysinit.target systemd-journald.service\n"
                   "After=sysinit.target systemd-journald.service\nAllowIsolate=yes\n")


def become_systemd(folder, files):
    root = make_root(folder, files)
    mask_the_rest(root)
    os.chdir(root)
    os.mkdir("old")
    subprocess.run(["pivot_root", ".", "old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/old"], check=True)
    os.rmdir("/old")
    # As on a machine: services' own mount namespaces receive what is mounted later.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    os.execve(SYSTEMD, [SYSTEMD, "--system", "--unit=booted.target", "--show-status=0",
                        "--log-target=console", "--log-level=notice"],
              {"container": "dlaunch-test", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


if __name__ == "__main__":
    become_systemd(*sys.argv[1:])
