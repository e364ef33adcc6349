"""Two ranks, each on a host of its own, of which the first calls itself 127.0.1.1: rank 0 is found nevertheless.

names.py FOLDER OTHER    OTHER is what the second host is called when it cannot be
"""
import datetime
import os
import re
import sys

import torch
import torch.distributed as dist

rank, folder = int(os.environ["RANK"]), sys.argv[1]
LIMIT = datetime.timedelta(seconds=60)


def meets(**how):
    dist.init_process_group("dlaunch", timeout=LIMIT, **how)
    tensor = torch.ones(3) * (dist.get_rank() + 1)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3] * 3, tensor
    dist.destroy_process_group()


meets()
print(f"rank {rank} has met the other by the environment", flush=True)
# Rank 0 is not on the store's host.
store = dist.TCPStore("head", int(os.environ["MASTER_PORT"]) + 1, 2, rank == 0, LIMIT)
meets(store=store, rank=1 - rank, world_size=2)
print(f"rank {rank} has met the other from there", flush=True)
# No name that both know: the file says nothing of hosts.
del os.environ["MASTER_ADDR"]
meeting = f"{folder}/meeting"
store = dist.FileStore(meeting, 2)
try:
    meets(store=store, rank=rank, world_size=2)
except dist.DistBackendError as error:
    words = rf"rank 1 on {sys.argv[2]} cannot reach rank 0 on head, where 'head' is 127\.0\.1\.1; set MASTER_ADDR"
    assert re.search(words, str(error)), error
else:
    raise AssertionError("it met")
if rank == 0:
    # The next ranks that meet in this file find nothing of it.
    with open(meeting, "rb") as file:
        keys = set(re.findall(r"/[\w/]*/dlaunch/world/[\w/]*", file.read().decode(errors="replace")))
    assert any(key.endswith("/verdict") for key in keys) and any("/heard/" in key for key in keys), keys
    assert not [key for key in keys if store.check([key[1:]])], keys
print(f"rank {rank} was told why not", flush=True)
