"""The page at / in a real browser: it follows a job that gathers, runs, loses a node and fails, and a job of 10,000
ranks, names the ranks that are behind, without an error on its console:  page_test.py BUILD_DIR"""
import secrets
import shutil
import sys
import tempfile

from chromium import Chromium
from daemon import SKIPPED, Daemon, Gate

WORKER = """
import sys
print("loading", file=sys.stderr, flush=True)
open(sys.argv[1]).readline()
print("RuntimeError: <b>CUDA</b> out of memory", file=sys.stderr, flush=True)
sys.exit(3)
"""


def follows_a_job(browser, daemon):
    browser.open(daemon.url())
    browser.await_text("#empty", "No job yet")
    browser.await_text("#link-text", "live")

    gate = Gate()
    command = [sys.executable, "-c", WORKER, gate.path]
    # Two nodes at most, one at least: what is lost is not the end.
    daemon.agent("train-7", *command, nnodes="1:2", options=["--node-id", "a"])
    browser.await_text("#name", "train-7")
    browser.await_text("#state", "gathering")
    lost = daemon.agent("train-7", *command, nnodes="1:2", options=["--node-id", "b"])
    browser.await_text("#state", "running")
    browser.await_text("#tiles", "of 1–2")
    browser.await_text("#epochs", "Epoch 1, attempt 0")
    browser.await_text("#nodes", "b")
    browser.await_text("#readout", "rank 0: node ")
    assert browser.value("document.getElementById('failure').hidden")

    daemon.kill(lost)
    browser.await_text("#events", "lost")
    browser.await_text("#failure-title", "Why epoch 1 was stopped")
    browser.await_text("#epochs", "Epoch 2")

    gate.open()
    browser.await_text("#state", "failed, code 3")
    browser.await_text("#failure-title", "First failure: rank 0 on ")
    # As text: what a program writes is never markup.
    browser.await_text("#words", "RuntimeError: <b>CUDA</b> out of memory")
    fits_and_can_be_read(browser)
    gate.close()


# The text whose contrast with what is behind it is less than WCAG 2's AA asks for, with the ratio.
FAINT_TEXT = """(() => {
    const one = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        one.clearRect(0, 0, 1, 1);
        one.fillStyle = colour;
        one.fillRect(0, 0, 1, 1);
        return [...one.getImageData(0, 0, 1, 1).data];
    };
    const over = (top, below) => top.slice(0, 3).map((c, i) => (c * top[3] + below[i] * (255 - top[3])) / 255).concat(255);
    const ground = (e) => {
        const own = rgba(getComputedStyle(e).backgroundColor);
        return own[3] === 255 ? own : over(own, e.parentElement ? ground(e.parentElement) : rgba("Canvas"));
    };
    const light = (colour) => colour.slice(0, 3).map((c) => c / 255)
        .map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
    const faint = [];
    for (const e of document.querySelectorAll("body, body *")) {
        const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join("").trim();
        if (!text || !e.checkVisibility() || e.disabled) continue;
        const style = getComputedStyle(e), below = ground(e), ink = over(rgba(style.color), below);
        const [a, b] = [light(ink), light(below)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
        const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        if (ratio < (large ? 3 : 4.5)) faint.push(`${e.tagName}#${e.id}.${e.className} '${text}': ${ratio.toFixed(2)}`);
    }
    return faint;
})()"""


def fits_and_can_be_read(browser):
    """On a phone, a laptop and a 4K screen, light and dark."""
    for width, height in ((390, 844), (3840, 2160), (1280, 800)):
        for dark in (True, False):
            browser.look(width, height, dark=dark, mobile=width < 500)
            wide = browser.value("document.documentElement.scrollWidth")
            assert wide <= width, f"at {width} pixels it is {wide} wide"
            ground = browser.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
            assert (max(ground) < 64) if dark else (min(ground) > 192), (dark, ground)
            faint = browser.value(FAINT_TEXT)
            assert faint == [], f"{'dark' if dark else 'light'}, {width} pixels: {faint}"


def is_used_without_a_mouse(browser):
    """Every control has a name, and the strip of ranks tells what its cursor is at."""
    unnamed = browser.value("""[...document.querySelectorAll("button, input, canvas, a")].filter((e) =>
        !(e.getAttribute("aria-label") || (e.labels && e.labels[0] || e).textContent).trim()).map((e) => e.outerHTML)""")
    assert unnamed == [], unnamed
    browser.value("document.getElementById('ranks').focus()")
    for key, rank in (("End", 9999), ("ArrowLeft", 9998), ("Home", 0), ("ArrowRight", 1)):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        told = valuetext(browser)
        assert told.startswith(f"rank {rank}: node "), told


