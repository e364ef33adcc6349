"""What is wrong with an argument is told by a sentence with the line of the call, and leaves the communicator whole."""
import inspect
import os

import numpy as np

import dlaunch


def refused(words, call, *args, **kwargs):
    line = inspect.currentframe().f_back.f_lineno
    try:
        call(*args, **kwargs)
    except dlaunch.MisuseError as error:
        assert words in str(error), error
        assert isinstance(error, ValueError)
        return error
    raise AssertionError(f"line {line} was not refused")


class ByDLPack:
    """Shows its memory in no other way."""

    def __init__(self, inner, device=1):
        self.inner = inner
        self.device_type = device

    def __dlpack__(self, **options):
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device_type, 0


def here(call):
    """The error of `call`, which stands in a line of this file."""
    try:
        call()
    except dlaunch.Error as error:
        return error
    raise AssertionError("not refused")


refused("rank and world_size are given together", dlaunch.init, rank=0)
world = dlaunch.init()
comm = world.comm
frozen = np.zeros(4)
frozen.flags.writeable = False
refused("do not lie side by side", comm.all_reduce, np.zeros((4, 4))[:, 1])
refused("do not lie side by side", comm.all_reduce, np.zeros(8)[::2])
refused("may only be read", comm.all_reduce, frozen)
refused("may only be read", comm.start_broadcast, b"bytes", 0)
refused("an object of type list shows no memory", comm.all_reduce, [1.0])
refused("an object of type float shows no memory", comm.send, 1.0, 0)
refused("no elements of dtype >f4", comm.all_reduce, np.zeros(2, ">f4"))
refused("no elements of dtype |S3", comm.all_gather, np.zeros(2, "S3"), np.zeros(2))
refused("no elements of dtype", comm.all_reduce, np.zeros(1, np.longdouble))
refused("do not lie side by side", comm.all_reduce, ByDLPack(np.zeros((4, 4))[:, 1]))
refused("lies on device type 7 of DLPack", comm.all_reduce, ByDLPack(np.zeros(4), device=7))
refused("all_reduce: ", comm.all_reduce, ByDLPack(frozen))  # NumPy or the call says it.
refused("counts are one number of elements for each", comm.all_gather, np.zeros(1), np.zeros(1), [1] * (comm.size + 1))
refused("the counts of both buffers", comm.all_to_all, np.zeros(1), np.zeros(1), [1])
refused("a timeout is a number of seconds greater than zero", comm.barrier, timeout=0)
refused("a tag is 0 to", comm.send, np.zeros(1), 0, -2)
refused("has joined a world at mistakes.py:", dlaunch.init)
refused("the root has one value for each", comm.duplicate().scatter_object, [], comm.rank)

refused("an operation is one of ReduceOp, not 'sum'", comm.all_reduce, np.zeros(1), "sum")

error = here(lambda: comm.all_reduce(None))
assert error.rank == comm.rank and error.call == "all_reduce" and error.place.startswith("mistakes.py:"), vars(error)
assert str(error).endswith(f"[{error.place}]"), error

# The library sees what is wrong with the numbers, and says it with the same place.
late = here(lambda: comm.duplicate().recv(np.zeros(1), timeout=0.01))
assert isinstance(late, TimeoutError) and str(late).endswith(f"[{late.place}]"), late
small = here(lambda: dlaunch.Communicator.all_gather(comm.group([comm.rank]) if comm.size == 1 else comm.duplicate(),
                                                     np.zeros(2), np.zeros(1)))
assert isinstance(small, (dlaunch.MisuseError, dlaunch.MismatchError)) and "mistakes.py:" in str(small), small

# A read-only array may be read.
comm.all_gather(frozen, np.zeros(4 * comm.size))
ones = np.ones((2, 3), np.int16)
comm.all_reduce(ByDLPack(ones))
assert (ones == comm.size).all()

# A forked process has no rank, and does no harm to its parent's.
child = os.fork()
if child == 0:
    forked = here(lambda: comm.all_reduce(np.zeros(1)))
    again = here(lambda: dlaunch.init())
    kept = here(lambda: world.store.get("x"))
    right = all("was forked from process" in str(one) for one in (forked, again, kept))
    world.finalize()
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
total = np.ones(1)
comm.all_reduce(total)
assert total[0] == comm.size

world.finalize()
world.finalize()
refused("its world finalized", comm.barrier)
refused("was finalized", world.communicator, "late")
print(f"rank {comm.rank} is done")
