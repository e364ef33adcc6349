"""What a promise is held with: the gate, and how processes are looked at."""
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import time

GIVE_UP_S = 60
MIB = 1 << 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes_with(token):
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            line = pathlib.Path("/proc", entry, "cmdline").read_bytes()
        except OSError:
            continue
        if token.encode() in line:
            found.append(int(entry))
    return found


def kill_children():
    """What a promise that failed in its middle has left: it would hold whoever waits for the output's end."""
    for children in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def daemon_at(build, port, *options):
    """A dlaunchd that is ready."""
    daemon = subprocess.Popen(
        [str(build / "bin/dlaunchd"), "--listen", f"127.0.0.1:{port}", "--http", "off", *options],
        stderr=subprocess.PIPE, text=True)
    daemon.stderr.readline()
    return daemon


def until(reached, limit_s=GIVE_UP_S):
    """Seconds until it is so; the limit where it never was."""
    began = time.monotonic()
    while not reached() and time.monotonic() - began < limit_s:
        time.sleep(0.005)
    return time.monotonic() - began


def p99(values):
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def status_kib(pid, field):
    for line in pathlib.Path("/proc", str(pid), "status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


def cpu_s(pid):
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Gate:
    def __init__(self, room, states):
        self.room, self.states, self.failed = room, states, 0

    def holds(self, what, measured, bound, unit, room_max=None):
        """`measured` is to be at most `bound`, and room is left for a busy machine; no more than `room_max`."""
        self._holds(what, measured, bound, unit, min(self.room, room_max or self.room))

    def fits(self, what, measured, bound, unit):
        """The same without room: a busy machine takes time, and neither memory nor more work."""
        self._holds(what, measured, bound, unit, 1)

    def _holds(self, what, measured, bound, unit, room):
        most = bound * room
        right = measured <= most
        self.failed += not right
        print(f"{'' if right else 'BROKEN: '}{what}: {measured:.3g} {unit} (promised {bound:g}, fails above {most:g})",
              flush=True)

    def is_so(self, what, right):
        self.failed += not right
        print(f"{'' if right else 'BROKEN: '}{what}: {'yes' if right else 'no'}", flush=True)
