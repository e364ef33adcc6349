"""dlaunchd under a really booted systemd: booted_test.py BUILD_DIR"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from booted_root import Booted, CannotBoot, SKIPPED, wait_until

UNIT = "dlaunchd.service"
SOCKET = "dlaunchd.socket"
HTTP_SOCKET = "dlaunchd-http.socket"
KEEPER = "keeper"  # The folder of the program that holds a key, and of its library.


class Daemon:
    def __init__(self, booted):
        self.run = booted.run

    def property(self, name, unit=UNIT):
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def state(self):
        return self.property("ActiveState")

    def journal(self, *options):
        return self.run("journalctl", "-u", UNIT, "-o", "cat", "--no-pager", *options).stdout

    def said(self, text, *options):
        wait_until(f"the log line '{text}'", lambda: text in self.journal(*options))

    def page(self, path):
        return self.run("curl", "-sS", "--max-time", "5", f"http://127.0.0.1:29401{path}").stdout


def configure(booted, text):
    folder = os.path.dirname(CONFIG)
    booted.run("sh", "-c", f"mkdir -p {folder} && printf '%s' '{text}' > {CONFIG}")


def drop_in(booted, text):
    booted.run("sh", "-c", f"mkdir -p /etc/systemd/system/{UNIT}.d && "
                           f"printf '%s' '{text}' > /etc/systemd/system/{UNIT}.d/test.conf && "
                           "systemctl daemon-reload")


class HeldJob:
    """A job of one node, which runs until it may end, and has its epoch and the key that it has set all the while."""

    def __init__(self, booted, daemon, name):
        self.booted, self.daemon, self.name = booted, daemon, name
        job = (f"dlaunch --nnodes 1:2 --nproc-per-node 1 --rdzv-endpoint 127.0.0.1:29400 --rdzv-id {name} "
               f"--rdzv-conf last_call_timeout=0 /{KEEPER}/bin/keeps_key /run/go")
        booted.run("sh", "-c", f"rm -f /run/go /run/code /run/said; {{ {job} >/run/said 2>&1; echo $? >/run/code; }} "
                               ">/dev/null 2>&1 </dev/null &")
        wait_until("the job's key", lambda: "] set" in self.said())
        wait_until("the job on its page", lambda: self.shown().get("state") == "running")
        self.epoch = self.shown()["epoch"]

    def shown(self):
        jobs = json.loads(self.daemon.page("/api/v1/jobs") or '{"jobs": []}')["jobs"]
        return next((job for job in jobs if job["job"] == self.name), {})

    def said(self):
        return self.booted.run("cat", "/run/said", check=False).stdout

    def is_back(self):
        """At the daemon that runs now."""
        wait_until("the job's nodes", lambda: self.shown().get("state") == "running"
                   and self.shown()["nodes_present"] == 1)
        assert self.shown()["epoch"] == self.epoch, self.shown()
        assert self.booted.run("test", "-e", "/run/code", check=False).returncode != 0

    def ends_well(self):
        self.booted.run("sh", "-c", ": > /run/go")
        wait_until("the job's end", lambda: self.booted.run("cat", "/run/code", check=False).stdout.strip())
        code = self.booted.run("cat", "/run/code").stdout.strip()
        assert code == "0" and "] kept 4711" in self.said(), code + self.said()


def starts_by_a_reader(booted, daemon):
    """The status has a socket of its own, and the daemon takes both."""
    booted.run("systemctl", "start", SOCKET, HTTP_SOCKET)
    assert daemon.state() == "inactive", daemon.state()
    assert daemon.page("/healthz") == "ok\n"
    assert daemon.state() == "active", daemon.state()
    daemon.said("listen=127.0.0.1:29400 http=127.0.0.1:29401 state=sqlite:")
    pid = daemon.property("MainPID")
    limits = booted.run("cat", f"/proc/{pid}/limits").stdout
    assert any(line.startswith("Max core file size") and line.split()[4] == "0" for line in limits.splitlines()), limits
    # A page that is asked for while there is no daemon waits for the next one.
    booted.run("systemctl", "kill", "--signal=KILL", UNIT)
    assert daemon.page("/healthz") == "ok\n"
    wait_until("another", lambda: daemon.property("MainPID") not in ("0", pid))
    booted.run("systemctl", "stop", SOCKET, HTTP_SOCKET, UNIT)


def refuses_before_it_is_ended(booted, daemon):
    """memory-max comes before the unit's own limit."""
    most = daemon.property("MemoryMax")
    lines = daemon.page("/metrics").splitlines()
    told = next(line for line in lines if line.startswith("dlaunch_memory_max_bytes "))
    assert most.isdigit() and 0 < float(told.split()[1]) < int(most), (most, told)