def valuetext(browser):
    return browser.value("document.getElementById('ranks').getAttribute('aria-valuetext')")


def pixel(browser, rank):
    """The colour of a rank's square."""
    return browser.value(f"""(() => {{
        const scale = devicePixelRatio, row = Math.floor({rank} / strip.columns), column = {rank} % strip.columns;
        const one = new OffscreenCanvas(1, 1).getContext("2d", {{ willReadFrequently: true }});
        one.drawImage(document.getElementById("ranks"), -(column + .4) * strip.cell * scale, -(row + .4) * strip.cell * scale);
        return [...one.getImageData(0, 0, 1, 1).data].join();
    }})()""")


def names_the_ranks_behind(browser, daemon):
    """Two of 64 ranks stay behind, on nodes of their own, while the others wait."""
    daemon.crowd("late", 8, 8, behind=2)
    browser.value("location.hash = 'job=late'")
    browser.await_text("#name", "late")
    browser.await_text("#missing-title", "Behind")
    # Rank 16 alone, and ranks 48 and 49 together.
    browser.await_text("#missing-list", "rank 16 on node")
    browser.await_text("#missing-list", "ranks 48-49 on node")
    behind = browser.text("#missing-list")
    assert "are 2 calls behind, for " in behind and ": in no call for " in behind, behind
    assert "after all_reduce #1041 [train.cpp:88]; 61 ranks have come to all_reduce #1043 [train.cpp:88]" in behind, behind
    browser.await_text("#foremost", "The foremost ranks have come to all_reduce #1043 [train.cpp:88].")
    browser.await_text("[data-job=late]", "3 behind")
    browser.await_text("#tiles", "3 behind")
    fits_and_can_be_read(browser)
    browser.await_text("#nodes tr", "2")  # Nodes that are behind come first.
    assert browser.text("#legend").startswith("waits for others"), browser.text("#legend")
    assert pixel(browser, 16) == pixel(browser, 48) != pixel(browser, 17) == pixel(browser, 0)

    for rank in (16, 48, 49, 16):
        press(browser, "#next-behind")
        assert browser.value("document.activeElement.id") == "ranks"
        told = valuetext(browser)
        assert told.startswith(f"rank {rank}: node ") and "; 2 calls behind, for " in told, told
    browser.value("document.getElementById('ranks').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert ", in all_reduce #1043 [train.cpp:88] for " in valuetext(browser), valuetext(browser)

    # By heartbeats all are alike.
    press(browser, "#view-heartbeat")
    assert browser.value("document.getElementById('view-heartbeat').getAttribute('aria-pressed')") == "true"
    browser.await_true("document.getElementById('legend').textContent.startsWith('last heartbeat')", "the heartbeats")
    assert browser.value("document.getElementById('next-behind').hidden")
    press(browser, "#view-lag")


def shows_ten_thousand_ranks(browser, daemon):
    daemon.crowd("large", 1250, 8, silent=2)
    browser.await_true("document.querySelector('[data-job=large]')", "the large job")
    browser.value("document.querySelector('[data-job=large] button').click()")
    browser.await_text("#name", "large")
    browser.await_text("#tiles", "10,000")
    browser.await_text("#missing-list", "has been silent for")
    browser.await_text("#nodes-note", "The 200 of 1,250 nodes")
    is_used_without_a_mouse(browser)
    fits_and_can_be_read(browser)


def is_no_other_site(browser, daemon):
    """A name of another site that leads here, as by DNS rebinding, shows nothing."""
    browser.open(daemon.url(host="rebound.example"))
    browser.await_text("body", "under this machine's loopback names only")


def press(browser, selector):
    """As by the keyboard: the focus is there, and Enter is pressed."""
    browser.value(f"document.querySelector('{selector}').focus()")
    key(browser)


def key(browser, name="Enter"):
    more = {"text": "\r"} if name == "Enter" else {}
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, **more,
                 windowsVirtualKeyCode={"Enter": 13, "Escape": 27}[name])
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)


