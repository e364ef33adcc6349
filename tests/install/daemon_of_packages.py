"""The package dlaunchd under a really booted systemd: daemon_of_packages.py FOLDER

FOLDER has packages/, newer/ and the tests' systemd/. All happens on a view of this root that is gone afterwards.
"""
import glob
import os
import sys
import tempfile

sys.path.insert(0, f"{sys.argv[1]}/systemd")
from booted_root import Booted, CannotBoot, SKIPPED, wait_until  # noqa: E402

UNIT = "dlaunchd.service"


def state(booted):
    return booted.run("systemctl", "show", "--value", "-p", "ActiveState", UNIT).stdout.strip()


def pid(booted):
    return booted.run("systemctl", "show", "--value", "-p", "MainPID", UNIT).stdout.strip()


def life(booted, folder):
    def package(where, name):
        # /tmp is another one inside; what is needed was copied to /dlaunch.
        return f"/dlaunch/{where}/" + os.path.basename(glob.glob(f"{folder}/{where}/{name}_*.deb")[0])

    booted.run("dpkg", "-i", package("packages", "dlaunchd"))
    wait_until("active", lambda: state(booted) == "active")
    assert booted.run("systemctl", "is-enabled", UNIT).stdout.strip() == "enabled"
    assert booted.run("curl", "-sS", "http://127.0.0.1:29401/healthz").stdout == "ok\n"
    before = pid(booted)
    print("installed: enabled and active", flush=True)

    job = ("dlaunch --nnodes 1:2 --nproc_per_node 2 --rdzv-endpoint 127.0.0.1:29400 --rdzv-id upgrade "
           "--rdzv-conf last_call_timeout=0 sh -c 'until [ -e /dlaunch/upgraded ]; do sleep 0.05; done'")
    booted.run("sh", "-c", f"{{ {job} >/dlaunch/job 2>&1; echo $? >/dlaunch/code; }} >/dev/null 2>&1 </dev/null &")
    wait_until("the job", lambda: "running" in booted.run("curl", "-sS", "http://127.0.0.1:29401/api/v1/jobs").stdout)
    said = booted.run("dpkg", "-i", package("newer", "libdlaunch0"), package("newer", "dlaunch"),
                      package("newer", "libdlaunch-dev"), package("newer", "libdlaunch-nccl"),
                      package("newer", "dlaunchd")).stdout
    assert "goes on running" in said, said
    assert pid(booted) == before, "the upgrade restarted the daemon"
    booted.run("touch", "/dlaunch/upgraded")
    wait_until("the job's end", lambda: booted.run("cat", "/dlaunch/code", check=False).stdout.strip())
    code = booted.run("cat", "/dlaunch/code").stdout.strip()
    assert code == "0", code + booted.run("cat", "/dlaunch/job").stdout
    booted.run("systemctl", "restart", UNIT)
    assert pid(booted) != before and state(booted) == "active"
    print("upgraded: the job went on, and so did the daemon until it was restarted", flush=True)

    booted.run("dpkg", "-r", "dlaunchd")
    assert state(booted) == "inactive", state(booted)
    assert booted.run("test", "-e", "/etc/dlaunch/dlaunchd.toml", check=False).returncode == 0
    booted.run("dpkg", "-P", "dlaunchd")
    assert booted.run("test", "-e", "/etc/dlaunch", check=False).returncode == 1
    assert booted.run("systemctl", "cat", UNIT, check=False).returncode != 0
    print("removed and purged: stopped, and nothing left", flush=True)


def main(folder):
    files = tempfile.mkdtemp(prefix="dlaunch-staged-")
    os.chmod(files, 0o755)
    os.mkdir(f"{files}/dlaunch")
    for where in ("packages", "newer"):
        os.system(f"cp -r {folder}/{where} {files}/dlaunch/")
    try:
        with Booted(files) as booted:
            life(booted, folder)
    except CannotBoot as why:
        print(f"skipped: no systemd can be booted here: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
