"""run(): a function on every rank of a job of its own."""
from __future__ import annotations

import json
import operator
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .._library import PREFIX
from ..errors import MisuseError

_WORKER = pathlib.Path(__file__).with_name("worker.py")
_MAIN = "__dlaunch_main__"  # What ranks call the program's own file; see worker.py.
_PREEMPTED = 75  # The launcher's exit code; see docs/operations.md.
# What run() and the pytest plugin tell the launcher themselves.
_OWN = ("--nproc-per-node", "--standalone", "--ends-with-stdin", "--no-python", "--module", "-m", "--run-path",
        "--nnodes", "--hosts", "--hostfile", "--dry-run")


class RunError(RuntimeError):
    """A job that run() started has failed. str() has the traceback of the rank that caused it.

    rank        that rank; None where no rank is to blame
    exit_code   the job's
    errors      the exceptions that ranks raised, by rank, as far as they can be pickled; that rank's is __cause__
    """

    def __init__(self, message: str, rank: Optional[int], exit_code: int, errors: Dict[int, BaseException]) -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code
        self.errors = errors


def run(function: Callable[..., Any], *args: Any, nproc: int, options: Sequence[str] = ()) -> List[Any]:
    """Calls function(*args) on `nproc` ranks, each a process of its own, and gives what they returned, by rank.

    The function is one that a module defines; or the program's own file, which the ranks then read, so its last lines
    stand behind `if __name__ == "__main__":`. A rank joins the others by dlaunch.init(). What ranks print appears as
    they print it; `options` are more options of dlaunch. No rank outlives the call or this process. Raises RunError.
    """
    if getattr(sys.modules["__main__"], "_dlaunch_reads_program", False):
        raise MisuseError("run: the ranks read the program's own file, which starts a job as it is read; put the lines "
                          "that call run() behind `if __name__ == \"__main__\":`", call="run")
    nproc, more = checked("run", nproc, options, ("--result",))
    with tempfile.TemporaryDirectory(prefix="dlaunch-run-") as folder:
        _write_task(pathlib.Path(folder), function, args)
        command = [str(PREFIX / "bin" / "dlaunch"), "--standalone", "--nproc-per-node", str(nproc), "--ends-with-stdin",
                   "--result", f"{folder}/result.json", *more, "--no-python", sys.executable, "-u", str(_WORKER),
                   folder]
        exit_code = run_command(command)
        sys.modules[_MAIN] = sys.modules["__main__"]
        return _results(pathlib.Path(folder), nproc, exit_code)


def checked(call: str, nproc: Any, options: Any, own: Sequence[str] = ()) -> Tuple[int, List[str]]:
    """The number of ranks and the launcher's options. Raises MisuseError, in the name of `call`."""
    try:
        count = operator.index(nproc)
    except TypeError:
        count = 0
    if count < 1:
        raise MisuseError(f"{call}: nproc is the number of ranks, 1 or more, not {nproc!r}", call=call)
    given = [] if isinstance(options, str) else list(options)
    if isinstance(options, str) or not all(isinstance(option, (str, os.PathLike)) for option in given):
        raise MisuseError(f"{call}: options is a list of strings, such as [\"--bind\", \"core\"], not {options!r}",
                          call=call)
    texts = [os.fspath(option) for option in given]
    for text in texts:
        if text.partition("=")[0].replace("_", "-") in (*_OWN, *own):
            raise MisuseError(f"{call}: {text.partition('=')[0]} cannot be among the options, as dlaunch is given it "
                              "already", call=call)
    return count, texts


def run_command(command: Sequence[str]) -> int:
    """Runs the launcher, whose job ends with this process: its standard input is a pipe, which does, too."""
    with subprocess.Popen(command, stdin=subprocess.PIPE) as launcher:
        try:
            return launcher.wait()
        except BaseException:
            # Ctrl-C has reached the launcher as well. It ends at the end of its input in any case.
            assert launcher.stdin is not None
            launcher.stdin.close()
            launcher.wait()
            raise


def _write_task(folder: pathlib.Path, function: Callable[..., Any], args: Tuple[Any, ...]) -> None:
    if not callable(function):
        raise MisuseError(f"run: ranks cannot call {function!r}; pass a function that a module defines", call="run")
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if file is not None and file.startswith("<"):
        file = None  # As "<stdin>", which is no file that ranks could read.
    if getattr(function, "__module__", None) == "__main__" and spec is None and file is None:
        raise MisuseError(f"run: {_name(function)} is defined in an interactive session, where ranks cannot find it; "
                          "write it into a module, and import that", call="run")
    try:
        call = pickle.dumps((function, args))
    except Exception as error:
        raise _unpicklable(function, args, error) from None
    task = {"path": [str(entry) for entry in sys.path], "module": spec.name if spec is not None else None,
            "file": os.path.abspath(file) if file is not None else None}
    (folder / "task.json").write_text(json.dumps(task))
    (folder / "call").write_bytes(call)


def _unpicklable(function: Callable[..., Any], args: Tuple[Any, ...], error: Exception) -> MisuseError:
    for at, arg in enumerate(args):
        try:
            pickle.dumps(arg)
        except Exception as why:
            return MisuseError(f"run: ranks get {_name(function)}'s arguments by pickle, which says of argument "
                               f"{at + 1}, of type {type(arg).__name__}: {why}", call="run")
    return MisuseError(f"run: ranks get {_name(function)} by pickle, which says: {error}; pass a function that a "
                       "module defines by its name", call="run")


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))


def _results(folder: pathlib.Path, nproc: int, exit_code: int) -> List[Any]:
    told: Dict[int, Any] = {}
    for rank in range(nproc):
        path = folder / f"rank{rank}"
        if path.exists():
            told[rank] = pickle.loads(path.read_bytes())
    misuse = [one["misuse"] for one in told.values() if "misuse" in one]
    if misuse:
        raise MisuseError(misuse[0], call="run")
    short = [rank for rank in range(nproc) if "value" not in told.get(rank, {})]
    if exit_code == 0 and not short:
        return [pickle.loads(told[rank]["value"]) for rank in range(nproc)]
    errors = {rank: pickle.loads(one["error"]) for rank, one in told.items() if one.get("error") is not None}
    cause, reason = _cause(folder, exit_code, short)
    message = f"run: {reason}"
    if cause is not None and "traceback" in told.get(cause, {}):
        message += "\n\n" + told[cause]["traceback"].rstrip()
    raise RunError(message, cause, exit_code, errors) from errors.get(cause if cause is not None else -1)


def _cause(folder: pathlib.Path, exit_code: int, short: Sequence[int]) -> Tuple[Optional[int], str]:
    """The rank that the launcher names, and its sentence. `short` are the ranks whose function has not returned."""
    try:
        result = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return None, f"the launcher ended with {exit_code}, and told no more than it printed"
    attempts = result.get("attempts") or [{}]
    cause, reason = attempts[-1].get("root_cause"), result.get("reason")
    if reason:
        return cause, reason
    if exit_code == 0 and short:
        # That is no failure to the launcher.
        others = f", and so did {len(short) - 1} more" if len(short) > 1 else ""
        return short[0], f"rank {short[0]} exited before its function returned{others}"
    if exit_code == _PREEMPTED:
        return cause, (f"dlaunch stopped the ranks and ended with {exit_code}: the job's deadline came, or the cluster "
                       "stopped it")
    return cause, f"dlaunch stopped the ranks, and ended with {exit_code}"
