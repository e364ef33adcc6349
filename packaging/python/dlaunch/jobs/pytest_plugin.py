"""@pytest.mark.dlaunch(nproc=2): such a test runs on every rank of a job of its own.

The session that pytest was started as starts the job; each rank runs pytest with that one test, fixtures and all. The
test has passed where it has on all ranks.
"""
from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import pathlib
import sys
import tempfile
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

import dlaunch

from .._library import PREFIX
from .pytest_options import of_ranks
from .run import checked, run_command

_FOLDER = "DLAUNCH_PYTEST_FOLDER"  # Set on the ranks.
_DEADLINE = "DLAUNCH_PYTEST_DEADLINE"  # Likewise, where the session ends the test at a time of the monotonic clock.
_STRICT = "[XPASS(strict)]"  # What the text of a test that should have failed begins with.
_DEADLINE_MARGIN = 2.0  # Seconds.
# What a rank raises because another one has failed.
_CONSEQUENCES = ("dlaunch.PeerLostError", "dlaunch.AbortedError", "dlaunch.RevokedError")


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "dlaunch(nproc, options=()): run the test on nproc ranks, which dlaunch starts "
                                       "with these options")
    if _FOLDER in os.environ and _path().exists():
        _path().unlink()  # Of an attempt before this one.
    if _DEADLINE in os.environ:
        config.add_cleanup(_Stacks(config).disarm)


@pytest.fixture
def dlaunch_world() -> Iterator[dlaunch.World]:
    """The world of a test that is marked with dlaunch, joined and finalized."""
    with dlaunch.init() as world:
        yield world


class _Stacks:
    """On a rank: shows where its threads are a little before the session's pytest-timeout ends the test."""

    def __init__(self, config: Any) -> None:
        self._stderr = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)  # Before it is captured.
        config.pluginmanager.register(self)

    def pytest_runtest_logstart(self) -> None:
        left = float(os.environ[_DEADLINE]) - time.monotonic()
        faulthandler.dump_traceback_later(max(left, 0.01), file=self._stderr)

    def pytest_runtest_logfinish(self) -> None:
        self.disarm()

    def disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()


def _run_marked(item: Any, nextitem: Any) -> Optional[bool]:
    mark = item.get_closest_marker("dlaunch")
    # With --setup-only no test runs, so pytest shows this one's fixtures as any other's.
    if mark is None or _FOLDER in os.environ or item.config.getoption("setuponly", False):
        return None
    more: Dict[str, Any] = {}
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    report = _report(item, "call", lambda: _run_on_ranks(item, mark, more))
    report.__dict__.update(more)
    item.ihook.pytest_runtest_logreport(report=report)
    # The item itself was not set up here, but what the test before shares with this one or the next may be.
    following = None if item.session.shouldfail or item.session.shouldstop else nextitem
    report = _report(item, "teardown", lambda: item.session._setupstate.teardown_exact(following))
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


# No decorator: old releases of pluggy have no types, and mypy takes what they decorate for untyped.
pytest_runtest_protocol = pytest.hookimpl(tryfirst=True)(_run_marked)


def _report(item: Any, when: Any, function: Callable[[], None]) -> Any:
    """Reports a phase. What it prints is shown as a test's output is: below a failure, or at once with -s."""
    manager = item.config.pluginmanager.getplugin("capturemanager")
    with contextlib.nullcontext() if manager is None else manager.item_capture(when, item):
        call = pytest.CallInfo.from_call(function, when)
    # Only now, as old releases of pytest keep capturing where an exception passes by.
    if call.excinfo is not None and isinstance(call.excinfo.value, (KeyboardInterrupt, pytest.exit.Exception)):
        raise call.excinfo.value
    return item.ihook.pytest_runtest_makereport(item=item, call=call)


def pytest_runtest_logreport(report: Any) -> None:
    """On a rank: writes down what became of each phase, the worst of which counts."""
    if _FOLDER not in os.environ:
        return
    expected = getattr(report, "wasxfail", None)
    if report.outcome == "passed" and report.when != "call":
        return
    told = {"outcome": report.outcome, "text": str(report.longrepr or ""), "where": None, "wasxfail": expected,
            "crash": _crash_of(report), "time": time.monotonic(), "warnings": [], "properties": report.user_properties}
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        path, line, told["text"] = report.longrepr
        told["where"] = [str(path), line]
    if report.outcome == "failed":
        told["text"] += "".join(f"\n---- {name} ----\n{text.rstrip()}" for name, text in report.sections)
    before = _told()
    if before is None or report.outcome == "failed":
        if before is not None and before["outcome"] == "failed":
            told.update(text=before["text"] + "\n" + told["text"], crash=before["crash"], time=before["time"])
        _tell(told)


