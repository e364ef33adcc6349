"""A shell that is given commands one by one, as somebody types them."""
import os
import re
import secrets
import signal
import subprocess
import threading
import time

ANSWER_LIMIT = 60  # Seconds for what a page shows to come.
END_LIMIT = 20     # Seconds for what still runs to end when the page is through.


class Terminal:
    def __init__(self, folder, environment):
        self._token = secrets.token_hex(8)
        self._said = ""
        self._from = 0  # What came before was compared already.
        self._started = False
        self._closed = False  # Nobody is left who could write.
        self._changed = threading.Condition()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        threading.Thread(target=self._listen, daemon=True).start()
        # What is sent to all of the terminal is for the program, not for its shell.
        self._type("trap : INT")

    def _listen(self):
        while True:
            chunk = os.read(self._shell.stdout.fileno(), 65536)
            with self._changed:
                self._said += chunk.decode(errors="replace")
                self._closed = not chunk
                self._changed.notify_all()
            if not chunk:
                return

    def start(self, command):
        """When the last one has ended. Programs have no input: the next command is none of theirs. $? stays
        the command's."""
        if self._started and self.wait_until(lambda lines, status: status is not None) is None:
            raise TimeoutError(f"the last command in this terminal does not end; the next one is: {command}")
        self._started = True
        with self._changed:
            self._from = len(self._said)
        self._type(f"{{ {command}\n}} </dev/null; DOCS_STATUS=$?; "
                   f"echo \"{self._token} $DOCS_STATUS\"; (exit $DOCS_STATUS)")

    def interrupt(self):
        """Ctrl-C."""
        os.killpg(self._shell.pid, signal.SIGINT)

    def _type(self, line):
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _end(self):
        return re.search(rf"^(.*?)({self._token} (\d+)\n)", self._said[self._from:], re.DOTALL)

    def said(self):
        """Lines since the last command, whole ones, and its exit status or None."""
        found = self._end()
        text = found.group(1) if found else self._said[self._from:]
        lines = text.splitlines()
        if not found and text and not text.endswith("\n"):
            lines = lines[:-1]
        return lines, int(found.group(3)) if found else None

    def wait_until(self, true_of, limit=ANSWER_LIMIT):
        """Until true_of(lines, status) holds, with what was said then; None if it never did."""
        deadline = time.monotonic() + limit
        with self._changed:
            while True:
                lines, status = self.said()
                if true_of(lines, status):
                    return lines, status
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return None
                self._changed.wait(left)

    def run(self, command, limit=ANSWER_LIMIT):
        self.start(command)
        return self.wait_until(lambda lines, status: status is not None, limit)

    def close(self):
        """Ends what still runs, and waits until nobody writes any more; true if nothing had to be killed."""
        try:
            self._shell.stdin.close()
        except BrokenPipeError:
            pass
        for which in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, which)
            except ProcessLookupError:
                pass
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, END_LIMIT):
                    self._shell.wait()
                    return which == signal.SIGTERM
        return False
