"""What is wrong with an argument is told by a sentence with the line of the call, and leaves the communicator whole."""
import copy
import inspect
import mmap
import os
import pickle
import re

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
refused('of dtype datetime64[s]; pass a view of them as integers, array.view("i8")', comm.all_reduce,
        np.zeros(1, "M8[s]"))
refused("do not lie side by side", comm.all_reduce, ByDLPack(np.zeros((4, 4))[:, 1]))
refused("lies on device type 7 of DLPack", comm.all_reduce, ByDLPack(np.zeros(4), device=7))
refused("all_reduce: ", comm.all_reduce, ByDLPack(frozen))  # NumPy or the call says it.
given_back = memoryview(bytearray(8))
given_back.release()
refused("does not show its memory: operation forbidden on released memoryview", comm.all_reduce, given_back)
mapped = mmap.mmap(-1, 8)
mapped.close()
refused("does not show its memory: mmap closed or invalid", comm.all_reduce, mapped)
refused("counts are one number of elements for each", comm.all_gather, np.zeros(1), np.zeros(1), [1] * (comm.size + 1))
refused("the counts of both buffers", comm.all_to_all, np.zeros(1), np.zeros(1), [1])
late = refused("a timeout is a number of seconds greater than zero", comm.barrier, timeout=0)
assert late.rank == comm.rank and late.call == "barrier", vars(late)
for wrong in (-1, float("nan"), "3", None, [1, 2]):
    refused(f"a timeout is a number of seconds greater than zero, not {wrong!r}", setattr, comm, "timeout", wrong)
refused("a tag is 0 to", comm.send, np.zeros(1), 0, -2)
refused("has joined a world at mistakes.py:", dlaunch.init)
refused("the root has one value for each", comm.duplicate().scatter_object, [], comm.rank)

refused("all_reduce: an operation is one of ReduceOp, not 'sum' [mistakes.py:", comm.all_reduce, np.zeros(1), "sum")

# No number is cut to the width of a C type.
one, wide = np.zeros(1), 2**32
refused("broadcast: a rank is 0 to", comm.broadcast, one, wide)
for root in (None, 1.0, "0", wide + 1):
    refused(f"a rank is 0 to {comm.size - 1}, not {root!r}", comm.start_broadcast, one, root)
    refused("a rank is 0 to", comm.reduce, one, one, root)
    refused("a rank is 0 to", comm.gather, one, one, root)
    refused("a rank is 0 to", comm.scatter, one, one, root)
    refused("a rank is 0 to", comm.send, one, root)
    refused("a rank is 0 to", comm.irecv, one, root)
    refused("a rank is 0 to", comm.probe, root)
    refused("a rank is 0 to", comm.send_object, one, root)
    refused("a rank is 0 to", comm.broadcast_object, one, root)
    refused("a rank is 0 to", comm.group, [root])
    refused("a rank is 0 to", comm.batch, [dlaunch.Transfer.send(one, root)])
refused("a tag is 0 to", comm.isend, one, 0, "x")
refused("a tag is 0 to", comm.recv, one, 0, wide)
refused("a tag is 0 to", comm.batch, [dlaunch.Transfer.send(one, 0, wide)])
refused("a transfer is made by", comm.batch, [1])
refused("a colour is 0 to 2147483647, or None, not 4294967295", comm.split, wide - 1)
refused("a colour is 0 to 2147483647, or None, not -5", comm.split, -5)
refused("a key is", comm.split, 0, wide)
refused("flags are 0 to 0xffffffff", comm.agree, wide + 1)
for wrong in (-1, 2**64, 1.0):
    refused(f"counts[0] is a number of elements, 0 or more, not {wrong!r}", comm.all_gather, one, one,
            [wrong] * comm.size)
refused("target_counts[0] is a number of", comm.all_to_all, one, one, [1] * comm.size, [-1] * comm.size)
refused("an integer of 64 bits, not 18446744073709551617", world.store.add, "sum", 2**64 + 1)
refused("an integer of 64 bits, not 1.5", world.store.add, "sum", 1.5)
refused("there is no rank -2", comm.send, one, -2)

