"""run(): a function on every rank of a job of its own."""
from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import operator
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, SupportsIndex, Tuple

from .._library import PREFIX
from ..errors import MisuseError

_WORKER = pathlib.Path(__file__).with_name("worker.py")
_MAIN = "__dlaunch_main__"  # What ranks call the program's own file; see worker.py.
_FOLDER = "dlaunch-run-"
_NEW_S = 10  # Such a folder may not be locked yet.
_USAGE = 64  # The launcher's exit codes; see docs/operations.md.
_PREEMPTED = 75
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


def run(function: Callable[..., Any], *args: Any, nproc: SupportsIndex, options: Sequence[str] = ()) -> List[Any]:
    """Calls function(*args) on `nproc` ranks, each a process of its own, and gives what they returned, by rank.

    The function is one that a module defines; or the program's own file, which the ranks then read, so its last lines
    stand behind `if __name__ == "__main__":`. With cloudpickle installed it may be any, also a lambda or a cell's of
    a notebook. A rank joins the others by dlaunch.init(). What ranks print appears as they print it; `options` are
    more options of dlaunch. No rank outlives the call or this process. Raises RunError.
    """
    if getattr(sys.modules["__main__"], "_dlaunch_reads_program", False):
        raise MisuseError("run: the ranks read the program's own file, which starts a job as it is read; put the lines "
                          "that call run() behind `if __name__ == \"__main__\":`", call="run")
    nproc, more = checked("run", nproc, options, ("--result",))
    with _own_folder() as folder:
        _write_task(pathlib.Path(folder), function, args)
        command = [str(PREFIX / "bin" / "dlaunch"), "--standalone", "--nproc-per-node", str(nproc), "--ends-with-stdin",
                   "--result", f"{folder}/result.json", *more, "--no-python", sys.executable, "-u", str(_WORKER),
                   folder]
        exit_code = run_command(command)
        sys.modules[_MAIN] = sys.modules["__main__"]
        if exit_code == _USAGE and not (pathlib.Path(folder) / "result.json").exists():
            raise MisuseError(f"run: the options {more} are refused: {_refusal_of(command)}", call="run")
        return _results(pathlib.Path(folder), nproc, exit_code)


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """For the task, and what ranks return. It is locked, so that what a killed process has left is known as such."""
    _remove_left_folders()
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield folder
        finally:
            os.close(lock)


def _remove_left_folders() -> None:
    for path in pathlib.Path(tempfile.gettempdir()).glob(_FOLDER + "*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            found = os.fstat(lock)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _NEW_S:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # Its process lives.
        finally:
            os.close(lock)


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
    """Runs the launcher, whose job ends with this process, which started it and holds its standard input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE) as launcher:
        try:
            return launcher.wait()
        except BaseException:
            # Ctrl-C has reached the launcher as well. A process that was forked here may hold its input open.
            launcher.terminate()
            launcher.wait()
            raise


def _refusal_of(command: Sequence[str]) -> str:
    """What the launcher says of a line that it does not take, and has printed where a notebook may not show it."""
    said = subprocess.run([command[0], "--dry-run", *command[1:]], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True).stderr.strip()
    return said[len("dlaunch: "):] if said.startswith("dlaunch: ") else said


def _write_task(folder: pathlib.Path, function: Callable[..., Any], args: Tuple[Any, ...]) -> None:
    if not callable(function):
        raise MisuseError(f"run: ranks cannot call {function!r}; pass a function that a module defines", call="run")
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if file is not None and file.startswith("<"):
        file = None  # As "<stdin>", which is no file that ranks could read.
    call, by_value = _pickled(function, args, spec is None and file is None)
    task = {"path": [str(entry) for entry in sys.path], "module": spec.name if spec is not None else None,
            "file": os.path.abspath(file) if file is not None else None, "by_value": by_value}
    (folder / "task.json").write_text(json.dumps(task))
    (folder / "call").write_bytes(call)


def _pickled(function: Callable[..., Any], args: Tuple[Any, ...], is_interactive: bool) -> Tuple[bytes, bool]:
    """The call as the ranks get it, and whether what the program defines is in it. cloudpickle does that, for what
    pickle alone cannot: what the ranks find in no module."""
    by_value: Any = None
    with contextlib.suppress(ImportError):
        by_value = importlib.import_module("cloudpickle")
    if is_interactive and by_value is None and getattr(function, "__module__", None) == "__main__":
        raise MisuseError(f"run: {_name(function)} is defined in an interactive session, where ranks cannot find it; "
                          "install cloudpickle, which sends it to them (pip install cloudpickle), or write it into a "
                          "module, as %%writefile does in a notebook, and import that", call="run")
    if not is_interactive or by_value is None:
        try:
            return pickle.dumps((function, args)), False
        except Exception as error:
            if by_value is None:
                raise _unpicklable(pickle.dumps, function, args, error) from None
    try:
        return by_value.dumps((function, args)), True
    except Exception as error:
        raise _unpicklable(by_value.dumps, function, args, error) from None


def _unpicklable(dumps: Callable[[Any], bytes], function: Callable[..., Any], args: Tuple[Any, ...],
                 error: Exception) -> MisuseError:
    for at, arg in enumerate(args):
        try:
            dumps(arg)
        except Exception as why:
            return MisuseError(f"run: ranks get {_name(function)}'s arguments by pickle, which says of argument "
                               f"{at + 1}, of type {type(arg).__name__}: {why}", call="run")
    return MisuseError(f"run: ranks get {_name(function)} by pickle, which says: {error}; pass a function that a "
                       "module defines by its name, or pip install cloudpickle, which sends any", call="run")


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
        return [_value(told[rank], rank, exit_code) for rank in range(nproc)]
    errors: Dict[int, BaseException] = {}
    for rank, one in told.items():
        with contextlib.suppress(Exception):  # This process may lack its class; the traceback tells it all the same.
            if one.get("error") is not None:
                errors[rank] = pickle.loads(one["error"])
    cause, reason = _cause(folder, exit_code, short)
    message = f"run: {reason}"
    if cause is not None and "traceback" in told.get(cause, {}):
        message += "\n\n" + told[cause]["traceback"].rstrip()
    raise RunError(message, cause, exit_code, errors) from errors.get(cause if cause is not None else -1)


def _value(told: Dict[str, Any], rank: int, exit_code: int) -> Any:
    try:
        return pickle.loads(told["value"])
    except Exception as error:
        raise RunError(f"run: what rank {rank} returned, of type {told['type']}, cannot be unpickled: "
                       f"{type(error).__name__}: {error}", rank, exit_code, {}) from error


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
