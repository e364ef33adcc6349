"""dlaunch.run() in the cells of a notebook, which a real Jupyter kernel runs: what they show, how they fail, and how they
are interrupted."""
import os
import pathlib
import re
import tempfile

from jupyter_client.manager import KernelManager

LIMIT = 100


class Notebook:
    def __init__(self, folder):
        self.manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        self.manager.start_kernel(cwd=folder)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, cell, when=None, then=None):
        """The outcome, what the cell shows, and its traceback. `then` is called once, when that much has been shown."""
        shown, trace, waited = [], [], [when]

        def take(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] == "execute_result":
                shown.append(content["data"]["text/plain"])
            elif message["msg_type"] == "error":
                trace.extend(re.sub(r"\x1b\[[0-9;]*m", "", line) for line in content["traceback"])
            if waited[0] is not None and re.search(waited[0], "".join(shown)):
                waited[0] = None
                then()

        outcome = self.client.execute_interactive(cell, output_hook=take, timeout=LIMIT)["content"]
        return outcome.get("ename", outcome["status"]), "".join(shown), "\n".join(trace)


def works(notebook, folder):
    outcome, shown, trace = notebook.run("""
import dlaunch, os, signal

base = 10

class Parcel:
    def __init__(self, content):
        self.content = content

def square(parcel):
    with dlaunch.init() as world:
        print("here is rank", world.rank)
        return Parcel(world.comm.all_gather_object((base + world.rank) ** parcel.content))

[type(each) is Parcel and each.content for each in dlaunch.run(square, Parcel(2), nproc=2)]
""")
    assert outcome == "ok" and shown.endswith("[[100, 121], [100, 121]]"), (outcome, shown, trace)
    assert {"[0] here is rank 0", "[1] here is rank 1"} <= set(shown.splitlines()), shown


def shows_progress(notebook, folder):
    """What a rank prints is there while it runs: it goes on when this program has seen it."""
    os.mkfifo(f"{folder}/seen")
    outcome, shown, trace = notebook.run("""
def steps():
    print("the first step")
    with open("seen") as seen:
        return seen.read()

dlaunch.run(steps, nproc=1)
""", "the first step", lambda: pathlib.Path(f"{folder}/seen").write_text("seen at once"))
    assert outcome == "ok" and shown.endswith("['seen at once']"), (outcome, shown, trace)


def fails(notebook, folder):
    outcome, shown, trace = notebook.run("""
def fails():
    with dlaunch.init() as world:
        if world.rank == 1:
            raise ValueError("no data")
        world.comm.barrier()

dlaunch.run(fails, nproc=2)
""")
    assert outcome == "RunError" and "cause : rank 1 exited with 1: ValueError: no data" in shown, (outcome, shown)
    assert re.search(r"RunError: run: rank 1 .*exited with 1\n\nTraceback .*:\n  File .*, line 4, in fails\n"
                     "(.*\n)?ValueError: no data", trace), trace
    outcome, _, trace = notebook.run("dlaunch.run(fails, nproc=2, options=['--nonsense'])")
    assert outcome == "MisuseError" and "unknown option --nonsense" in trace, trace


def is_interrupted(notebook, folder):
    outcome, shown, trace = notebook.run("""
def waits():
    with dlaunch.init() as world:
        world.comm.barrier()
        print("pid", os.getpid())
        signal.pause()

dlaunch.run(waits, nproc=2)
""", r"(?s)pid \d+\n.*pid \d+\n", notebook.manager.interrupt_kernel)
    assert outcome == "KeyboardInterrupt", (outcome, shown, trace)
    pids = re.findall(r"pid (\d+)", shown)
    assert len(pids) == 2 and not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], shown
    outcome, shown, trace = notebook.run("dlaunch.run(lambda: 7, nproc=2)")
    assert outcome == "ok" and shown == "[7, 7]", (outcome, shown, trace)


with tempfile.TemporaryDirectory() as own:
    os.environ |= {"IPYTHONDIR": f"{own}/ipython", "JUPYTER_RUNTIME_DIR": f"{own}/runtime", "JUPYTER_NO_CONFIG": "1"}
    opened = Notebook(own)
    try:
        for part in (works, shows_progress, fails, is_interrupted):
            part(opened, own)
    finally:
        opened.close()
print("all is as it should be")