# Text ends at no NUL, and a value is no number.
refused("a key is text without NUL", world.store.set, "a\0b", b"")
refused("a key is text without NUL", world.store.get, b"bytes")
refused("a name is text without NUL", world.communicator, "a\0b")
refused("a value is bytes, or text", world.store.set, "number", 5)
refused("a value is bytes, or text", world.store.set, "list", [1])
refused("what is waited for at most is a number of seconds, not nan", dlaunch.wait_any, [None], float("nan"))

# None is no buffer for a rank that needs one.
refused(f"reduce: rank {comm.rank} is the root, and needs a target, not None", comm.reduce, one, None, comm.rank)
refused("the root, and needs a source, not None", comm.start_scatter, None, one, comm.rank)

# Objects that pickle cannot write, or read.
for call in (comm.all_gather_object, lambda value: comm.send_object(value, comm.rank),
             lambda value: comm.scatter_object([value] * comm.size, comm.rank)):
    refused("_object: pickle cannot write this function: ", call, lambda: None)


class Unreadable:
    def __reduce__(self):
        return os.stat, ("/nowhere/at/all",)


unread = here(lambda: comm.all_gather_object(Unreadable()))
assert str(unread).startswith("all_gather_object: pickle cannot read rank 0's object here: FileNotFoundError"), unread
assert unread.rank == comm.rank and unread.place.startswith("mistakes.py:"), vars(unread)

# A buffer is free again after any refusal.
memory = bytearray(4)
for wrong in (lambda: comm.start_broadcast(memory, None), lambda: comm.irecv(memory, 1.5),
              lambda: comm.irecv(memory, 0, tag="x"), lambda: comm.start_all_reduce(memory, timeout="x"),
              lambda: comm.start_batch([dlaunch.Transfer.recv(memory, None)]),
              lambda: comm.all_reduce_into(memory, [1])):
    refused("", wrong)
    memory.extend(b"x")

# Of a handle there is one; an operation is a value.
started, sent = comm.start_barrier(), comm.isend(one, comm.rank, 77)
message = comm.match(comm.rank, 77)
for handle in (world, comm, world.store, started, message, dlaunch.Join(comm, print)):
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            copied(handle)
        except TypeError as error:
            assert f"a {type(handle).__name__} is neither copied nor pickled" in str(error), error
        else:
            raise AssertionError(f"{handle} was copied")
comm.recv_matched(message, one)
assert started.wait_for(float("inf")) and dlaunch.wait_any([sent], float("inf")) == 0
for seconds in (np.int64(30), np.float32(30), float("inf")):
    comm.barrier(timeout=seconds)
    assert comm.start_barrier(timeout=seconds).wait_for(seconds)
assert dlaunch.wait_any([None], np.float32(1)) is None
assert pickle.loads(pickle.dumps(dlaunch.ReduceOp.SUM)) is dlaunch.ReduceOp.SUM is copy.deepcopy(dlaunch.ReduceOp.SUM)
scaled = pickle.loads(pickle.dumps(dlaunch.ReduceOp.premul_sum(0.5).canonical()))
assert repr(scaled) == "ReduceOp.premul_sum(0.5).canonical()" and scaled._struct.factor == 0.5
mean = here(lambda: comm.duplicate().all_reduce(np.zeros(1, int), dlaunch.ReduceOp.MEAN))
assert "cast first to a floating-point type, or sum and divide [mistakes.py:" in str(mean), mean

# What the store says has the call's whole name, and the rank.
late = here(lambda: world.store.wait("never", timeout=0.01))
assert re.fullmatch(r"store\.wait: timed out after \S+ s, waiting for 'never' \[mistakes\.py:\d+\]", str(late)), late
assert late.rank == comm.rank and late.call == "store.wait", vars(late)

# After free() the name stays, and the rest says why there is nothing.
freed = world.communicator("freed")
freed.free()
assert freed.name == "freed"
refused("this communicator was freed", lambda: freed.timeout)
refused("this communicator was freed", setattr, freed, "timeout", 5)
late = here(lambda: comm.duplicate().recv_object(timeout=0.01))
assert str(late).startswith("recv_object from any rank") and late.call == "recv_object", late

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
