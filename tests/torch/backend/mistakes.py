"""What is wrong with a call is a Python exception with a sentence, and the group goes on."""
import multiprocessing
import re
import threading
import time
from datetime import timedelta

import dlaunch_torch
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


def alone(rank, size):
    """Mistakes of one rank: the others do not hear of them."""
    table = torch.zeros(4, 3)
    refused(ValueError, r"^all_reduce: Tensors must be contiguous.*do not lie side by side.*\[mistakes.py:\d+\]$",
            dist.all_reduce, table[:, 1])
    refused(NotImplementedError, r"^all_reduce: .*sparse.*to_dense", dist.all_reduce, table.to_sparse())
    refused(ValueError, r"^all_reduce: dlaunch cannot reduce elements of type Float8_e4m3fn", dist.all_reduce,
            torch.zeros(4).to(torch.float8_e4m3fn))
    refused(ValueError, r"one element type.*Double and Float", dist.all_gather_into_tensor,
            torch.empty(size * 4, dtype=torch.float64), torch.empty(4))
    refused(ValueError, rf"has 5 elements, and not {size} times the 4 of one rank", dist.all_gather_into_tensor,
            torch.empty(5), torch.empty(4))
    refused(ValueError, r"split sizes come to 9", dist.all_to_all_single, torch.empty(size), torch.empty(size),
            [9] + [0] * (size - 1), [1] * size)
    refused(ValueError, r"^all_reduce: AVG of Bool elements makes no sense: cast first .* \[mistakes.py:\d+\]$",
            dist.all_reduce, torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
    refused(ValueError, "BAND of Float elements makes no sense: bitwise", dist.reduce_scatter_tensor, torch.empty(1),
            torch.empty(size), dist.ReduceOp.BAND)
    freed, cut = torch.ones(4), torch.ones(4, 3)[:, 1]
    freed.untyped_storage().resize_(0)
    cut.untyped_storage().resize_(8)
    refused(ValueError, "^all_reduce: the memory of this tensor was freed: its 4 elements take 16 bytes, and its "
            "storage has 0", dist.all_reduce, freed)
    refused(ValueError, "was freed.*44 bytes, and its storage has 8", dist.all_gather, [torch.empty(4)] * size, cut)
    refused(ValueError, "was freed.*44 bytes, and its storage has 8", dist.all_gather, [cut] * size, torch.empty(4))
    refused(ValueError, "was freed", dist.isend, freed, (rank + 1) % size)
    refused(ValueError, "gives itself 3 elements, and takes 2", dist.all_gather, [torch.empty(2)] * size,
            torch.empty(3))
    refused(ValueError, "gives itself 1 element, and takes 2", dist.all_to_all_single, torch.empty(2 * size),
            torch.empty(size))
    buffer = torch.empty(4 * size + 1)
    whole, part = buffer[:-1], buffer[1:5]  # Not where the part of a rank begins.
    refused(ValueError, "read and what is written overlap", dist.all_gather_into_tensor, whole, part)
    refused(ValueError, "read and what is written overlap", dist.reduce_scatter_tensor, part, whole)
    group = dist.distributed_c10d._get_default_group()
    refused(ValueError, "several tensors of a rank have one shape.*3.*4", group.allreduce,
            [torch.ones(3), torch.ones(4)])
    mean = dist.AllreduceOptions()
    mean.reduceOp = dist.ReduceOp.AVG
    refused(ValueError, "AVG of several tensors of integers would drop the fraction twice: .*, or sum and divide",
            group.allreduce, [torch.tensor([1]), torch.tensor([2])], mean)
    # A deprecated function, whose decorator has a frame of its own.
    refused(ValueError, r"gives itself 1 element, and takes 2 \[mistakes.py:", dist.all_gather_coalesced,
            [[torch.zeros(2)]] * size, [torch.zeros(1)])
    if size > 1:
        refused(ValueError, "all_gather: results overlap", dist.all_gather, [torch.empty(2)] * size, torch.empty(2))
    # torch itself keeps tensors of other devices away from a backend for the host.
    refused(ValueError, r"this tensor is on meta.*cpu:dlaunch,cuda:nccl", backend_of(group).allreduce,
            [torch.empty(3, device="meta")])
    refused(ValueError, "twice|one", dist.init_process_group, "dlaunch")
    refused(ValueError, "more than zero", backend_of(group)._set_default_timeout, timedelta(0))
    if hasattr(dist, "shrink_group"):
        function = dist.shrink_group
        del dist.shrink_group
        refused(NotImplementedError, "shrink_group: torch .* cannot shrink a process group, which goes on",
                dlaunch_torch.shrink_group)
        dist.shrink_group = function
    work = dist.irecv(torch.empty(1), (rank + 1) % size, tag=5)
    refused(dist.DistBackendError, r"recv #\d+ on rank \d: timed out.*within 50 ms.*no message came", work.wait,
            timedelta(milliseconds=50))


def backend_of(group):
    return group._get_backend(torch.device("cpu"))


def late(groups):
    """A rank waits for another, which does not come. Each group is broken then, and no other."""
    limit = timedelta(milliseconds=300)
    absent = r"waited (0.001|0.3|1.5) s; absent: rank 1 .*\[mistakes.py:\d+\]$"
    # What waits for a shorter time than its call has goes on.
    work = dist.all_reduce(torch.ones(1), async_op=True)
    refused(dist.DistBackendError, r"^all_reduce #\d+ on rank 0: timed out, .*within 50 ms; it goes on", work.wait,
            timedelta(milliseconds=50))
    assert not work.is_success()
    dist.send(torch.ones(1), 1)  # It calls all_reduce now.
    work.wait()
    assert work.is_success() and work.is_completed()

    refused(dist.DistBackendError, absent, dist.all_reduce, torch.ones(1), group=groups["short"])
    options = dist.AllreduceOptions()
    options.timeout = limit
    refused(dist.DistBackendError, absent, groups["one call"].allreduce, [torch.ones(1)], options)
    refused(dist.DistBackendError, "^barrier.*" + absent, groups["barrier"].monitored_barrier, limit, True)
    refused(dist.DistBackendError, "^barrier.*" + absent, groups["at once"].monitored_barrier, timedelta(0), True)

    backend = backend_of(groups["changed"])
    if hasattr(backend, "get_error"):
        assert backend.get_error().name == "SUCCESS"
    backend._set_default_timeout(limit)
    assert backend.options._timeout == limit and backend.options.backend == "dlaunch"
    if hasattr(groups["changed"], "set_timeout"):
        groups["changed"].set_timeout(2 * limit)
        assert backend.options._timeout == 2 * limit
        groups["changed"].set_timeout(limit)
    work = dist.all_reduce(torch.ones(1), group=groups["changed"], async_op=True)
    future = work.get_future()
    refused(dist.DistBackendError, absent, future.wait)
    refused(dist.DistBackendError, absent, work.wait)
    assert work.is_completed() and not work.is_success()
    if hasattr(backend, "get_error"):
        assert backend.get_error().name == "TIMEOUT"


def aborted(group):
    """What is under way ends, on all threads."""
    aborts = r"rank 0 aborted the communicator \[mistakes.py:\d+\]$"
    received = []

    def receive():
        work = group.recv([torch.empty(1)], 1, 0)
        received.append(work)
        refused(dist.DistBackendError, aborts, work.wait)
        received.append("told")

    receiver = threading.Thread(target=receive)
    receiver.start()
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    while not received:
        time.sleep(0)
    dist.distributed_c10d._abort_process_group(group)
    refused(dist.DistBackendError, aborts, work.wait)
    receiver.join()
    assert received[-1] == "told"
    refused(dist.DistBackendError, aborts, group.allreduce, [torch.ones(1)])


def main():
    dist.init_process_group("dlaunch", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        alone(rank, size)
    if size > 1:
        table, peer = torch.zeros(4, 3), (rank + 1) % size
        refused(ValueError, "^recv: Tensors must be contiguous", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.ones(4), peer), dist.P2POp(dist.irecv, table[:, 1], peer)])
        dist.recv(torch.empty(4), (rank - 1) % size)
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
        groups = {name: dist.new_group() for name in ("one call", "barrier", "at once", "changed", "aborted")}
        groups["short"] = dist.new_group(timeout=timedelta(seconds=1.5))
        if rank == 0:
            late(groups)
            aborted(groups["aborted"])
        else:
            dist.recv(torch.empty(1), 0)
            dist.all_reduce(torch.ones(1))
        dist.barrier()
        # Ranks that make different calls are told both. The group is broken then.
        wrong = dist.all_reduce if rank == 0 else dist.barrier
        both = r"(?=.*rank 0 is in all_reduce #4 \(sum, f32, 2 elements\) \[\S*mistakes.py:\d+\]).*rank 1 is in barrier #4"
        refused(dist.DistBackendError, both, wrong, *([torch.ones(2)] if rank == 0 else []))
        refused(dist.DistBackendError, "all_reduce", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.ones(4), 1 - rank)])
        refused(dist.DistBackendError, "all_reduce", dist.all_reduce, torch.ones(2))
    print(f"rank {rank} of {size}: all is as it should be", flush=True)


main()
