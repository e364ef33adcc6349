"""A worker of torchrun, whose agents meet at our store: all fail in the first attempt, so they gather once more."""

import os
import sys

import torch
import torch.distributed as dist

ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def main():
    dist.init_process_group("gloo")
    tensor = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(tensor)
    rank, world = dist.get_rank(), dist.get_world_size()
    assert tensor.item() == world * (world + 1) // 2
    dist.barrier()
    dist.destroy_process_group()
    if ATTEMPT == 0:
        sys.exit(3)
    print("rank %d of %d met the others again" % (rank, world), flush=True)


main()
