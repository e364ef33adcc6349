"""What is wrong with a call is a Python exception with a sentence, and the group goes on."""
import multiprocessing
import re
from datetime import timedelta

import torch
import torch.distributed as dist


def refused(kind, sentence, call, *arguments, **more):
    try:
        work = call(*arguments, **more)
        if work is not None:
            work.wait()
    except kind as error:
        text = str(error)
        assert re.search(sentence, text), f"{text!r} does not say {sentence!r}"
        assert "\n" not in text.strip(), text
        return
    raise AssertionError(f"nothing was refused: {sentence}")


def child(queue):
    try:
        dist.all_reduce(torch.ones(1))
    except ValueError as error:
        queue.put(str(error))


def main():
    dist.init_process_group("dlaunch", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    table = torch.zeros(4, 3)
    refused(ValueError, r"^all_reduce: Tensors must be contiguous.*do not lie side by side.*\[mistakes.py:\d+\]$",
            dist.all_reduce, table[:, 1])
    refused((ValueError, NotImplementedError), r"^all_reduce: .*sparse.*to_dense", dist.all_reduce, table.to_sparse())
    refused(ValueError, r"^all_reduce: dlaunch cannot reduce elements of type Float8_e4m3fn", dist.all_reduce,
            torch.zeros(4).to(torch.float8_e4m3fn))
    refused(ValueError, r"one element type.*Double and Float", dist.all_gather_into_tensor,
            torch.empty(size * 4, dtype=torch.float64), torch.empty(4))
    refused(ValueError, rf"has 5 elements, and not {size} times the 4 of one rank", dist.all_gather_into_tensor,
            torch.empty(5), torch.empty(4))
    refused(ValueError, r"split sizes come to 9", dist.all_to_all_single, torch.empty(size), torch.empty(size),
            [9] + [0] * (size - 1), [1] * size)
    refused(ValueError, r"mean of i64 elements.*, or sum and divide \[mistakes.py:\d+\]$", dist.all_reduce, torch.ones(2, dtype=torch.int64),
            dist.ReduceOp.AVG)
    if size == 1:  # A deprecated function, whose decorator has a frame of its own.
        refused((ValueError, dist.DistBackendError), r"'out\[0\]'.*\[mistakes.py:", dist.all_gather_coalesced,
                [[torch.zeros(2)]], [torch.zeros(1)])
    else:
        peer = (rank + 1) % size
        refused(ValueError, "^recv: Tensors must be contiguous", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.ones(4), peer), dist.P2POp(dist.irecv, table[:, 1], peer)])
        dist.recv(torch.empty(4), (rank - 1) % size)
    # torch itself keeps tensors of other devices away from a backend for the host.
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    refused(ValueError, r"this tensor is on meta.*cpu:dlaunch,cuda:nccl", backend.allreduce,
            [torch.empty(3, device="meta")])
    refused(ValueError, "twice|one", dist.init_process_group, "dlaunch")
    work = dist.irecv(torch.empty(1), (rank + 1) % size, tag=5)
    refused(dist.DistBackendError, r"recv #\d+ on rank \d: timed out.*within 50 ms.*no message came", work.wait,
            timedelta(milliseconds=50))
    queue = multiprocessing.get_context("fork").Queue()
    process = multiprocessing.get_context("fork").Process(target=child, args=(queue,))
    process.start()
    assert "this process was forked from process" in queue.get(timeout=60)
    process.join()
    # All that has harmed nobody.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3
    if size > 1:
        # Ranks that make different calls are told both. The group is broken then.
        wrong = dist.all_reduce if rank == 0 else dist.barrier
        both = r"(?=.*rank 0 is in all_reduce #3 \(sum, f32, 2 elements\) \[\S*mistakes.py:\d+\]).*rank 1 is in barrier #3"
        refused(dist.DistBackendError, both, wrong, *([torch.ones(2)] if rank == 0 else []))
        refused(dist.DistBackendError, "all_reduce", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.ones(4), 1 - rank)])
        refused(dist.DistBackendError, "all_reduce", dist.all_reduce, torch.ones(2))
    print(f"rank {rank} of {size}: all is as it should be", flush=True)


main()
