"""A worker of PyTorch's that fails, or lets the others wait: group.py HOW MARK. The file MARK gets the time."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    how, mark = sys.argv[1:]
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        with open(mark, "w") as file:
            file.write(repr(time.time()))
        if how == "leave":
            os._exit(0)
        if how == "hang":
            time.sleep(1000)
    if how == "argument":
        dist.broadcast(torch.ones(1), src=7 if dist.get_rank() == 1 else 0)
        time.sleep(1000)
    dist.all_reduce(torch.ones(1))


main()
