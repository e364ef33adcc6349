"""A program as users write it, for mypy --strict."""
from typing import List, Optional

import dlaunch


def total(comm: dlaunch.Communicator, values: bytearray) -> int:
    comm.all_reduce(values, dlaunch.ReduceOp.MAX, timeout=1.5)
    work: dlaunch.Work = comm.start_all_reduce(values)
    work.wait()
    received: Optional[dlaunch.Received] = work.received
    index: Optional[int] = dlaunch.wait_any([work, None])
    message: Optional[dlaunch.Message] = comm.try_match()
    if message is not None:
        comm.recv_matched(message, values)
    works: List[dlaunch.Work] = comm.start_batch([dlaunch.Transfer.send(values, 0), dlaunch.Transfer.recv(values, 0)])
    complete: List[int] = dlaunch.wait_some(works + [comm.start_probe()], 1)
    del complete[:]
    return sum(values) + (received.elements if received else 0) + (index or 0)


def uneven(comm: dlaunch.Communicator, inputs: List[bytearray]) -> Optional[int]:
    with dlaunch.Join(comm, lambda: comm.barrier(), early_termination=True) as join:
        for _ in inputs:
            join.announce()
            comm.barrier()
    return join.last


def rank() -> int:
    with dlaunch.init(timeout=10) as world:
        found: Optional[bytes] = world.store.get("key")
        half = world.comm.split(world.rank % 2)
        return world.rank + len(found or b"") + (half.size if half else 0)


class Number:
    """As NumPy's."""

    def __index__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 1.0


def by_numbers(comm: dlaunch.Communicator, values: bytearray) -> None:
    comm.broadcast(values, Number(), timeout=Number())
    comm.all_gather(values, values, (Number() for _ in range(comm.size)))
    comm.group(range(comm.size))


def main() -> List[int]:
    try:
        return [int(value) for value in dlaunch.run(rank, nproc=2)]
    except dlaunch.RunError as error:
        return [error.exit_code]
