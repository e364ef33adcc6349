"""Rank 1 leaves early, is stopped, or is done while rank 0 goes on: what can be seen of it from outside."""

import os
import signal
import sys

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    mode = sys.argv[1]
    if dist.get_rank() == 1 and mode == "leave":
        os._exit(0)
    if dist.get_rank() == 1 and mode == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if mode == "linger":
        if dist.get_rank() == 1:
            os._exit(0)
        signal.pause()
    dist.all_reduce(torch.ones(1))


main()
