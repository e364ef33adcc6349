"""Promises of a job: what its agents and ranks do when one of them, or its dlaunchd, is gone."""
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from gate import GIVE_UP_S, daemon_at, free_port, processes_with, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
import faults

# A worker that says when SIGTERM comes, and one that forks a grandchild of another session.
WORKER = r"""
import os, signal, sys, time
def told(*_):
    os.write(1, f"TERM {time.monotonic()}\n".encode())  # In one piece: another signal may come.
    os._exit(0)
signal.signal(signal.SIGTERM, told)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True: signal.pause()
print("READY", os.environ["RANK"], os.getpid(), flush=True)
while True: signal.pause()
"""


class Launched:
    """A dlaunch whose output is read line by line."""

    def __init__(self, build, arguments, token, stderr=subprocess.DEVNULL):
        self.process = subprocess.Popen(
            [str(build / "bin/dlaunch"), *arguments, sys.executable, "-c", WORKER, token], stdout=subprocess.PIPE,
            stderr=stderr, text=True, bufsize=1)

    def lines(self, word, count):
        found = []
        while len(found) < count:
            line = self.process.stdout.readline()
            if not line:
                break
            at = line.find(word + " ")
            if at >= 0:
                found.append(line[at:].split())
        return found

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=GIVE_UP_S)


def token_of(name):
    return f"promise-{name}-{os.getpid()}-{random.getrandbits(32):x}"


def worker(gate, build):
    told, left = [], []
    for _ in range(5):
        token = token_of("worker")
        job = Launched(build, ["--nproc-per-node", "4", "--shutdown-timeout", "1"], token)
        ready = job.lines("READY", 4)
        killed_at = time.monotonic()
        os.kill(int(ready[0][2]), signal.SIGKILL)
        told += [float(line[1]) - killed_at for line in job.lines("TERM", 3)]
        left.append(until(lambda token=token: not processes_with(token)))
        job.end()
    gate.is_so("worker: every sibling was told", len(told) == 15)
    gate.holds("worker: SIGTERM at the siblings", max(told), 1, "s")
    gate.holds("worker: nothing is left, after a grace period of 1 s", max(left), 2, "s")


def stuck(gate, build):
    # The old kind of freezer holds a process even against SIGKILL, as a driver or a dead NFS server does.
    freezer = pathlib.Path("/sys/fs/cgroup/freezer", token_of("stuck"))
    try:
        freezer.mkdir()
    except OSError as why:
        print(f"stuck: skipped: no freezer (cgroup v1): {why}")
        return
    grace_s, took, named = 1, [], 0
    for _ in range(2):
        with tempfile.TemporaryFile("w+") as said:
            line = ["--nproc-per-node", "2", "--shutdown-timeout", str(grace_s)]
            job = Launched(build, line, token_of("stuck"), said)
            pid = job.lines("READY", 2)[0][2]
            (freezer / "cgroup.procs").write_text(pid)
            (freezer / "freezer.state").write_text("FROZEN")
            until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n")
            began = time.monotonic()
            job.process.send_signal(signal.SIGTERM)
            until(lambda job=job: job.process.poll() is not None)
            took.append(time.monotonic() - began)
            (freezer / "freezer.state").write_text("THAWED")
            job.end()
            said.seek(0)
            named += f"(they hang in the kernel); leaving without them: pid {pid} (" in said.read()
            until(lambda: not (freezer / "cgroup.procs").read_text())
    freezer.rmdir()
    gate.is_so("stuck: the worker that cannot be killed was named", named == 2)
    gate.holds("stuck: the launcher has ended, after a grace period of 1 s", max(took), grace_s + 5, "s")


