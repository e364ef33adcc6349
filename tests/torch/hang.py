"""Rank 2 keeps the others waiting: in a collective, for a key, or for the group itself."""

import sys
import time

import torch
import torch.distributed as dist


def load(rank):
    print(f"rank {rank} waits", flush=True)
    if rank == 2:
        time.sleep(1000)


def main():
    mode = sys.argv[1]
    if mode == "group":
        import os

        load(int(os.environ["RANK"]))
    dist.init_process_group("gloo")
    load(dist.get_rank())
    if mode == "key":
        dist.distributed_c10d._get_default_store().get("never")
    dist.all_reduce(torch.ones(1))


main()