def gives_token(browser, token):
    press(browser, "#operator")
    assert browser.value("document.activeElement.id") == "token"
    browser.call("Input.insertText", text=token)
    key(browser)


def confirms(browser, action, reason="", node=None):
    press(browser, f"#{action}")
    browser.await_true("document.getElementById('act-dialog').open", "what is to be confirmed")
    if node is not None:
        browser.value(f"document.getElementById('act-node').value = '{node}'")
    browser.value("document.getElementById('act-reason').focus()")
    browser.call("Input.insertText", text=reason)
    press(browser, "#act-do")


def acts_for_an_operator(browser, daemon, token):
    """By the keyboard alone. Nothing is done without a token, and nothing before it is confirmed."""
    gate = Gate()
    command = [sys.executable, "-c", WORKER, gate.path]
    for node in ("a", "b"):
        daemon.agent("train-8", *command, nnodes="1:2", options=["--node-id", node])
    browser.value("location.hash = 'job=train-8'")
    browser.await_text("#name", "train-8")
    browser.await_text("#state", "running")
    assert browser.value("document.getElementById('acts').hidden && document.getElementById('evict').hidden")

    gives_token(browser, "0123456789abcdef-wrong")
    confirms(browser, "stop")
    browser.await_text("#outcome", "train-8: this token is no operator's")
    assert browser.value("document.getElementById('acts').hidden")

    gives_token(browser, token)
    press(browser, "#stop")
    browser.await_text("#act-title", "Stop train-8?")
    key(browser, "Escape")
    browser.await_true("!document.getElementById('act-dialog').open", "no dialog any more")
    browser.await_true("document.activeElement.id === 'stop'", "the focus where it was")
    browser.await_text("#state", "running")

    confirms(browser, "evict", node="c")
    browser.await_text("#act-wrong", "the job has no node 'c' now")
    key(browser, "Escape")
    confirms(browser, "evict", "bad memory", node="b")
    browser.await_text("#outcome", "train-8: it counts as lost")
    browser.await_text("#events", "node b is lost: evicted by operator 'ada': bad memory")
    browser.await_text("#epochs", "Epoch 2")
    confirms(browser, "drain", "maintenance")
    browser.await_text("#outcome", "no epoch begins after epoch 2")
    confirms(browser, "stop", "<b>moved</b>")
    browser.await_text("#outcome", "train-8: the job ends with exit code 143")
    browser.await_text("#state", "failed, code 143")
    browser.await_text("#failure-sentence", "stopped by operator 'ada': <b>moved</b>")
    confirms(browser, "remove")
    browser.await_true("!document.querySelector('[data-job=train-8]')", "the jobs without train-8")
    # The token is nowhere but in a variable.
    assert browser.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    assert token not in browser.value("document.documentElement.outerHTML")
    press(browser, "#operator")
    assert browser.value("document.getElementById('acts').hidden")
    gate.close()
    # The browser itself says that one request was denied.
    assert len(browser.console) == 1 and "401" in browser.console[0][1], browser.console
    browser.console.clear()


def says_that_the_daemon_is_gone(browser, daemon):
    browser.open(daemon.url())
    browser.await_text("#name", "large")
    daemon.process.kill()
    browser.await_true("!document.getElementById('stale').hidden", "that the daemon is gone")
    assert "The daemon does not answer." in browser.text("#stale"), browser.text("#stale")
    browser.await_text("#link-text", "reconnecting")
    # What was known is still there.
    assert browser.text("#name") == "large"


def main(build):
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("skipped: there is no Chromium (package chromium)")
        return SKIPPED
    token = secrets.token_hex(16)
    with tempfile.NamedTemporaryFile("w", prefix="dlaunch-operators-") as operators:
        operators.write(f"ada {token}\n")
        operators.flush()
        daemon = Daemon(build, "--http-token-file", operators.name)
    browser = None
    try:
        browser = Chromium(program, "--host-resolver-rules=MAP rebound.example 127.0.0.1")
        browser.look(1280, 800)
        follows_a_job(browser, daemon)
        shows_ten_thousand_ranks(browser, daemon)
        names_the_ranks_behind(browser, daemon)
        assert browser.console == [], browser.console
        acts_for_an_operator(browser, daemon, token)
        is_no_other_site(browser, daemon)
        says_that_the_daemon_is_gone(browser, daemon)
    finally:
        if browser:
            browser.close()
        daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
