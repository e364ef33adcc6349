"""The options of the pytest that runs a marked test on a rank: those of the session, but for what is its own."""
from __future__ import annotations

import os
import shlex
from typing import Any, FrozenSet, List, Sequence

# The session alone selects tests and orders them, starts processes, and writes files, which each rank would write over.
# Ranks have no terminal to debug at, and repeat no test by themselves.
_FLAGS: FrozenSet[str] = frozenset((
    "--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--cache-clear", "--sw", "--stepwise",
    "--sw-skip", "--stepwise-skip", "--sw-reset", "--stepwise-reset", "-f", "--looponfail", "--pdb", "--trace",
    "--pyargs", "--cov-append", "--cov-branch", "--no-cov", "--no-cov-on-fail", "--cov-reset", "--self-contained-html",
    "--no-header", "--no-summary"))
_WITH_VALUE: FrozenSet[str] = frozenset((
    "-k", "-m", "--deselect", "--ignore", "--ignore-glob", "--maxfail", "--lfnf", "--last-failed-no-failures", "-n",
    "--numprocesses", "--maxprocesses", "--dist", "--tx", "--px", "--rsyncdir", "--rsyncignore", "--pdbcls", "--reruns",
    "--reruns-delay", "--only-rerun", "--rerun-except", "--junitxml", "--junit-xml", "--junitprefix", "--junit-prefix",
    "--report-log", "--html", "--css", "--alluredir", "--log-file", "--basetemp", "--rootdir", "-c", "--config-file",
    "--cov-report", "--cov-config", "--cov-fail-under", "--cov-context"))
_WITH_VALUE_OR_NONE: FrozenSet[str] = frozenset(("--cov", "--debug", "--cache-show"))
_SHORT = ("-k", "-m", "-n", "-c")  # Of those with a value, which may follow at once, as in -n2.


def of_ranks(config: Any) -> List[str]:
    """From the command line, the ini file's addopts and the environment's, as pytest joins them."""
    given = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *_command_line(config)]
    options = [*_kept(given, config.option.file_or_dir or ()), "-o", "addopts=", "-p", "no:cacheprovider",
               "--no-header", "--no-summary", "--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    # The session shows what ranks tell it, so that they say little themselves.
    quieter = config.option.verbose + 2
    if quieter > 0:
        options.append("-" + quieter * "q")
    if hasattr(config, "get_verbosity"):  # pytest 8.
        options += ["-o", f"verbosity_assertions={config.get_verbosity('assertions')}"]
    return options


def _command_line(config: Any) -> Sequence[str]:
    """A worker of xdist has been given its options by other ways, and knows the command line of the session."""
    line = getattr(config, "workerinput", {}).get("mainargv")
    return [str(arg) for arg in (config.invocation_params.args if line is None else line[1:])]


def _kept(given: Sequence[str], paths: Sequence[str]) -> List[str]:
    kept: List[str] = []
    at = 0
    while at < len(given):
        arg = given[at]
        name, equals, _ = arg.partition("=")
        at += 1
        if name in _WITH_VALUE or name in _WITH_VALUE_OR_NONE:
            follows = not equals and at < len(given)
            if follows and (name in _WITH_VALUE or not given[at].startswith("-")):
                at += 1
        elif arg not in _FLAGS and arg not in paths and arg[:2] not in _SHORT and arg != "--" and arg[:1] != "@":
            kept.append(arg)
    return kept
