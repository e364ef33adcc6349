"""Loops that ranks leave at different times: rank r has 2 r inputs."""
import numpy as np

import dlaunch


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


world = dlaunch.init()
comm = world.comm
inputs = 2 * comm.rank
last = comm.size - 1
shadows = 0


def shadow():
    global shadows
    shadows += 1
    comm.all_reduce(np.zeros(3))


join = dlaunch.Join(comm, shadow)
assert "covers no loop" in str(raises(dlaunch.MisuseError, join.announce))
for _ in range(2):  # One may be used again.
    shadows = 0
    with join:
        for step in range(inputs):
            active = join.announce()
            assert active == join.active == sum(1 for rank in range(comm.size) if 2 * rank > step)
            ones = np.ones(3)
            comm.all_reduce(ones)
            assert (ones == active).all()
    assert shadows == 2 * last - inputs
    assert join.last == (last if last > 0 else None)
comm.barrier()

# Nobody has any.
with dlaunch.Join(comm, shadow) as none:
    pass
assert none.last is None and none.active == 0

# All end with the first: rank 0, in the first iteration, or with nobody's inputs in a world of one.
def until_one_ends():
    with dlaunch.Join(comm, shadow, early_termination=True) as early:
        for _ in range(inputs + 1):
            early.announce()
            comm.all_reduce(np.zeros(3))


if comm.size > 1:
    assert f"1 of {comm.size} ranks" in str(raises(dlaunch.EarlyTermination, until_one_ends))
else:
    until_one_ends()
comm.barrier()  # It stays usable.

# One fails in the loop, one in its shadow: the others hear of it.
for failing, fails_in_shadow in ((last, False), (0, True)):
    twin = comm.duplicate()

    def fails():
        if twin.rank == failing and fails_in_shadow:
            raise KeyError("mine")
        twin.all_reduce(np.zeros(3))

    def loop():
        with dlaunch.Join(twin, fails, timeout=60) as failed:
            for _ in range(inputs):
                failed.announce()
                if twin.rank == failing:
                    raise KeyError("mine")
                twin.all_reduce(np.zeros(3))

    if comm.size > 1:
        error = raises((KeyError, dlaunch.AbortedError, dlaunch.PeerLostError), loop)
        assert isinstance(error, KeyError) == (twin.rank == failing), error
        assert twin.rank == failing or "join.py:" in str(error), error
    twin.free()
comm.barrier()
print(f"rank {comm.rank} is done")
world.finalize()