def agent(gate, build):
    dead, ended = [], []
    for _ in range(3):
        token, endpoint = token_of("agent"), f"127.0.0.1:{free_port()}"
        mine = token + "-b"
        line = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", endpoint]
        a = Launched(build, line + ["--node-rank", "0"], token + "-a")
        b = Launched(build, line + ["--node-rank", "1"], mine)
        a.lines("READY", 2), b.lines("READY", 2)
        children = pathlib.Path(f"/proc/{b.process.pid}/task/{b.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        began = time.monotonic()
        dead.append(until(lambda mine=mine: not processes_with(mine)))
        a.process.wait(GIVE_UP_S)
        ended.append(time.monotonic() - began)
        a.end(), b.end()
    gate.holds("agent: its workers and their grandchildren are dead", max(dead), 2, "s")
    gate.holds("agent: the other node has ended", max(ended), 6, "s")


def away(gate, build):
    port = free_port()
    daemon = daemon_at(build, port)
    jobs = [Launched(build, ["--nnodes", "3", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "away"],
                     token_of("away")) for _ in range(3)]
    for job in jobs:
        job.lines("READY", 1)
    daemon.kill()
    daemon.communicate()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        listener.setblocking(False)
        came, stop_at = [], time.monotonic() + 9
        while time.monotonic() < stop_at:
            if select.select([listener], [], [], stop_at - time.monotonic())[0]:
                listener.accept()[0].close()
                came.append(time.monotonic())
    for job in jobs:
        job.end()
    gaps = [b - a for a, b in zip(came, came[1:])]
    gate.holds("away: the longest time in which none of three agents tried", max(gaps, default=GIVE_UP_S), 5, "s")
    gate.is_so("away: each tried more than once", len(came) >= 6)
    # Without jitter three agents that lost one connection at one moment would come in threes.
    together = sum(gap < 0.001 for gap in gaps[3:])
    gate.is_so(f"away: they do not come together ({together} of {len(gaps[3:])} at one moment)",
               together * 2 <= len(gaps[3:]))


class Clients:
    """A node whose ranks write to the store and read it all the time, and when each was answered."""

    def __init__(self, build, port, nodes, ranks, end_file):
        self.process = subprocess.Popen(
            [str(build / "bin/dlaunch"), "--nnodes", str(nodes), "--nproc-per-node", str(ranks), "--rdzv-endpoint",
             f"127.0.0.1:{port}", "--rdzv-id", "resume", "--rdzv-role", "join", str(build / "tests/steady"), end_file,
             "100"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.ranks, self.answers, self.forgot = ranks, {}, False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if found := re.search(r"rank (\d+) stored ", line):
                self.answers.setdefault(found[1], []).append(time.monotonic())
            self.forgot |= " LOST " in line

    def all_after(self, moment):
        """When the last of them was first answered after that; null where one was not yet."""
        first = [next((answered for answered in list(answers) if answered > moment), None)
                 for answers in list(self.answers.values())]
        return max(first) if len(first) == self.ranks and all(first) else None


def etcd_at(folder):
    """An etcd of one member, and the value of --state for it; null where there is none on this machine."""
    program = shutil.which("etcd")
    if program is None:
        return None, None
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    member = subprocess.Popen(
        [program, "--data-dir", f"{folder}/etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return member, f"etcd:{client}"


def resumed(build, port, state, standby):
    """Of each kill the seconds until every client was answered again; nothing where one was not, or has lost a key."""
    nodes, ranks, kills, took = 8, 8, 3, []
    options = ["--state", state]
    with tempfile.TemporaryDirectory() as folder:
        end_file = f"{folder}/end"
        daemons = [daemon_at(build, port, *options)]
        clients = [Clients(build, port, nodes, ranks, end_file) for _ in range(nodes)]
        try:
            until(lambda: all(client.all_after(0) for client in clients))
            for _ in range(kills):
                if standby:
                    daemons.append(daemon_at(build, port, *options))
                killed_at = time.monotonic()
                end(daemons.pop(0))
                if standby:
                    any(" fds=" in line for line in daemons[0].stderr)  # It is read until then.
                else:
                    daemons.append(daemon_at(build, port, *options))
                back_at = time.monotonic()
                until(lambda back_at=back_at: all(client.all_after(back_at) for client in clients))
                answered = [client.all_after(back_at) for client in clients]
                if all(answered):
                    took.append(max(answered) - killed_at)
            pathlib.Path(end_file).touch()
            codes = [client.process.wait(GIVE_UP_S) for client in clients]
        except subprocess.TimeoutExpired:
            codes = [None]
        finally:
            for each in [*(client.process for client in clients), *daemons]:
                end(each)
    good = len(took) == kills and codes == [0] * nodes and not any(client.forgot for client in clients)
    return took if good else []


def end(process):
    process.kill()
    process.wait()


def resume(gate, build):
    with tempfile.TemporaryDirectory() as folder:
        took = resumed(build, free_port(), f"sqlite:{folder}/state.db", standby=False)
        gate.is_so("resume: sqlite: every client went on each time, with all of its keys", bool(took))
        gate.holds("resume: sqlite: kill -9 of the daemon until all clients are answered",
                   max(took, default=GIVE_UP_S), 2, "s")
        member, state = etcd_at(folder)
        if member is None:
            print("resume: etcd: skipped: there is no etcd")
            return
        try:
            took = resumed(build, free_port(), state, standby=True)
        finally:
            end(member)
        gate.is_so("resume: etcd: every client went on each time, with all of its keys", bool(took))
        gate.holds("resume: etcd: kill -9 of the daemon that leads until all clients are answered by the next",
                   max(took, default=GIVE_UP_S), 11, "s")


class Wire:
    """What lies between a client and `port`. While it is cut nothing passes, and nobody is told; what was said
    meanwhile comes when it is mended."""

    def __init__(self, port):
        self.far = port
        self.whole = threading.Event()
        self.whole.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open, self.said = 0, 0  # Connections, and pieces that the clients have said.
        threading.Thread(target=self.accept, daemon=True).start()

    def cut(self):
        self.whole.clear()

    def mend(self):
        self.whole.set()

    def accept(self):
        while True:
            near = self.listener.accept()[0]
            self.open += 1
            self.whole.wait()
            far = socket.create_connection(("127.0.0.1", self.far))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(*ends, ends[0] is near), daemon=True).start()

    def pass_on(self, source, target, is_clients):
        try:
            while True:
                data = source.recv(1 << 16)
                self.said += is_clients
                self.whole.wait()
                if not data:
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # One end has closed it with something unread.
            for each in (source, target):
                each.close()


def silent(gate, build):
    again, ended = [], []
    for _ in range(2):
        port, token = free_port(), token_of("silent")
        daemon = daemon_at(build, port)
        wire = Wire(port)
        line = ["--nnodes", "2", "--rdzv-id", "silent", "--rdzv-endpoint"]
        a = Launched(build, [*line, f"127.0.0.1:{port}"], token)
        b = Launched(build, [*line, f"127.0.0.1:{wire.port}"], token)
        a.lines("READY", 1), b.lines("READY", 1)
        before = wire.open
        wire.cut()
        began = time.monotonic()
        a.process.wait(GIVE_UP_S)
        ended.append(time.monotonic() - began)
        until(lambda wire=wire, before=before: wire.open > before)
        again.append(time.monotonic() - began)
        a.end(), b.end()
        daemon.kill()
        daemon.communicate()
    gate.holds("silent: the other node has ended", max(ended), 6, "s")
    gate.holds("silent: the agent that hears nothing connects anew", max(again), 7, "s")


class Heard:
    """What a launched node says on both of its streams, and when."""

    def __init__(self, launched):
        self.launched, self.lines = launched, []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.launched.process.stdout:
            self.lines.append((time.monotonic(), line))

    def times(self, word):
        return [at for at, line in list(self.lines) if word in line]

    def said(self, word, count, limit_s=GIVE_UP_S):
        until(lambda: len(self.times(word)) >= count, limit_s)
        return len(self.times(word)) >= count


def cut(gate, build):
    port, tokens = free_port(), [token_of("cut-a"), token_of("cut-b")]
    daemon = daemon_at(build, port)
    wire = Wire(port)
    jobs = [Launched(build, ["--nnodes", "1:2", "--node-id", node, "--rdzv-id", "cut", "--rdzv-endpoint",
                             f"127.0.0.1:{at}"], token, subprocess.STDOUT)
            for node, at, token in (("a", port, tokens[0]), ("b", wire.port, tokens[1]))]
    a, b = (Heard(job) for job in jobs)
    gate.is_so("cut: both nodes are at work", a.said("READY", 1) and b.said("READY", 1))

    def undisturbed(what, begin, end, seconds):
        """A second more would be a lease, so it begins when the node has just said that it is there."""
        said = wire.said
        until(lambda: wire.said > said)
        begin()
        time.sleep(seconds)
        end()
        said = wire.said
        until(lambda: wire.said > said + 2)
        # Nobody was lost: neither node was told of another epoch.
        gate.is_so(f"cut: {what} of {seconds} s is nothing",
                   not a.times(" is lost") and len(a.times("READY")) == len(b.times("READY")) == 1)

    def signal_node(number):
        for pid in processes_with(tokens[1]):
            os.kill(pid, number)

    undisturbed("a partition", wire.cut, wire.mend, 3)
    undisturbed("SIGSTOP", lambda: signal_node(signal.SIGSTOP), lambda: signal_node(signal.SIGCONT), 4)

    cut_at = time.monotonic()
    wire.cut()
    lost = a.said("node b is lost", 1)
    took = a.times("node b is lost")[0] - cut_at if lost else GIVE_UP_S
    # The last heartbeat was up to a second before.
    gate.is_so(f"cut: the node that is cut off keeps its place for {4 / gate.room:.3g} s ({took:.3g} s)",
               took >= 4 / gate.room)
    gate.holds("cut: it is lost", took, 6, "s")
    time.sleep(max(0, cut_at + 20 - time.monotonic()))
    gate.is_so("cut: it has started nothing while it was cut off", len(b.times("READY")) == 1)
    wire.mend()
    gate.is_so("cut: after 20 s it joins again, and both work in a second epoch",
               a.said("READY", 2) and b.said("READY", 2) and bool(a.times("epoch 2")))
    for job in jobs:
        job.process.kill()
        job.process.wait()
    daemon.kill()
    daemon.communicate()


def rank(gate, build):
    for way, bound in (("shared memory", 1), ("tcp", 1), ("two nodes", 2)):
        who = faults.Ours(build, way, 4)
        for fault, strike, limit in (("kill", "kill -9", 0), ("stop", "SIGSTOP, beyond the call's limit", 1)):
            times, without = faults.struck(who, fault, 3)
            gate.is_so(f"rank: {way}: {fault}: every other rank had an error", without == 0)
            gate.holds(f"rank: {way}: {strike}", max(times, default=GIVE_UP_S * 1e3) / 1e3 - limit,
                       5 if limit else bound, "s")
