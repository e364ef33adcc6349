"""Promises of the store's server and of dlaunchd: what a client may cost the others."""
import os
import re
import resource
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time

import native
from gate import GIVE_UP_S, MIB, cpu_s, daemon_at, free_port, p99, status_kib, until


class Served:
    """A store server by itself, in a process of its own."""

    def __init__(self, build):
        self.process = subprocess.Popen([str(build / "bench/kv_server"), "0"], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def end(self):
        self.process.kill()
        self.process.communicate()


def ping_times(client, count):
    times = []
    for _ in range(count):
        began = time.monotonic()
        client.ping()
        times.append(time.monotonic() - began)
    return times


def slow(gate, build):
    server = Served(build)
    witness, writer, reader = (native.Client(server.port) for _ in range(3))
    reader.watch("k")
    before = p99(ping_times(witness, 1000))
    value, times, written = b"x" * (64 << 10), [], 0
    # A dropped reader's connection is gone from the server's descriptors.
    sockets = len(os.listdir(f"/proc/{server.pid}/fd"))
    while len(os.listdir(f"/proc/{server.pid}/fd")) == sockets and written < 256 * MIB:
        for _ in range(16):
            writer.set("k", value)
        written += 16 * len(value)
        times += ping_times(witness, 16)
    gate.fits("slow: written for it until it was dropped", written / MIB, 24, "MiB")
    gate.holds("slow: a witness' p99 meanwhile", p99(times) * 1e3, max(2 * before * 1e3, 2), "ms")
    server.end()


def idle(gate, build):
    count = 10_000
    server = Served(build)
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", server.port), GIVE_UP_S)
        client.sendall(native.hello())
        clients.append(client)
    for client in clients:
        client.recv(8)
    gate.fits("idle: memory of the server", status_kib(server.pid, "VmRSS") / 1024, 100, "MiB")
    times = []
    for _ in range(300):
        began = time.monotonic()
        native.Client(server.port).socket.close()
        times.append(time.monotonic() - began)
    gate.holds("idle: a new connection beside them, p99", p99(times) * 1e3, 50, "ms")
    used = cpu_s(server.pid)
    time.sleep(3)
    gate.fits("idle: processor time", (cpu_s(server.pid) - used) / 3 * 100, 2, "% of a core")
    server.end()


def lengths(gate, build):
    server = Served(build)
    native.Client(server.port).ping()
    # The peak: what was allocated and freed again counts.
    before = status_kib(server.pid, "VmHWM")
    dlaunchs = [native.HEADER.pack(0xFFFFFFFF, native.SET, 0, 2, 0),
                native.frame(19, 2, struct.pack("<I", 0xFFFFFFFF)),  # multi_get of 2^32-1 keys.
                native.frame(native.SET, 2, struct.pack("<I", 0x80000000) + b"k"),
                native.frame(36, 2, native.text("g") + struct.pack("<QiQI", 0, 2, 0, 0xFFFFFFFF))]
    # PyTorch's: SET of a value, GET of a key and WAIT for keys, and torch 1's WAIT, 2^63 or 2^64-1 of each.
    hello, key = b"\x00\xce\xf7\x85\x3c", struct.pack("<Q", 1) + b"k"
    pytorchs = [hello + b"\x01" + key + struct.pack("<Q", 1 << 63), hello + b"\x03" + struct.pack("<Q", 1 << 63),
                hello + b"\x06" + struct.pack("<Q", (1 << 64) - 1), b"\x05" + struct.pack("<Q", 1 << 63)]
    connect_native = lambda: native.Client(server.port).socket
    connect_c10d = lambda: socket.create_connection(("127.0.0.1", server.port), GIVE_UP_S)
    for front, connect, huge in (("native", connect_native, dlaunchs), ("PyTorch's", connect_c10d, pytorchs)):
        times = [seconds_until_closed(connect(), message) for message in 25 * huge]
        gate.holds(f"lengths: {front}: closed, p99", p99(times) * 1e3, 10, "ms")
    gate.fits("lengths: growth of the server", (status_kib(server.pid, "VmHWM") - before) / 1024, 1, "MiB")
    server.end()


def seconds_until_closed(client, message):
    with client:
        client.settimeout(1)
        began = time.monotonic()
        client.sendall(message)
        try:
            while client.recv(4096):
                pass
        except ConnectionResetError:  # It closed with some of it unread.
            pass
        except TimeoutError:
            return GIVE_UP_S
        return time.monotonic() - began


def drip(gate, build):
    server = Served(build)
    witness = native.Client(server.port)
    poller, began, ended, slowest = select.poll(), {}, {}, 0.0
    clients = {}
    for _ in range(1000):
        client = socket.create_connection(("127.0.0.1", server.port), GIVE_UP_S)
        clients[client.fileno()] = client
        began[client.fileno()] = time.monotonic()
        poller.register(client, select.POLLIN | select.POLLHUP)
    said, stop_at = 0, time.monotonic() + GIVE_UP_S
    while len(ended) < len(clients) and time.monotonic() < stop_at:
        if said < len(native.PREFACE) and time.monotonic() - min(began.values()) >= said:
            for fd, client in clients.items():
                if fd not in ended:
                    try:
                        client.send(native.PREFACE[said:said + 1])
                    except OSError:
                        pass
            said += 1
        for fd, _ in poller.poll(100):
            try:
                closed = not clients[fd].recv(4096)
            except OSError:
                closed = True
            if closed and fd not in ended:
                ended[fd] = time.monotonic() - began[fd]
                poller.unregister(fd)
        slowest = max(slowest, *ping_times(witness, 3))
    gate.is_so("drip: each was closed, and none before 2.5 s",
               len(ended) == len(clients) and min(ended.values()) > 2.5)
    gate.holds("drip: closed", max(ended.values(), default=GIVE_UP_S), 3, "s")
    gate.holds("drip: a witness was served within", slowest * 1e3, 100, "ms")
    server.end()


def files(gate, build):
    server = Served(build)
    witness = native.Client(server.port)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (40, 40))
    clients = []
    for _ in range(100):
        client = socket.create_connection(("127.0.0.1", server.port), GIVE_UP_S)
        client.sendall(native.hello())
        clients.append(client)
    welcome = lambda: len(select.select(clients, [], [], 0)[0])
    until(lambda: welcome() >= 20, 10)
    used = cpu_s(server.pid)
    time.sleep(2)
    gate.fits("files: processor time while none is left", (cpu_s(server.pid) - used) / 2 * 100, 5, "% of a core")
    gate.holds("files: who is in is served within", max(ping_times(witness, 100)) * 1e3, 50, "ms")
    served = {client for client in select.select(clients, [], [], 0)[0]}
    waiting = [client for client in clients if client not in served]
    gate.is_so("files: some wait", bool(waiting) and bool(served))
    for client in served:
        client.close()
    took = until(lambda: bool(select.select(waiting, [], [], 0)[0]))
    gate.holds("files: those that waited are served after descriptors came free", took, 1, "s")
    server.end()


