"""Every collective, blocking and started, with NumPy arrays; groups, objects and the store. Any number of ranks."""
import array
import sys
import threading

import numpy as np

import dlaunch
from dlaunch import ReduceOp


def collectives(comm):
    rank, size = comm.rank, comm.size
    every = np.arange(size, dtype=np.int64)

    mine = np.full(3, rank + 1, np.float64)
    comm.all_reduce(mine)
    assert (mine == size * (size + 1) / 2).all()
    comm.all_reduce(mine, ReduceOp.MAX.any_order(), timeout=30)
    means = np.full(2, rank, np.float32)
    comm.all_reduce(means, ReduceOp.MEAN)
    assert (means == (size - 1) / 2).all()
    halves = np.ones(2, np.float16)
    comm.all_reduce(halves, ReduceOp.premul_sum(0.5))
    assert (halves == size / 2).all()
    into = np.zeros(1, np.int64)
    comm.all_reduce_into(np.array([rank]), into, ReduceOp.MAX.canonical())
    assert into[0] == size - 1

    word = bytearray(b"root" if rank == size - 1 else b"----")
    comm.broadcast(word, size - 1)
    assert word == b"root"

    total = np.zeros(1, np.int64) if rank == 0 else None
    comm.reduce(np.array([rank]), total, 0)
    assert rank != 0 or total[0] == every.sum()

    ranks = np.zeros(size, np.int64)
    comm.all_gather(np.array([rank]), ranks)
    assert (ranks == every).all()
    uneven = np.zeros(every.sum() + size, np.int64)
    comm.all_gather(np.full(rank + 1, rank), uneven, [r + 1 for r in range(size)])
    assert (uneven == np.repeat(every, every + 1)).all()

    gathered = array.array("i", [-1] * size) if rank == 0 else None
    comm.gather(array.array("i", [rank]), gathered, 0)
    assert rank != 0 or list(gathered) == list(range(size))

    part = np.zeros(1, np.int64)
    comm.scatter(every * 10 if rank == 0 else None, part, 0)
    assert part[0] == rank * 10

    comm.reduce_scatter(every, part)
    assert part[0] == rank * size
    swapped = np.zeros(size, np.int64)
    comm.all_to_all(every + 100 * rank, swapped)
    assert (swapped == 100 * every + rank).all()

    sent, got = np.repeat(every, every), np.zeros(size * rank, np.int64)
    comm.all_to_all(sent, got, range(size), [rank] * size)
    assert (got == rank).all()
    comm.start_all_to_all(sent, got, range(size), [rank] * size).wait()
    comm.scan(np.array([rank]), part)
    assert part[0] == rank * (rank + 1) / 2
    comm.exscan(np.array([1]), part)
    assert rank == 0 or part[0] == rank

    comm.all_reduce(np.zeros(0, np.float32))
    comm.all_reduce(np.ones((2, 3), np.complex64))
    comm.barrier()