def starts_by_a_connection(booted, daemon):
    booted.run("systemctl", "start", SOCKET)
    assert daemon.state() == "inactive", daemon.state()
    booted.run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/29400")
    # Type=notify: active means that READY=1 was seen.
    wait_until("active", lambda: daemon.state() == "active")
    assert daemon.property("StatusText") == "listening on 127.0.0.1:29400"
    daemon.said("ready pid=")
    assert daemon.page("/healthz") == "ok\n"
    assert daemon.page("/readyz") == "ready\n"
    assert json.loads(daemon.page("/api/v1/jobs")) == {"jobs": []}
    assert "dlaunch_connections_accepted_total 1\n" in daemon.page("/metrics")


def logs_with_fields(booted, daemon):
    """By the journal's own socket, which the unit lets it reach."""
    lines = daemon.run("journalctl", "-u", UNIT, "-o", "json", "--no-pager", "SYSLOG_IDENTIFIER=dlaunchd").stdout
    ready = next(line for line in map(json.loads, lines.splitlines()) if line["MESSAGE"].startswith("ready pid="))
    assert ready["_TRANSPORT"] == "journal" and ready["PRIORITY"] == "6", ready


def is_confined(booted, daemon):
    status = booted.run("cat", f"/proc/{daemon.property('MainPID')}/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0, fields
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", fields
    assert fields["Uid"].split()[0] != "0", fields


def reloads(booted, daemon):
    pid = daemon.property("MainPID")
    configure(booted, "jobs-max = 7\n")
    booted.run("systemctl", "reload", UNIT)
    daemon.said("the configuration was reloaded")
    wait_until("active again", lambda: daemon.state() == "active")
    configure(booted, "jobs-max = many\n")
    booted.run("systemctl", "reload", UNIT)
    # By its priority, too: the journal has understood it.
    daemon.said(f"{CONFIG}:1: jobs-max = many", "-p", "err")
    wait_until("active again", lambda: daemon.state() == "active")
    assert daemon.property("MainPID") == pid
    configure(booted, "")


def restarted(booted, daemon, signal):
    pid, restarts = daemon.property("MainPID"), int(daemon.property("NRestarts"))
    booted.run("kill", signal, pid)
    wait_until("a restart", lambda: int(daemon.property("NRestarts")) > restarts)
    wait_until("active again", lambda: daemon.state() == "active")
    assert daemon.property("MainPID") != pid
    assert daemon.page("/healthz") == "ok\n"


def holds_a_job_across_a_crash(booted, daemon):
    job = HeldJob(booted, daemon, "killed")
    restarted(booted, daemon, "-KILL")
    job.is_back()
    job.ends_well()


def comes_back_from_many_crashes(booted, daemon):
    """More than systemd allows in ten seconds, unless the unit says otherwise."""
    for _ in range(6):
        restarted(booted, daemon, "-KILL")


def holds_a_job_across_the_watchdog(booted, daemon):
    job = HeldJob(booted, daemon, "stopped")
    restarted(booted, daemon, "-STOP")
    job.is_back()
    booted.run("systemctl", "reload", UNIT)
    job.is_back()
    job.ends_well()


def holds_a_job_across_an_upgrade(booted, daemon):
    """The program is replaced while a job runs, and the daemon started again: it was told to stop, which is no failure."""
    configure(booted, 'drain-timeout = "10ms"\n')
    booted.run("systemctl", "reload", UNIT)
    job = HeldJob(booted, daemon, "upgraded")
    pid, program = daemon.property("MainPID"), booted.run("sh", "-c", "command -v dlaunchd").stdout.strip()
    booted.run("sh", "-c", f"cp {program} {program}.new && mv {program}.new {program}")
    booted.run("systemctl", "restart", UNIT)
    assert daemon.property("MainPID") != pid and daemon.state() == "active"
    daemon.said("1 job had not ended: 'upgraded'")
    job.is_back()
    job.ends_well()
    configure(booted, "")


def obeys_an_operator(booted, daemon):
    """One whose token is a credential, as the unit's user can read no file of root's."""
    booted.run("sh", "-c", "umask 077; mkdir -p /etc/credstore; echo ada $(head -c 32 /dev/urandom | od -An -tx1 | "
                           "tr -d ' \\n') > /etc/credstore/dlaunchd.operators")
    booted.run("systemctl", "restart", UNIT)
    said = booted.run("dlaunch", "ctl", "drain", "--token-file", "/etc/credstore/dlaunchd.operators").stdout
    assert said.startswith("no new job is taken until it is resumed"), said
    daemon.said("action drain-all by operator 'ada' (from 127.0.0.1:", "DLAUNCH_EVENT=action", "-p", "warning")
    booted.run("dlaunch", "ctl", "resume", "--token-file", "/etc/credstore/dlaunchd.operators")
    assert daemon.page("/readyz") == "ready\n"


def stops(booted, daemon):
    booted.run("systemctl", "stop", SOCKET, UNIT)
    assert daemon.state() == "inactive", daemon.state()
    assert daemon.property("Result") == "success", daemon.property("Result")
    daemon.said("SIGTERM: draining; 0 jobs may end within 30 s")


def refuses_to_be_exposed(booted, daemon):
    configure(booted, 'listen = "0.0.0.0:29400"\n')
    booted.run("systemctl", "start", UNIT, check=False)
    wait_until("failed", lambda: daemon.state() == "failed")
    assert daemon.property("ExecMainStatus") == "78", daemon.property("ExecMainStatus")
    daemon.said("beyond loopback a secret is needed")
    booted.run("systemctl", "reset-failed", UNIT)
    configure(booted, "")
    booted.run("systemctl", "start", UNIT)
    assert daemon.state() == "active"
    booted.run("systemctl", "stop", UNIT)


def main(build):
    files = tempfile.mkdtemp(prefix="dlaunch-staged-")
    try:
        os.chmod(files, 0o755)
        for component in ("dlaunchd", "dlaunch"):
            subprocess.run(["cmake", "--install", build, "--component", component], check=True,
                           stdout=subprocess.DEVNULL, env={**os.environ, "DESTDIR": files})
        os.makedirs(f"{files}/{KEEPER}/bin")
        os.makedirs(f"{files}/{KEEPER}/lib")
        shutil.copy(f"{build}/tests/keeps_key", f"{files}/{KEEPER}/bin/")
        shutil.copy(f"{build}/lib/libdlaunch.so.0", f"{files}/{KEEPER}/lib/")
        with Booted(files) as booted:
            daemon = Daemon(booted)
            # LeakSanitizer looks at its process by ptrace, which the unit does not allow.
            drop_in(booted, "[Service]\nWatchdogSec=1s\nRestartSec=10ms\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n")
            for step in (starts_by_a_reader, starts_by_a_connection, refuses_before_it_is_ended, logs_with_fields,
                         is_confined, reloads, holds_a_job_across_a_crash, comes_back_from_many_crashes,
                         holds_a_job_across_the_watchdog, holds_a_job_across_an_upgrade, obeys_an_operator, stops,
                         refuses_to_be_exposed):
                try:
                    step(booted, daemon)
                except AssertionError:
                    print(booted.run("systemctl", "status", UNIT, SOCKET, check=False).stdout)
                    print(daemon.journal())
                    raise
                print(f"{step.__name__}: ok", flush=True)
    except CannotBoot as why:
        print(f"skipped: no systemd can be booted here: {why}")
        return SKIPPED
    finally:
        shutil.rmtree(files)
    return 0


if __name__ == "__main__":
    BUILD = sys.argv[1]
    for line in open(f"{BUILD}/packaging/systemd/dlaunchd.service"):
        if line.startswith("ExecStart="):
            CONFIG = line.split("--config ")[1].strip()
    sys.exit(main(BUILD))
