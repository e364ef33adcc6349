"""The rank that docs/examples/c_all_reduce.c is, in Python."""
import numpy as np

import dlaunch

with dlaunch.init() as world:
    gradient = np.full(1 << 16, world.comm.rank + 1, np.float32)
    world.comm.all_reduce(gradient, dlaunch.ReduceOp.MEAN, timeout=30)
    print(f"rank {world.rank} in Python, mean {gradient[0]:g}")
