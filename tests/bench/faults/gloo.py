"""A rank of torch gloo that says when it heard of another's end: `gloo.py kill|mismatch`, with env://'s variables."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
x = torch.zeros(16 << 10)
dist.all_reduce(x)
if rank == last:
    print(json.dumps({"victim": os.getpid()}), flush=True)
try:
    if sys.argv[1] == "mismatch" and rank == last:
        dist.broadcast(x, 0)
        dist.broadcast(x, 0)
    while True:
        dist.all_reduce(x)
except RuntimeError as error:
    print(json.dumps({"rank": rank, "told": time.monotonic_ns(), "what": str(error)[:80]}), flush=True)
os._exit(0)
