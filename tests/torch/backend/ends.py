"""A rank's end without destroy_process_group(), and what the other one hears: ends.py HOW RANK, for two ranks."""
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def end(how):
    if how == "raises":
        raise KeyError("of its own")
    if how == "exits":
        sys.exit(3)
    if how == "exits with text":
        sys.exit("no data")
    if how == "drops":  # The end waits for what others wait for.
        dist.all_reduce(torch.ones(1), async_op=True)
    if how == "raises and drops":
        dist.all_reduce(torch.ones(1), async_op=True)
        raise KeyError("of its own")
    if how == "aborts":
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).abort()
    sys.exit()


def main():
    dist.init_process_group("dlaunch", timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == int(sys.argv[2]):
        end(sys.argv[1])
    tensor = torch.ones(1)
    try:
        if sys.argv[1] == "raises and drops":
            dist.recv(tensor, 1)
        else:
            dist.all_reduce(tensor)
        print(f"the other has {tensor.item()}", flush=True)
    except dist.DistBackendError as error:
        print(f"the other hears: {error}", flush=True)
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        print(f"torch is told of {backend.get_error().name}" if hasattr(backend, "get_error") else "", flush=True)


main()