def _crash_of(report: Any) -> str:
    """What went wrong, in a line: as pytest's summary has it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return next((line.strip() for line in text.splitlines() if line.strip()), report.outcome)


def pytest_warning_recorded(warning_message: Any, when: str) -> None:
    """On a rank: writes down a warning of the test. Those of its collection the session has itself."""
    told = _told() if _FOLDER in os.environ and when == "runtest" else None
    if told is not None:
        kind = warning_message.category
        told["warnings"].append([str(warning_message.message), kind.__module__, kind.__qualname__,
                                 warning_message.filename, warning_message.lineno])
        _tell(told)


def pytest_keyboard_interrupt(excinfo: Any) -> None:
    """On a rank: writes down that pytest.exit() was called, which ends the whole session."""
    if _FOLDER in os.environ and isinstance(excinfo.value, pytest.exit.Exception):
        _tell({"outcome": "exit", "text": str(excinfo.value.msg), "code": excinfo.value.returncode})


def _told(folder: Optional[pathlib.Path] = None, rank: Optional[int] = None) -> Optional[Dict[str, Any]]:
    """What a rank has written down, this one unless told otherwise."""
    path = _path(folder, rank)
    told: Optional[Dict[str, Any]] = json.loads(path.read_text()) if path.exists() else None
    return told


def _tell(told: Dict[str, Any]) -> None:
    whole = _path().with_suffix(".part")
    whole.write_text(json.dumps(told, default=str))
    whole.rename(_path())


def _path(folder: Optional[pathlib.Path] = None, rank: Optional[int] = None) -> pathlib.Path:
    return (folder or pathlib.Path(os.environ[_FOLDER])) / f"rank{os.environ['RANK'] if rank is None else rank}"


def _run_on_ranks(item: Any, mark: Any, more: Dict[str, Any]) -> None:
    """Raises what has become of the test. `more` are members of its report that pytest does not make of that."""
    nproc, options = _asked(item, *mark.args, **mark.kwargs)
    with tempfile.TemporaryDirectory(prefix="dlaunch-pytest-") as folder:
        command = [str(PREFIX / "bin" / "dlaunch"), "--standalone", "--nproc-per-node", str(nproc), "--ends-with-stdin",
                   "--env", f"{_FOLDER}={folder}", "--env", "PYTEST_ADDOPTS=", *_deadline_of(item), "--cwd",
                   str(item.config.invocation_params.dir), *options, "--no-python", sys.executable, "-u", "-m",
                   "pytest", *of_ranks(item.config), f"{item.path}::{item.nodeid.partition('::')[2]}"]
        exit_code = run_command(command)
        told: Dict[int, Dict[str, Any]] = {}
        for rank in range(nproc):
            one = _told(pathlib.Path(folder), rank)
            if one is not None:
                told[rank] = one
        _warn(told, nproc)
        item.user_properties.extend(_properties(told))
        _judge(told, nproc, exit_code, more)


def _deadline_of(item: Any) -> List[str]:
    """Options that tell the ranks of the time at which pytest-timeout ends the test here, a little before it."""
    limit = getattr(item.config, "_env_timeout", None)
    mark = item.get_closest_marker("timeout")
    if mark is not None:
        limit = mark.kwargs.get("timeout", mark.args[0] if mark.args else limit)
    if not isinstance(limit, (int, float)) or limit <= 0 or not item.config.pluginmanager.hasplugin("timeout"):
        return []
    return ["--env", f"{_DEADLINE}={time.monotonic() + limit - min(limit / 4, _DEADLINE_MARGIN)}"]


def _warn(told: Dict[int, Dict[str, Any]], nproc: int) -> None:
    """Warns of what ranks were warned of, once where all were."""
    found: Dict[Tuple[Any, ...], List[int]] = {}
    for rank, one in told.items():
        for warning in one.get("warnings", ()):
            ranks = found.setdefault(tuple(warning), [])
            if rank not in ranks:
                ranks.append(rank)
    for (text, module, name, file, line), ranks in found.items():
        kind = getattr(sys.modules.get(module), name, UserWarning)
        where = "" if len(ranks) == nproc else f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} of {nproc}: "
        warnings.warn_explicit(where + text, kind, file, line)


def _properties(told: Dict[int, Dict[str, Any]]) -> List[Tuple[str, Any]]:
    """What record_property() was given; with the rank where others have it not."""
    found: List[Tuple[str, Any]] = []
    for rank, one in told.items():
        for name, value in one.get("properties", ()):
            on_all = all([name, value] in other.get("properties", ()) for other in told.values())
            pair = (name if on_all else f"{name} (rank {rank})", value)
            if pair not in found:
                found.append(pair)
    return found


def _asked(item: Any, *args: Any, **kwargs: Any) -> Tuple[int, List[str]]:
    """The mark's values. The test fails with a sentence where they cannot be."""
    values = {**dict(zip(("nproc", "options"), args)), **kwargs}
    unknown = sorted(set(values) - {"nproc", "options"})
    if len(args) > 2 or unknown:
        what = f"no {unknown[0]}" if unknown else "no third value"
        pytest.fail(f"@pytest.mark.dlaunch of {item.name}: it takes nproc and options, and {what}", pytrace=False)
    if "nproc" not in values:
        pytest.fail(f"@pytest.mark.dlaunch of {item.name}: it lacks nproc, the number of ranks; write "
                    "@pytest.mark.dlaunch(nproc=2)", pytrace=False)
    try:
        return checked(f"@pytest.mark.dlaunch of {item.name}", values["nproc"], values.get("options", ()))
    except dlaunch.MisuseError as error:
        misuse = str(error)
    pytest.fail(misuse, pytrace=False)


