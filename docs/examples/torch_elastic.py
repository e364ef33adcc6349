"""Training that survives a changing number of nodes; nothing in it knows of dlaunch.

    dlaunch --nnodes 1:4 --max-restarts 3 --rdzv-endpoint head:29400 torch_elastic.py

The same line on every node, at any time: each node that comes, goes or dies makes a new round, and
the workers of all nodes begin again where the last snapshot was taken.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

steps = int(os.environ.get("STEPS", "40"))
pause = float(os.environ.get("PAUSE", "0.1"))
snapshot = sys.argv[1] if len(sys.argv) > 1 else "/tmp/torch_elastic.pt"

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

state = torch.zeros(2)  # The step, and the parameter that is trained.
if rank == 0 and os.path.exists(snapshot):
    state = torch.load(snapshot)
dist.broadcast(state, src=0)
print(f"rank {rank} of {world} begins at step {int(state[0])}", flush=True)

while state[0] < steps:
    gradient = torch.full((1,), float(rank + 1))
    dist.all_reduce(gradient)
    state[1] += gradient[0] / world
    state[0] += 1
    time.sleep(pause)
    if rank == 0:
        torch.save(state, snapshot + ".new")
        os.replace(snapshot + ".new", snapshot)

print(f"rank {rank} of {world} is done after {int(state[0])} steps", flush=True)
dist.destroy_process_group()
