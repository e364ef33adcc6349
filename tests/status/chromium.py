"""A headless Chromium, driven by the DevTools protocol over two pipes (--remote-debugging-pipe)."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE_S = 60


class Chromium:
    """One page of one browser. What it says on its console is in `console`, as (level, text)."""

    def __init__(self, program, *options):
        self.folder = tempfile.mkdtemp(prefix="dlaunch-chromium-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def place():  # The protocol's descriptors are 3 and 4; neither end may lie there before.
            high = [os.dup2(fd, at) for fd, at in ((to_browser, 70), (from_browser, 71))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--disable-background-networking",
             f"--user-data-dir={self.folder}", *options, "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.unread = b""
        self.number = 0
        self.session = None
        self.console = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._next(deadline)
            if answer is None:
                raise TimeoutError(f"Chromium has not answered {method} within {DEADLINE_S} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, deadline):
        while b"\0" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                return None
            data = os.read(self.into, 1 << 16)
            if not data:
                raise RuntimeError(f"Chromium has ended with {self.process.wait()}")
            self.unread += data
        text, self.unread = self.unread.split(b"\0", 1)
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message):
        what = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.console.append(("error", details.get("exception", {}).get("description", details["text"])))
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.console.append((what["type"], " ".join(str(a.get("value")) for a in what["args"])))
        elif message.get("method") == "Log.entryAdded" and what["entry"]["level"] != "verbose":  # Advice.
            self.console.append((what["entry"]["level"], what["entry"]["text"] + " " + what["entry"].get("url", "")))

    def look(self, width, height, dark=False, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def text(self, selector):
        return self.value(f"(document.querySelector({json.dumps(selector)}) || {{}}).innerText || ''")

    def await_true(self, expression, what):
        """Waits in the page: until an expression holds there."""
        script = f"""new Promise((done) => {{
            const look = () => {{ let holds = false; try {{ holds = !!({expression}); }} catch {{ }}
              if (holds) finish(true); }};
            const finish = (held) => {{ watch.disconnect(); document.removeEventListener("focusin", look);
              clearTimeout(end); done(held); }};
            const watch = new MutationObserver(look);
            watch.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
            document.addEventListener("focusin", look);  // The focus moves without a mutation.
            const end = setTimeout(() => finish(false), {DEADLINE_S * 500});
            look(); }})"""
        if not self.value(script):
            raise AssertionError(f"the page never showed {what}; it shows:\n{self.text('body')}\n{self.console}")

    def await_text(self, selector, words):
        self.await_true(f"document.querySelector({json.dumps(selector)}).innerText.includes({json.dumps(words)})",
                        f"{words!r} in {selector}")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
