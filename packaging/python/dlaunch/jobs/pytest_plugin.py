"""@pytest.mark.dlaunch(nproc=2): such a test runs on every rank of a job of its own.

The session that pytest was started as starts the job; each rank runs pytest with that one test, fixtures and all. The
test has passed where it has on all ranks.
"""
from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from typing import Any, Dict, Iterator, Optional

import pytest

import dlaunch

from .._library import PREFIX
from .run import run_command

_FOLDER = "DLAUNCH_PYTEST_FOLDER"  # Set on the ranks.


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "dlaunch(nproc, options=()): run the test on nproc ranks, which dlaunch starts "
                                       "with these options")


@pytest.fixture
def dlaunch_world() -> Iterator[dlaunch.World]:
    """The world of a test that is marked with dlaunch, joined and finalized."""
    with dlaunch.init() as world:
        yield world


def _run_marked(item: Any, nextitem: Any) -> Optional[bool]:
    mark = item.get_closest_marker("dlaunch")
    if mark is None or _FOLDER in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    call = pytest.CallInfo.from_call(lambda: _run_on_ranks(item, *mark.args, **mark.kwargs), "call")
    report = pytest.TestReport.from_item_and_call(item, call)
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


# No decorator: old releases of pluggy have no types, and mypy takes what they decorate for untyped.
pytest_runtest_protocol = pytest.hookimpl(tryfirst=True)(_run_marked)


def pytest_runtest_logreport(report: Any) -> None:
    """On a rank: writes down what became of each phase, the worst of which counts."""
    if _FOLDER not in os.environ:
        return
    if report.outcome == "passed" and report.when != "call":
        return
    path = pathlib.Path(os.environ[_FOLDER]) / f"rank{os.environ['RANK']}"
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        text = str(report.longrepr[2])
    else:
        text = str(report.longrepr or "")
    if not path.exists() or report.outcome == "failed":
        path.write_text(json.dumps({"outcome": report.outcome, "text": text}))


def _run_on_ranks(item: Any, nproc: int, options: Any = ()) -> None:
    with tempfile.TemporaryDirectory(prefix="dlaunch-pytest-") as folder:
        command = [str(PREFIX / "bin" / "dlaunch"), "--standalone", "--nproc-per-node", str(nproc), "--ends-with-stdin",
                   "--env", f"{_FOLDER}={folder}", "--cwd", str(item.config.invocation_params.dir), *options,
                   "--no-python", sys.executable, "-u", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir",
                   str(item.config.rootpath), f"{item.path}::{item.nodeid.partition('::')[2]}"]
        exit_code = run_command(command)
        _judge(pathlib.Path(folder), nproc, exit_code)


def _judge(folder: pathlib.Path, nproc: int, exit_code: int) -> None:
    told: Dict[int, Any] = {}
    for rank in range(nproc):
        path = folder / f"rank{rank}"
        if path.exists():
            told[rank] = json.loads(path.read_text())
    failed = {rank: one["text"] for rank, one in told.items() if one["outcome"] == "failed"}
    if failed:
        parts = [f"---- rank {rank} of {nproc} ----\n{text}" for rank, text in failed.items()]
        pytest.fail("\n".join(parts), pytrace=False)
    if exit_code != 0 or len(told) < nproc:
        pytest.fail(f"dlaunch ended with {exit_code}, and {nproc - len(told)} of {nproc} ranks did not tell how the "
                    "test went", pytrace=False)
    skipped = [one["text"] for one in told.values() if one["outcome"] == "skipped"]
    if skipped:
        pytest.skip(skipped[0])