def _headline(told: Dict[int, Dict[str, Any]], first: int, nproc: int, exit_code: int) -> str:
    """The cause in a line, for the session's summary."""
    silent = [rank for rank in range(nproc) if rank not in told]
    if silent and told[first]["crash"].startswith(_CONSEQUENCES):
        return (f"rank {silent[0]} of {nproc} did not tell how the test went, and dlaunch ended with {exit_code}; "
                f"rank {first}: {told[first]['crash']}")
    return f"rank {first} of {nproc}: {told[first]['crash']}"


def _judge(told: Dict[int, Dict[str, Any]], nproc: int, exit_code: int, more: Dict[str, Any]) -> None:
    for one in told.values():
        if one["outcome"] == "exit":
            pytest.exit(one["text"], one["code"])
    expected = [one for one in told.values() if one["wasxfail"] is not None]
    as_expected = [one for one in expected if one["outcome"] == "skipped"]
    # A test that should fail does so where it fails on one rank, so others may pass it, in the strict sense, too.
    failed = [rank for rank, one in told.items()
              if one["outcome"] == "failed" and not (as_expected and one["text"].startswith(_STRICT))]
    if failed:
        # The cause comes first: what only follows from another rank's failure does so later.
        failed.sort(key=lambda rank: (told[rank]["crash"].startswith(_CONSEQUENCES), told[rank]["time"]))
        parts = [f"---- rank {rank} of {nproc} ----\n{told[rank]['text']}" for rank in failed]
        pytest.fail("\n".join([_headline(told, failed[0], nproc, exit_code), *parts]), pytrace=False)
    if as_expected and len(told) == nproc:
        more.update(wasxfail=as_expected[0]["wasxfail"], longrepr=as_expected[0]["text"])
        pytest.skip(as_expected[0]["wasxfail"])
    if exit_code != 0 or len(told) < nproc:
        pytest.fail(f"dlaunch ended with {exit_code}, and {nproc - len(told)} of {nproc} ranks did not tell how the "
                    "test went", pytrace=False)
    skipped = [one for one in told.values() if one["outcome"] == "skipped"]
    if skipped:
        if skipped[0]["where"] is not None:
            more["longrepr"] = (*skipped[0]["where"], skipped[0]["text"])
        pytest.skip(skipped[0]["text"])
    if expected:
        more["wasxfail"] = expected[0]["wasxfail"]
