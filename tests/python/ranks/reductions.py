"""Reductions of a program's own, pairs of a value and its place, and the reduction of two buffers of one rank. Any number
of ranks."""
import copy
import ctypes
import pickle

import numpy as np

import dlaunch
from dlaunch import DType, ReduceOp


def farthest(mine, theirs):
    return np.where(np.abs(theirs) > np.abs(mine), theirs, mine)


def compose(mine, theirs):
    """x -> by * x + plus: in another order they come to something else."""
    mine["plus"] = theirs["by"] * mine["plus"] + theirs["plus"]
    mine["by"] *= theirs["by"]
    return mine


AFFINE = np.dtype([("by", "i8"), ("plus", "i8")])


def of_its_own(comm):
    rank, size = comm.rank, comm.size
    op = ReduceOp.custom(farthest)
    assert repr(op) == "ReduceOp.custom('farthest')" and op.dtype is None
    for dtype in (np.int16, np.float32, np.float64, np.complex128):
        found = np.array([-rank - 1, 1, 2 - rank]).astype(dtype)
        comm.all_reduce(found, op)
        assert found[0] == -size and found[1] == 1 and abs(found[2]) == max(abs(2 - r) for r in range(size)), found
    many = np.full(200_000, rank, np.float32)
    comm.all_reduce(many, ReduceOp.custom(np.maximum).any_order())  # A ufunc has a name, too.
    assert (many == size - 1).all()
    works = [comm.start_all_reduce(np.full(1000, rank), ReduceOp.custom(np.bitwise_or, "or")) for _ in range(20)]
    found = np.full(3, 1 << rank)
    last = comm.start_all_reduce(found, ReduceOp.custom(lambda mine, theirs: mine | theirs, "together"))
    del op
    dlaunch.wait_all(works + [last])
    assert (found == (1 << size) - 1).all()
    part = np.zeros(1, np.int64)
    comm.scan(np.array([rank]), part, ReduceOp.custom(np.add))
    assert part[0] == rank * (rank + 1) // 2
    for again in (pickle.loads(pickle.dumps(ReduceOp.custom(farthest).canonical())), copy.copy(ReduceOp.custom(farthest))):
        found = np.array([-rank, 0.5])
        comm.all_reduce(found, again)
        assert found.tolist() == [1 - size, 0.5]


