"""Rank 1 is killed in the midst of its work; the others say so, with the line of their call."""
import os
import signal

import numpy as np

import dlaunch

with dlaunch.init() as world:
    world.comm.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        world.comm.all_reduce(np.zeros(1))
    except dlaunch.PeerLostError as error:
        print(f"as it should be: {error}", flush=True)
        raise
