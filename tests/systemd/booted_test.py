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


def is_restarted_by_the_watchdog(booted, daemon):
    pid = daemon.property("MainPID")
    booted.run("kill", "-STOP", pid)
    wait_until("a restart", lambda: daemon.property("NRestarts") == "1")
    wait_until("active again", lambda: daemon.state() == "active")
    assert daemon.property("MainPID") != pid
    assert daemon.page("/healthz") == "ok\n"


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
        subprocess.run(["cmake", "--install", build, "--component", "dlaunchd"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "DESTDIR": files})
        with Booted(files) as booted:
            daemon = Daemon(booted)
            drop_in(booted, "[Service]\nWatchdogSec=1s\nRestartSec=10ms\n")
            for step in (starts_by_a_connection, logs_with_fields, is_confined, reloads,
                         is_restarted_by_the_watchdog, stops, refuses_to_be_exposed):
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
