"""A rank of run(): worker.py FOLDER. Finds the function, calls it, and writes down what it returned or raised."""
import contextlib
import importlib
import json
import os
import pathlib
import pickle
import runpy
import sys
import traceback
import types
from typing import Any, Dict, Optional

# What the program's __name__ is here, so that it does not start its own job again. What it defines is known by this
# name, and run() knows it, too.
_MAIN = "__dlaunch_main__"
# While the program's own file is read, when run() must start no job. run() finds it in this module, then __main__.
_dlaunch_reads_program = False


def _main_module(task: Dict[str, Any]) -> None:
    """The program's own file, as the module that pickle looks its functions up in."""
    global _dlaunch_reads_program
    _dlaunch_reads_program = True
    if task["module"] is not None:
        names = runpy.run_module(task["module"], run_name=_MAIN, alter_sys=True)
    elif task["file"] is not None:
        names = runpy.run_path(task["file"], run_name=_MAIN)
    else:
        names = {}
    _dlaunch_reads_program = False
    if not names:
        return
    main = types.ModuleType(_MAIN)
    main.__dict__.update(names)
    sys.modules["__main__"] = sys.modules[_MAIN] = main


def _write(path: pathlib.Path, told: Dict[str, Any]) -> None:
    whole = path.with_suffix(".part")
    whole.write_bytes(pickle.dumps(told))
    whole.rename(path)


def _dumps(task: Dict[str, Any], value: Any) -> bytes:
    """As the call came: what a session has defined goes back to it in the same way."""
    if task["by_value"]:
        return bytes(importlib.import_module("cloudpickle").dumps(value))
    return pickle.dumps(value)


def _told_value(task: Dict[str, Any], value: Any) -> Dict[str, Any]:
    kind = type(value).__name__
    try:
        return {"value": _dumps(task, value), "type": kind}
    except Exception as error:
        raise TypeError(f"what the function returned, of type {kind}, cannot be pickled: {error}") from error


def _pickled_error(task: Dict[str, Any], error: BaseException) -> Optional[bytes]:
    try:
        data = _dumps(task, error)
        pickle.loads(data)
        return data
    except Exception:  # Its class may do anything; the traceback tells it all the same.
        return None


def _traceback_of(error: BaseException) -> str:
    """Without this file's own frame, in which the function is called."""
    trace = error.__traceback__
    below = trace.tb_next if trace is not None else None
    return "".join(traceback.format_exception(type(error), error, below or trace))


def _tell_launcher(error: BaseException) -> None:
    """What was raised in one line, for the failure's block; run() shows the traceback. One of an attempt that others may
    follow is printed here, as none else would show it."""
    variables = os.environ
    if variables.get("TORCHELASTIC_ERROR_FILE"):
        said = "".join(traceback.format_exception_only(type(error), error)).strip()
        with contextlib.suppress(OSError):
            pathlib.Path(variables["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": {"message": said}}))
    is_last = variables.get("TORCHELASTIC_RESTART_COUNT", "0") == variables.get("TORCHELASTIC_MAX_RESTARTS", "0")
    if is_last and sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda *_: None


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    mine = folder / f"rank{os.environ['RANK']}"
    # What an attempt before this one has written tells nothing of this one.
    if mine.exists():
        mine.unlink()
    task = json.loads((folder / "task.json").read_text())
    sys.path[:] = task["path"]
    sys.argv[:] = [task["file"] or ""]
    try:
        call = (folder / "call").read_bytes()
        if not task["by_value"] and (b"__main__" in call or _MAIN.encode() in call):
            _main_module(task)
        function, args = pickle.loads(call)
        _write(mine, _told_value(task, function(*args)))
    except BaseException as error:
        if _dlaunch_reads_program and getattr(error, "call", None) == "run":
            # The program's caller says it once, for all ranks.
            _write(mine, {"misuse": str(error)})
            sys.exit(1)
        _write(mine, {"error": _pickled_error(task, error), "traceback": _traceback_of(error)})
        _tell_launcher(error)
        raise


if __name__ == "__main__":
    main()