def connects(gate, build):
    count, port = 10_000, free_port()
    daemon = daemon_at(build, port)
    ran = subprocess.run([str(build / "bench/connect_at_once"), str(port), str(count)], stdout=subprocess.PIPE,
                         text=True, timeout=GIVE_UP_S)
    welcomed = re.search(r"welcomed (\d+) in_ms (\d+)", ran.stdout)
    gate.is_so("connects: 10,000 came at once, and none was refused", bool(welcomed) and int(welcomed[1]) == count)
    gate.holds("connects: all of them are welcomed", float(welcomed[2]) / 1e3 if welcomed else GIVE_UP_S, 1, "s")
    daemon.kill()
    daemon.communicate()


def secrets(gate, build):
    port, name = free_port(), "train-7"
    with tempfile.TemporaryDirectory() as folder:
        secret = f"{folder}/secret"
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(32).hex())
        daemon = daemon_at(build, port, "--secret-file", secret)
        job = subprocess.Popen(
            [str(build / "bin/dlaunch"), "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0", "--rdzv-endpoint",
             f"127.0.0.1:{port}", "--rdzv-id", name, "--secret-file", secret, "sh", "-c", "echo READY; exec sleep 60"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        gate.is_so("secrets: a job runs", "READY" in job.stdout.readline())
        ran = subprocess.run([str(build / "bench/refusals"), str(port), name, "500"], stdout=subprocess.PIPE,
                             text=True, timeout=GIVE_UP_S)
        job.kill()
        job.communicate()
        daemon.kill()
        daemon.communicate()
    took = re.search(r"known_us ([\d.]+) unknown_us ([\d.]+)", ran.stdout)
    gate.is_so("secrets: a wrong secret and an unknown job were refused, 500 times each", bool(took))
    if took:
        known, unknown = float(took[1]), float(took[2])
        print(f"secrets: refused in {known:.0f} us, an unknown job in {unknown:.0f} us")
        # A handshake that ends before the secret is looked at takes a third of it.
        gate.holds("secrets: the two medians differ by", 100 * abs(known / unknown - 1), 10, "%")


def crowd(gate, build):
    for state in gate.states:
        took = GIVE_UP_S
        for _ in range(3):  # A run takes little, and has to come close: a machine that stands still may spoil some.
            with tempfile.TemporaryDirectory() as folder:
                place = "memory" if state == "memory" else f"sqlite:{folder}/state.db"
                ran = subprocess.run([str(build / "bench/service"), str(build / "bin/dlaunchd"), "10000", "8", "--state",
                                      place], stdout=subprocess.PIPE, text=True, timeout=GIVE_UP_S)
            admitted = re.search(r"admitted (\d+) ms", ran.stdout)
            gate.is_so(f"crowd, state in {state}: 10,000 nodes joined one round, passed a barrier and ended",
                       ran.returncode == 0)
            took = min(took, float(admitted[1]) / 1e3 if admitted else GIVE_UP_S)
            if took <= 1:
                break
        gate.holds(f"crowd, state in {state}: the last one is admitted", took, 1, "s", room_max=1.5)


def readers(gate, build):
    ran = subprocess.run([str(build / "bench/readers"), str(build / "bin/dlaunchd"), "10000", "4", "1"],
                         stdout=subprocess.PIPE, text=True, timeout=2 * GIVE_UP_S)
    took = dict(re.findall(r"^([^,:]+).*: \d+ heartbeats, .* p99 ([\d.]+) ms", ran.stdout, re.MULTILINE))
    without = float(took.pop("without readers", 0))
    gate.is_so("readers: three pages were read by four readers, beside 10,000 nodes",
               ran.returncode == 0 and len(took) == 3)
    for page, ms in took.items():
        gate.holds(f"readers: {page}: a heartbeat is answered, p99", float(ms), max(10, 2 * without), "ms")


# The most memory that the daemon may take meanwhile.
ATTACKS = {"list": 300, "pages": 300, "barriers": 300, "waits": 300, "looks": 300, "gets": 300, "sets": 300,
           "flood": 300, "names": 300, "jobs": 300, "unread": 300, "full": 200, "ghosts": 300, "rounds": 300,
           "joins": 300}
# A witness' p99 beside the attack where it is not 10 ms: a set waits for two commits there, the one that is under way
# and its own, and what the jobs of ghosts change are many small rows for SQLite.
SLOWER_MS = {("rounds", "sqlite"): 20, ("ghosts", "sqlite"): 50}
OPTIONS = {"full": ["--memory-max", "64MiB"]}


def fair(gate, build, attacks=tuple(ATTACKS)):
    for state in gate.states:
        for attack in attacks:
            what = f"fair, state in {state}: {attack}"
            suffered = attacked(build, attack, state)
            if suffered["during"] > gate.room * suffered["promised"]:
                # A p99 of some hundred requests is that of the slowest few, which a machine spoils that stands still
                # for a moment.
                print(f"{what}: a witness' p99: {suffered['during']:.3g} ms, and it is measured once more", flush=True)
                suffered = attacked(build, attack, state)
            gate.is_so(f"{what}: the attack ended, and the daemon lives", suffered["alive"])
            gate.holds(f"{what}: a witness' p99", suffered["during"], suffered["promised"], "ms")
            if attack == "joins":
                gate.holds(f"{what}: a newcomer is in", suffered["newcomer"] / 1e3, 5, "s")
            gate.fits(f"{what}: memory of the daemon", suffered["memory"], ATTACKS[attack], "MiB")


def attacked(build, attack, state):
    """What the daemon, and a witness, suffer; the numbers of a witness that saw no end of it are none."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        place = "memory" if state == "memory" else f"sqlite:{folder}/state.db"
        daemon = subprocess.Popen([str(build / "bin/dlaunchd"), "--listen", f"127.0.0.1:{port}", "--http", "off",
                                   "--state", place, *OPTIONS.get(attack, [])],
                                  stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: attack == "joins" and resource.setrlimit(
                                      resource.RLIMIT_NOFILE, (64, 64)))
        daemon.stderr.readline()
        # Its log is read, as journald reads it: a full pipe would stop it.
        threading.Thread(target=daemon.stderr.read, daemon=True).start()
        ran = subprocess.run([str(build / "bench/fair"), str(port), attack], stdout=subprocess.PIPE, text=True,
                             timeout=GIVE_UP_S)
        suffered = {"during": 1e3 * GIVE_UP_S, "newcomer": 1e3 * GIVE_UP_S, "baseline": 0}
        words = ran.stdout.split()
        suffered.update(zip(words[::2], map(float, words[1::2])))
        suffered["promised"] = max(SLOWER_MS.get((attack, state), 10), 2 * suffered["baseline"])
        suffered["alive"] = ran.returncode == 0 and daemon.poll() is None
        suffered["memory"] = status_kib(daemon.pid, "VmHWM") / 1024 if daemon.poll() is None else 0
        daemon.kill()
        daemon.wait()
    return suffered
