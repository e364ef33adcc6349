"""A script that needs no launcher: it looks for a free port by itself and spawns its own workers.

Under a launcher it is the only process, and its own MASTER_PORT must work as if it were alone.
"""

import argparse
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def is_free_port(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("localhost", port))
            return True
        except OSError:
            return False


def find_free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def work(local_rank, world):
    dist.init_process_group("gloo", init_method="env://", rank=local_rank, world_size=world)
    dist.barrier()
    tensor = torch.tensor([float(local_rank)])
    dist.all_reduce(tensor)
    assert tensor.item() == world * (world - 1) / 2
    dist.destroy_process_group()
    # The spawned processes share one pipe: one write for each line, also where PYTHONUNBUFFERED is set, with which
    # print() writes the text and the end of the line apart.
    sys.stdout.write("spawned rank %d of %d: the sum is right\n" % (local_rank, world))
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--master_addr", default="localhost")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("--nproc_per_node", type=int, default=4)
    arguments = parser.parse_args()

    port = arguments.master_port
    if not is_free_port(port):
        port = find_free_port()
    os.environ["MASTER_ADDR"] = arguments.master_addr
    os.environ["MASTER_PORT"] = str(port)
    mp.spawn(work, args=(arguments.nproc_per_node,), nprocs=arguments.nproc_per_node, join=True)


if __name__ == "__main__":
    main()