def of_structs(comm):
    rank, size = comm.rank, comm.size
    by, plus = 1, 0
    for r in range(size):
        by, plus = by * (r + 2), (r + 2) * plus + r + 1
    op = ReduceOp.custom(compose, dtype=AFFINE)
    assert op.dtype == AFFINE
    mine = np.array([(rank + 2, rank + 1)] * 5, AFFINE)
    comm.all_reduce(mine, op)
    assert (mine["by"] == by).all() and (mine["plus"] == plus).all()
    mine = np.array([(rank + 2, rank + 1)] * (size * (size + 1) // 2), AFFINE)
    part = np.zeros(rank + 1, AFFINE)
    comm.reduce_scatter(mine, part, op, [r + 1 for r in range(size)])
    assert (part["by"] == by).all() and (part["plus"] == plus).all()
    # The same memory, as plain numbers.
    rows = np.tile(np.array([rank + 2, rank + 1]), (4, 1))
    comm.start_all_reduce(rows, op).wait()
    assert (rows == [by, plus]).all()


def located(comm):
    rank, size = comm.rank, comm.size
    for value, index in ((DType.F64, DType.I32), (DType.I16, DType.I64), (DType.F32, DType.I32)):
        least, greatest = ReduceOp.min_located(value, index), ReduceOp.max_located(value, index)
        pairs = np.zeros(3, least.dtype)
        pairs["value"], pairs["index"] = [-2 if rank % 2 == 0 else 3, rank, 7], rank
        both = pairs.copy()
        comm.all_reduce(pairs, least)
        assert pairs.tolist() == [(-2, 0), (0, 0), (7, 0)], pairs
        total = np.zeros(3, greatest.dtype)
        comm.all_reduce_into(both, total, pickle.loads(pickle.dumps(greatest)))
        wanted = [(3, 1) if size > 1 else (-2, 0), (size - 1, size - 1), (7, 0)]
        assert total.tolist() == wanted, total

    class Pair(ctypes.Structure):
        _fields_ = [("value", ctypes.c_double), ("index", ctypes.c_int32)]

    nearest = (Pair * 1)((float(size - rank), rank))
    comm.all_reduce(nearest, ReduceOp.min_located(DType.F64, DType.I32))
    assert (nearest[0].value, nearest[0].index) == (1, size - 1)


def alone():
    into = np.array([2, 5, 0])
    dlaunch.reduce_local(np.array([1, 0, 7]), into)
    assert into.tolist() == [3, 5, 7]
    dlaunch.reduce_local(np.array([1, 0, 7]), into, ReduceOp.LAND)
    assert into.tolist() == [1, 0, 1]
    words = np.array([1.5, -8])
    dlaunch.reduce_local(np.array([-2.5, 1]), words, ReduceOp.custom(farthest))
    assert words.tolist() == [-2.5, -8]
    pairs = np.array([(1, 4)], ReduceOp.min_located(DType.F32, DType.I64).dtype)
    dlaunch.reduce_local(np.array([(1, 3)], pairs.dtype), pairs, ReduceOp.min_located(DType.F32, DType.I64))
    assert pairs.tolist() == [(1, 3)]


def refused(words, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except dlaunch.MisuseError as error:
        assert words in str(error), f"{words!r} is not in: {error}"
    else:
        raise AssertionError(f"there was no error of: {words}")


def mistakes(comm):
    op = ReduceOp.custom(compose, dtype=AFFINE)
    pairs = ReduceOp.max_located(DType.F64, DType.I32)
    refused("3 is no function of two arrays", ReduceOp.custom, 3)
    refused("an operation has a name", ReduceOp.custom, farthest, name="")
    refused("an operation has a name", ReduceOp.custom, farthest, name="a\0b")
    refused("is no dtype", ReduceOp.custom, farthest, dtype="nothing")
    refused("no memory that ranks could send", ReduceOp.custom, farthest, dtype=object)
    refused("value and index are of dlaunch.DType", ReduceOp.min_located, "f8", DType.I32)
    refused("such values have no order", ReduceOp.min_located, DType.C64, DType.I32)
    refused("index", ReduceOp.max_located, DType.F64, DType.F32)
    for number in range(2):  # Nothing is sent, and the communicator goes on.
        packed = np.zeros(4, [("value", "f8"), ("index", "i4")])
        refused("an element of this ndarray has 12 bytes, and one of ReduceOp.max_located(F64, I32) 16",
                comm.all_reduce, packed, pairs)
        refused("and ReduceOp.max_located(F64, I32) those of", comm.all_reduce, np.zeros(4, [("a", "i8"), ("b", "i8")]),
                pairs)
        refused("no whole number of the elements of 16 bytes", comm.all_reduce, np.zeros(3), op)
    refused("shows no memory", dlaunch.reduce_local, [1], np.zeros(1))
    refused("an operation is one of ReduceOp, not 'max'", dlaunch.reduce_local, np.zeros(1), np.zeros(1), "max")
    refused("reduce_local", dlaunch.reduce_local, np.zeros(1), np.zeros(2))
    refused("reduce_local", dlaunch.reduce_local, np.zeros(1), np.zeros(1), ReduceOp.MEAN)


def fails(mine, theirs):
    raise KeyError("no such animal")


def goes_wrong(words, kind, op, comm, started):
    """On all ranks, whichever of them folds: those have the function's own error as the cause."""
    comm = comm.duplicate()
    data = np.ones(4)
    try:
        comm.start_all_reduce(data, op).wait() if started else comm.all_reduce(data, op)
    except dlaunch.InternalError as error:
        assert words in str(error) and "reductions.py:" in str(error), error
        assert error.__cause__ is None or isinstance(error.__cause__, kind), repr(error.__cause__)
        assert error.__cause__ is not None or f"rank {comm.rank} failed" not in str(error), error
    else:
        raise AssertionError("the call went well")
    try:
        comm.barrier()
    except dlaunch.InternalError as error:
        assert words in str(error), error
    else:
        raise AssertionError("the communicator goes on")


def failures(comm):
    if comm.size == 1:
        return
    for started in (False, True):
        goes_wrong("KeyError: 'no such animal'", KeyError, ReduceOp.custom(fails), comm, started)
        goes_wrong("it returned 1.0, and is to return the reduction of its arguments, of shape (4,)", ValueError,
                   ReduceOp.custom(lambda mine, theirs: float(mine[0]), "first"), comm, started)
        goes_wrong("TypeError: Cannot cast", TypeError,
                   ReduceOp.custom(lambda mine, theirs: mine * 1j, "turned"), comm, started)
        goes_wrong("ValueError: it returned None", ValueError,
                   ReduceOp.custom(lambda mine, theirs: None, "nothing"), comm, started)
    broken = comm.duplicate()

    def interrupted(mine, theirs):
        raise KeyboardInterrupt

    try:
        broken.all_reduce(np.ones(4), ReduceOp.custom(interrupted))
    except KeyboardInterrupt:
        pass
    except dlaunch.InternalError as error:
        assert "KeyboardInterrupt" in str(error), error
    else:
        raise AssertionError("the call went well")


with dlaunch.init() as world:
    of_its_own(world.comm)
    of_structs(world.comm)
    located(world.comm)
    alone()
    mistakes(world.comm)
    failures(world.comm)
    world.comm.barrier()
    print(f"rank {world.rank} is done")
