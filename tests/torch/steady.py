"""A job that lasts: an all_reduce each period; ends once the file that it is given is there for all.

steady.py FILE PERIOD_SECONDS"""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tick = 0
while True:
    tick += 1
    both = torch.tensor([1, int(os.path.exists(sys.argv[1]))])
    dist.all_reduce(both)
    assert both[0] == dist.get_world_size()
    if both[1] == dist.get_world_size():
        break
    print("rank %d tick %d" % (dist.get_rank(), tick), flush=True)
    time.sleep(float(sys.argv[2]))
print("rank %d ends" % dist.get_rank(), flush=True)
dist.destroy_process_group()