def started(comm):
    rank, size = comm.rank, comm.size
    sums = [np.full(5, rank + i, np.float64) for i in range(20)]
    works = [comm.start_all_reduce(one) for one in sums]
    dlaunch.wait_all(works)
    for i, one in enumerate(sums):
        assert (one == size * (size - 1) / 2 + i * size).all()
    assert dlaunch.test_all(works) and all(work.done for work in works)

    works = [comm.start_barrier(), comm.start_all_gather(np.array([rank]), np.zeros(size, np.int64)), None]
    while (index := dlaunch.wait_any(works)) is not None:
        works[index].wait()
        works[index] = None
    assert works == [None] * 3
    assert comm.start_scan(np.array([rank]), np.zeros(1, np.int64)).wait_for(30)

    uneven = np.zeros(size * (size + 1) // 2, np.int64)
    counts = [r + 1 for r in range(size)]
    comm.start_all_gather(np.full(rank + 1, rank), uneven, counts).wait()
    assert (uneven == np.repeat(np.arange(size), counts)).all()
    mine = np.zeros(rank + 1, np.int64)
    comm.start_scatter(uneven if rank == 0 else None, mine, 0, counts).wait()
    assert (mine == rank).all()
    comm.start_reduce_scatter(uneven, mine, ReduceOp.MAX, counts).wait()
    assert (mine == rank).all()
    comm.start_gather(mine, uneven if rank == 0 else None, 0, counts).wait()
    comm.start_reduce(mine[:1], mine[:1] if rank == 0 else None, 0).wait()

    # A Work that is dropped goes on, and what it writes into stays.
    for _ in range(200):
        comm.start_broadcast(np.zeros(100), 0)
    comm.barrier()


def groups(comm):
    half = comm.split(comm.rank % 2, key=-comm.rank)
    assert half is not None and half.rank == half.size - 1 - comm.rank // 2
    assert comm.split(None) is None
    last = comm.group([comm.size - 1])
    assert (last is not None) == (comm.rank == comm.size - 1)
    again = comm.duplicate()
    again.barrier()
    again.free()
    try:
        again.barrier()
    except dlaunch.MisuseError as error:
        assert "was freed" in str(error) and "calls.py:" in error.place, error
    else:
        raise AssertionError("a freed communicator went on")


def objects(comm):
    rank, size = comm.rank, comm.size
    assert comm.broadcast_object({"of": rank}, size - 1) == {"of": size - 1}
    assert comm.all_gather_object("x" * rank) == ["x" * r for r in range(size)]
    assert comm.gather_object((rank, None), 0) == ([(r, None) for r in range(size)] if rank == 0 else None)
    assert comm.scatter_object([str(r) for r in range(size)] if rank == 0 else None, 0) == str(rank)
    comm.send_object({"to": (rank + 1) % size}, (rank + 1) % size, tag=7)
    assert comm.recv_object((rank - 1) % size, tag=7) == {"to": rank}


def store(world):
    kept = world.store
    kept.set(f"of{world.rank}", "text")
    assert kept.wait("of0") == b"text" and kept.get("none") is None
    kept.add("arrived", 2)
    world.comm.barrier()
    assert kept.get("arrived") == str(2 * world.size).encode()
    assert kept.compare_set(f"mine{world.rank}", None, b"") and not kept.compare_set(f"mine{world.rank}", "x", "y")
    assert kept.get(f"mine{world.rank}") == b""
    assert kept.delete(f"mine{world.rank}") and not kept.delete(f"mine{world.rank}")
    try:
        kept.wait("never", timeout=0.01)
    except TimeoutError as error:
        assert isinstance(error, dlaunch.TimeoutError) and "never" in str(error), error
    else:
        raise AssertionError("the store found what nobody has set")


def threads(world):
    """Others go on while one is in a call, and each may have a communicator of its own."""
    if world.size == 1:
        return
    peer_turns = 200

    def answer():
        for turn in range(peer_turns):
            world.store.set(f"ask{turn}", "")
            world.store.wait(f"answer{turn}", 60)

    if world.rank == 0:
        asking = threading.Thread(target=answer)
        asking.start()
        world.comm.barrier()  # The last rank enters it when all was asked.
        asking.join()
    else:
        for turn in range(peer_turns if world.rank == 1 else 0):
            world.store.wait(f"ask{turn}", 60)
            world.store.set(f"answer{turn}", "")
        world.comm.barrier()

    def sums(comm):
        for _ in range(100):
            value = np.ones(10)
            comm.all_reduce(value)
            assert (value == comm.size).all()
        done.append(comm)

    done = []
    made = world.communicator("a"), world.communicator("b")
    workers = [threading.Thread(target=sums, args=(comm,)) for comm in made]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len(done) == 2


def cost(comm):
    """A call is cheap since it makes few others once its place in the program is known; latency.py has the time."""
    value, made = np.ones(1, np.float32), []

    def note(frame, event, function):
        if event in ("call", "c_call"):
            made.append(frame.f_code.co_name if event == "call" else function.__name__)

    for _ in range(3):
        made.clear()
        sys.setprofile(note)
        comm.all_reduce(value)
        sys.setprofile(None)
    assert len(made) <= 12, made


with dlaunch.init() as world:
    assert world.comm is world.comm and world.comm.name == "world"
    world.comm.timeout = 60
    assert world.comm.timeout == 60
    collectives(world.comm)
    cost(world.comm)
    started(world.comm)
    groups(world.comm)
    objects(world.comm)
    store(world)
    threads(world)
    world.comm.barrier(ordered_output=True)
    print(f"rank {world.rank} of {world.size} is done")
