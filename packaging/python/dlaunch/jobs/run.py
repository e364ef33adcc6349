"""run(): a function on every rank of a job of its own."""
from __future__ import annotations

import json
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
    stand behind `if __name__ == "__main__":`. A rank joins the others by dlaunch.init(). What ranks print appears as they print it;
    `options` are more options of dlaunch. No rank outlives the call or this process. Raises RunError.
    """
    if nproc < 1:
        raise MisuseError(f"run: nproc is the number of ranks, 1 or more, not {nproc}", call="run")
    with tempfile.TemporaryDirectory(prefix="dlaunch-run-") as folder:
        _write_task(pathlib.Path(folder), function, args)
        command = [str(PREFIX / "bin" / "dlaunch"), "--standalone", "--nproc-per-node", str(nproc), "--ends-with-stdin",
                   "--result", f"{folder}/result.json", *options, "--no-python", sys.executable, "-u",
                   str(_WORKER), folder]
        exit_code = run_command(command)
        sys.modules["__dlaunch_main__"] = sys.modules["__main__"]  # What ranks call it; see worker.py.
        return _results(pathlib.Path(folder), nproc, exit_code)


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
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if getattr(function, "__module__", None) == "__main__" and spec is None and file is None:
        raise MisuseError(f"run: {_name(function)} is defined in an interactive session, where ranks cannot find it; "
                          "write it into a module, and import that", call="run")
    try:
        call = pickle.dumps((function, args))
    except Exception as error:
        raise MisuseError(f"run: ranks get {_name(function)} and its arguments by pickle, which says: {error}; pass a "
                          "function that a module defines by its name", call="run") from None
    task = {"path": sys.path, "module": spec.name if spec is not None else None,
            "file": os.path.abspath(file) if file is not None else None}
    (folder / "task.json").write_text(json.dumps(task))
    (folder / "call").write_bytes(call)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))


def _results(folder: pathlib.Path, nproc: int, exit_code: int) -> List[Any]:
    told: Dict[int, Any] = {}
    for rank in range(nproc):
        path = folder / f"rank{rank}"
        if path.exists():
            told[rank] = pickle.loads(path.read_bytes())
    if exit_code == 0 and len(told) == nproc:
        return [pickle.loads(told[rank]["value"]) for rank in range(nproc)]
    errors = {rank: pickle.loads(one["error"]) for rank, one in told.items() if one.get("error") is not None}
    cause, reason = _cause(folder, exit_code)
    message = f"run: {reason}"
    if cause is not None and "traceback" in told.get(cause, {}):
        message += "\n\n" + told[cause]["traceback"].rstrip()
    raise RunError(message, cause, exit_code, errors) from errors.get(cause if cause is not None else -1)


def _cause(folder: pathlib.Path, exit_code: int) -> Tuple[Optional[int], str]:
    """The rank that the launcher names, and its sentence."""
    try:
        result = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return None, f"the launcher ended with {exit_code}, and told no more than it printed"
    attempts = result.get("attempts") or [{}]
    reason = result.get("reason") or f"a rank ended before its function returned, and the job with {exit_code}"
    return attempts[-1].get("root_cause"), reason
