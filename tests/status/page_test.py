"""The page at / in a real browser: it follows a job that gathers, runs, loses a node and fails, and a job of 10,000
ranks, without an error on its console:  page_test.py BUILD_DIR"""
import shutil
import sys

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
    gate.close()


def is_used_without_a_mouse(browser):
    """Every control has a name, and the strip of ranks tells what its cursor is at."""
    unnamed = browser.value("""[...document.querySelectorAll("button, input, canvas, a")].filter((e) =>
        !(e.getAttribute("aria-label") || e.innerText || e.textContent).trim()).map((e) => e.outerHTML)""")
    assert unnamed == [], unnamed
    browser.value("document.getElementById('ranks').focus()")
    for key, node in (("End", 1249), ("ArrowLeft", 1248), ("Home", 0), ("ArrowRight", 1)):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        told = browser.value("document.getElementById('ranks').getAttribute('aria-valuetext')")
        assert told.startswith(f"ranks {8 * node}–{8 * node + 7}: node "), told


def shows_ten_thousand_ranks(browser, daemon):
    daemon.crowd("large", 1250, 8, silent=2)
    browser.await_true("document.querySelector('[data-job=large]')", "the large job")
    browser.value("document.querySelector('[data-job=large] button').click()")
    browser.await_text("#name", "large")
    browser.await_text("#tiles", "10,000")
    browser.await_text("#missing-list", "has been silent for")
    browser.await_text("#nodes-note", "The 200 of 1,250 nodes")
    is_used_without_a_mouse(browser)
    for width, height in ((390, 844), (1280, 800), (3840, 2160)):
        browser.look(width, height, mobile=width < 500)
        wide = browser.value("document.documentElement.scrollWidth")
        assert wide <= width, f"at {width} pixels it is {wide} wide"


def is_no_other_site(browser, daemon):
    """A name of another site that leads here, as by DNS rebinding, shows nothing."""
    browser.open(daemon.url(host="rebound.example"))
    browser.await_text("body", "under this machine's loopback names only")


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
    daemon = Daemon(build)
    browser = None
    try:
        browser = Chromium(program, "--host-resolver-rules=MAP rebound.example 127.0.0.1")
        browser.look(1280, 800)
        follows_a_job(browser, daemon)
        shows_ten_thousand_ranks(browser, daemon)
        assert browser.console == [], browser.console
        is_no_other_site(browser, daemon)
        says_that_the_daemon_is_gone(browser, daemon)
    finally:
        if browser:
            browser.close()
        daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
