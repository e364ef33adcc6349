"""A dlaunchd on ports of its own, and agents that meet there."""
import os
import re
import signal
import subprocess
import tempfile
import threading

SKIPPED = 77


class Daemon:
    def __init__(self, build, *options):
        self.build = build
        self.process = subprocess.Popen(
            [f"{build}/bin/dlaunchd", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options],
            stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"ready pid=\d+ listen=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)", line)
        if not found:
            raise RuntimeError(f"dlaunchd said: {line}")
        self.port, self.http = int(found[1]), int(found[2])
        self.said = [line]
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()
        self.started = []

    def url(self, path="/", host="127.0.0.1"):
        return f"http://{host}:{self.http}{path}"

    def agent(self, job, *command, nnodes="1", options=()):
        """An agent with one worker, and a process group of its own."""
        return self.start([f"{self.build}/bin/dlaunch", "--nnodes", nnodes, "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                           "--rdzv-id", job, *options, *command])

    def crowd(self, job, nodes, workers, silent=0, behind=0):
        """Agents without workers."""
        return self.start([f"{self.build}/tests/status_crowd", str(self.port), job, str(nodes), str(workers), str(silent),
                           str(behind)])

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        self.started.append(process)
        return process

    @staticmethod
    def kill(process):
        """With all that it has started."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def close(self):
        for process in self.started:
            self.kill(process)
        self.process.kill()
        self.process.wait()


class Gate:
    """Workers wait at it, each for a line."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dlaunch-gate-")
        self.path = f"{self.folder.name}/gate"
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)

    def open(self):
        os.write(self.fd, b"go\n")

    def close(self):
        os.close(self.fd)
        self.folder.cleanup()
