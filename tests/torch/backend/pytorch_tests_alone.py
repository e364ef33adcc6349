"""Runs tests of one module, each in a process of its own: pytorch_tests_alone.py MODULE BACKEND LOGS [NAME...]

pytorch_tests starts it in the folder of the tests. It prints a line for each test: outcome and name. What a test said
is in LOGS/NAME.log. The module is imported once, and processes of tests, ranks among them, are forked from there: to
import torch takes longer than most tests.
"""
import importlib
import os
import pathlib
import select
import signal
import sys
import unittest

import torch
import torch.distributed as dist
import torch.testing._internal.common_distributed as common

LIMIT = 180  # Seconds for one test.
OK, SKIPPED, FAILED = 0, 1, 2
OUTCOMES = {OK: "ok", SKIPPED: "skipped", FAILED: "failed"}


def fork_ranks(test):
    test._start_processes(torch.multiprocessing.get_context("fork").Process)


def take_for_gloo(backend):
    """Calls that name gloo, or the device alone, get this backend; tests for what gloo has are for it."""
    dist.Backend.default_device_backend_map["cpu"] = backend
    for features in common.DistTestCases.backend_feature.values():
        if "gloo" in features:
            features.add(backend)
    for function in (dist.init_process_group, dist.new_group):
        def instead(*positional, function=function, **named):
            if function is dist.distributed_c10d.init_process_group and positional:
                positional = (of_ours(positional[0]), *positional[1:])
            return function(*positional, **{name: of_ours(value) if name == "backend" else value
                                            for name, value in named.items()})

        setattr(dist, function.__name__, instead)

    def of_ours(name):
        return name.replace("gloo", backend) if isinstance(name, str) else name

    # This one asks for a backend whose name it knows.
    from torch.testing._internal.distributed._tensor import common_dtensor
    common_dtensor.DTensorTestBase.backend = "gloo"


def list_tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from list_tests(test)
        else:
            yield ".".join(test.id().split(".")[-2:])


def run(module, name, log):
    """In a process of its own."""
    os.setsid()
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for descriptor in (1, 2):
        os.dup2(written, descriptor)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName(name, module))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(FAILED if not result.wasSuccessful() else SKIPPED if result.skipped else OK)


def outcome(module, name, log):
    process = os.fork()
    if process == 0:
        try:
            run(module, name, log)
        finally:
            os._exit(FAILED)
    ended = os.pidfd_open(process)
    if not select.select([ended], [], [], LIMIT)[0]:
        os.killpg(process, signal.SIGKILL)
        with open(log, "a") as said:
            said.write(f"\nERROR: it ran for more than {LIMIT} s\n")
    os.close(ended)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        os.killpg(process, signal.SIGKILL)  # Ranks that it left.
    except ProcessLookupError:
        pass
    return OUTCOMES.get(code, "failed")


def main():
    name, backend, logs = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    sys.path.insert(0, os.getcwd())
    common.MultiProcessTestCase._spawn_processes = fork_ranks
    common.skip_if_small_worldsize = lambda test: test  # It wants eight ranks, and no such test needs more than four.
    if backend != "gloo":
        take_for_gloo(backend)
    module = importlib.import_module(name)
    for test in sys.argv[4:] or list_tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
        print(outcome(module, test, logs / f"{test}.log"), test, flush=True)


main()
