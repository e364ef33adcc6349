"""Rank 1 is killed; the others go on without it. Started with --on-failure continue."""
import os
import signal

import numpy as np

import dlaunch

with dlaunch.init() as world:
    comm = world.comm
    comm.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(np.zeros(1))
    except (dlaunch.PeerLostError, dlaunch.RevokedError):
        comm.revoke()
        assert comm.agree(0b11 if world.rank == 0 else 0b01) == 0b01
        comm = comm.shrink()
    total = np.ones(1)
    comm.all_reduce(total)
    assert total[0] == comm.size == world.size - 1
    print(f"rank {world.rank} is done")
