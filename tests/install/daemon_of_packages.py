"""The package dlaunchd under a really booted systemd: daemon_of_packages.py FOLDER

FOLDER has packages/, newer/, the tests' systemd/ and the program keeps_key. All happens on a view of this root that is gone afterwards.
"""
import glob
import os
import shutil
import sys
import tempfile

sys.path.insert(0, f"{sys.argv[1]}/systemd")
from booted_root import Booted, CannotBoot, SKIPPED, wait_until  # noqa: E402

UNIT = "dlaunchd.service"
SOCKETS = ("dlaunchd.socket", "dlaunchd-http.socket")
STATE = "/var/lib/private/dlaunch/state.db"  # Of a user of the moment; /var/lib/dlaunch is a link to it.


def state(booted):
    return booted.run("systemctl", "show", "--value", "-p", "ActiveState", UNIT).stdout.strip()


def pid(booted):
    return booted.run("systemctl", "show", "--value", "-p", "MainPID", UNIT).stdout.strip()


def exists(booted, path):
    return booted.run("test", "-e", path, check=False).returncode == 0


def is_healthy(booted):
    return booted.run("curl", "-sS", "--max-time", "5", "http://127.0.0.1:29401/healthz", check=False).stdout == "ok\n"


class Job:
    """Holds a key at the daemon, and reads it when it may end."""

    def __init__(self, booted):
        self.booted = booted
        job = ("dlaunch --nnodes 1:2 --nproc_per_node 1 --rdzv-endpoint 127.0.0.1:29400 --rdzv-id upgrade "
               "--rdzv-conf last_call_timeout=0 /dlaunch/keeps_key /dlaunch/may_end")
        booted.run("sh", "-c", f"{{ {job} >/dlaunch/said 2>&1; echo $? >/dlaunch/code; }} >/dev/null 2>&1 </dev/null &")
        wait_until("the key", lambda: "] set" in self.said() or exists(booted, "/dlaunch/code"))
        self.runs()

    def said(self):
        return self.booted.run("cat", "/dlaunch/said", check=False).stdout

    def runs(self):
        assert not exists(self.booted, "/dlaunch/code"), self.said()

    def ends_well(self):
        self.booted.run("sh", "-c", ": > /dlaunch/may_end")
        wait_until("the job's end", lambda: self.booted.run("cat", "/dlaunch/code", check=False).stdout.strip())
        code = self.booted.run("cat", "/dlaunch/code").stdout.strip()
        assert code == "0" and "] kept 4711" in self.said(), code + self.said()


def is_upgraded(booted, folder):
    """While a job runs: it goes on, and has its keys when the daemon is restarted."""
    booted.run("sh", "-c", "echo 'drain-timeout = \"10ms\"' >>/etc/dlaunch/dlaunchd.toml")
    booted.run("systemctl", "reload", UNIT)
    before = pid(booted)
    job = Job(booted)
    packages = sorted(os.path.basename(path) for path in glob.glob(f"{folder}/newer/*.deb"))
    said = booted.run("dpkg", "-i", *(f"/dlaunch/newer/{name}" for name in packages)).stdout
    assert "goes on running" in said and "keys are on disk" in said, said
    assert pid(booted) == before, "the upgrade restarted the daemon"
    job.runs()
    booted.run("systemctl", "restart", UNIT)
    assert pid(booted) != before and state(booted) == "active"
    job.runs()
    job.ends_well()
    print("upgraded: the job went on, and found its key when the daemon had been restarted", flush=True)


def listens_at_sockets(booted):
    booted.run("systemctl", "disable", "--now", UNIT)
    booted.run("systemctl", "enable", "--now", *SOCKETS)
    assert state(booted) == "inactive", state(booted)
    assert is_healthy(booted), "a reader does not start the daemon"
    assert state(booted) == "active", state(booted)
    for socket in SOCKETS:
        assert exists(booted, f"/etc/systemd/system/sockets.target.wants/{socket}"), socket
    print("enabled: a reader started it by its sockets", flush=True)


def life(booted, folder):
    # /tmp is another one inside; what is needed was copied to /dlaunch.
    package, = glob.glob(f"{folder}/packages/dlaunchd_*.deb")
    booted.run("dpkg", "-i", "/dlaunch/packages/" + os.path.basename(package))
    wait_until("active", lambda: state(booted) == "active")
    assert booted.run("systemctl", "is-enabled", UNIT).stdout.strip() == "enabled"
    assert is_healthy(booted)
    assert exists(booted, STATE), "it keeps nothing on disk"
    print("installed: enabled and active, with its state on disk", flush=True)
    is_upgraded(booted, folder)
    listens_at_sockets(booted)

    booted.run("dpkg", "-r", "dlaunchd")
    assert state(booted) == "inactive", state(booted)
    assert exists(booted, "/etc/dlaunch/dlaunchd.toml") and exists(booted, STATE)
    booted.run("dpkg", "-P", "dlaunchd")
    left = booted.run("find", "/etc", "/var/lib", "-name", "*dlaunch*", "!", "-path", "/var/lib/dpkg/*").stdout
    assert not left, left
    assert booted.run("systemctl", "cat", UNIT, check=False).returncode != 0
    print("removed and purged: stopped, and nothing left", flush=True)


def main(folder):
    files = tempfile.mkdtemp(prefix="dlaunch-staged-")
    os.chmod(files, 0o755)
    os.mkdir(f"{files}/dlaunch")
    for where in ("packages", "newer"):
        shutil.copytree(f"{folder}/{where}", f"{files}/dlaunch/{where}")
    shutil.copy(f"{folder}/keeps_key", f"{files}/dlaunch/")
    try:
        with Booted(files) as booted:
            life(booted, folder)
    except CannotBoot as why:
        print(f"skipped: no systemd can be booted here: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
