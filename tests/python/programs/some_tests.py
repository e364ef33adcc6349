"""Tests of a user, which pytest_plugin runs."""
import pytest

import dlaunch


@pytest.fixture
def number():
    return 7


@pytest.mark.dlaunch(nproc=2)
def test_of_two(dlaunch_world, number):
    assert dlaunch_world.size == 2 and number == 7
    assert dlaunch_world.comm.all_gather_object(dlaunch_world.rank) == [0, 1]


@pytest.mark.dlaunch(nproc=3)
@pytest.mark.parametrize("root", [2])
def test_with_parameters(dlaunch_world, root):
    assert dlaunch_world.comm.broadcast_object(dlaunch_world.rank, root) == root


@pytest.mark.dlaunch(nproc=2)
def test_that_fails(dlaunch_world):
    assert dlaunch_world.rank == 0


@pytest.mark.dlaunch(nproc=2)
def test_that_is_skipped():
    pytest.skip("not on this machine")


@pytest.mark.dlaunch(nproc=2)
def test_with_the_sessions_options(request):
    assert request.config.getoption("--colour") == "blue"


@pytest.mark.dlaunch
def test_without_a_number():
    pass


@pytest.fixture(scope="module")
def opened():
    yield
    print("the module is torn down")


def test_of_this_process(opened):
    assert dlaunch.ANY_SOURCE == -1


@pytest.mark.dlaunch(nproc=2)
@pytest.mark.xfail(raises=ZeroDivisionError, reason="rank 1 divides by 0")
def test_that_should_fail(dlaunch_world):
    if dlaunch_world.rank == 1:
        print(1 / 0)
