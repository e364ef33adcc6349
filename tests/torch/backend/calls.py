"""Every call of torch.distributed that the backend has, with the results that it should have."""
import datetime
import functools
import os
import threading
import time

import torch
import torch.distributed as dist

from torch.distributed import ReduceOp


def same(got, wanted):
    torch.testing.assert_close(got, torch.as_tensor(wanted, dtype=got.dtype).expand_as(got))


def collectives(rank, size):
    total = size * (size + 1) // 2
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64, torch.complex64, torch.complex128):
        tensor = torch.full((3, 5), rank + 1).to(dtype)
        dist.all_reduce(tensor)
        same(tensor, total)
        tensor = torch.full((7,), rank + 1).to(dtype)
        dist.broadcast(tensor, size - 1)
        same(tensor, size)
    truth = torch.tensor([rank == 0, True, False])
    dist.all_reduce(truth, ReduceOp.MAX)
    assert truth.tolist() == [True, True, False]
    factorial = functools.reduce(int.__mul__, range(1, size + 1))
    for op, wanted in ((ReduceOp.MIN, 1), (ReduceOp.MAX, size), (ReduceOp.AVG, (size + 1) / 2),
                       (ReduceOp.PRODUCT, factorial), (dist._make_nccl_premul_sum(0.5), total / 2)):
        tensor = torch.full((4,), rank + 1.0)
        dist.all_reduce(tensor, op)
        same(tensor, wanted)
    # The mean of integers drops the fraction, as NCCL's does, and as Lightning's own with gloo: counts are averaged so.
    counts = torch.tensor([-rank, 2 * rank + 1])
    dist.all_reduce(counts, ReduceOp.AVG)
    assert counts.tolist() == [-((size - 1) * size // 2 // size), size], counts
    marks = [1 << other | 1 << 8 for other in range(size)]
    for op, folded in ((ReduceOp.BAND, int.__and__), (ReduceOp.BOR, int.__or__), (ReduceOp.BXOR, int.__xor__)):
        tensor = torch.tensor([marks[rank]])
        dist.all_reduce(tensor, op)
        same(tensor, functools.reduce(folded, marks))
    tensors = [torch.full((2,), rank + 1.0), torch.full((3,), 2.0 * (rank + 1))]
    twice = torch.ones(3)
    dist.all_reduce_coalesced([twice, torch.ones(1), twice])
    assert twice.tolist() == [size] * 3
    dist.all_reduce_coalesced(tensors)
    same(tensors[0], total)
    same(tensors[1], 2 * total)
    tensor = torch.full((2,), rank + 1.0)
    dist.reduce(tensor, 0)
    same(tensor, total if rank == 0 else rank + 1)

    lists = [torch.empty(3) for _ in range(size)]
    dist.all_gather(lists, torch.full((3,), float(rank)))
    for other, got in enumerate(lists):
        same(got, other)
    whole = torch.empty(size, 3)
    dist.all_gather_into_tensor(whole, torch.full((3,), float(rank)))
    assert whole[:, 0].tolist() == list(range(size))
    floats8 = torch.empty(size * 2, dtype=torch.float8_e4m3fn)
    dist.all_gather_into_tensor(floats8, torch.full((2,), float(rank)).to(torch.float8_e4m3fn))
    assert floats8.float()[::2].tolist() == list(range(size))
    lists = [torch.empty(2) for _ in range(size)] if rank == size - 1 else None
    dist.gather(torch.full((2,), float(rank)), lists, dst=size - 1)
    if lists:
        assert [got[0].item() for got in lists] == list(range(size))
    out = torch.empty(2)
    dist.scatter(out, [torch.full((2,), float(other)) for other in range(size)] if rank == 0 else None, src=0)
    same(out, rank)
    dist.reduce_scatter(out, [torch.full((2,), float(other + rank)) for other in range(size)])
    same(out, size * rank + size * (size - 1) / 2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size))
    assert out.tolist() == [2 * rank * size, (2 * rank + 1) * size]
    outputs = [torch.empty(1) for _ in range(size)]
    dist.all_to_all(outputs, [torch.full((1,), float(10 * rank + other)) for other in range(size)])
    assert [got.item() for got in outputs] == [10 * other + rank for other in range(size)]
    out = torch.empty(size)
    dist.all_to_all_single(out, 10.0 * rank + torch.arange(float(size)))
    assert out.tolist() == [10 * other + rank for other in range(size)]
    # Rank r gives every rank r + 1 rows.
    out = torch.empty(total, 2)
    dist.all_to_all_single(out, torch.full((size * (rank + 1), 2), float(rank)), [other + 1 for other in range(size)],
                           [rank + 1] * size)
    assert out[:, 0].tolist() == [other for other in range(size) for _ in range(other + 1)]
    # A rank that gives no sizes has equal ones; another that does may have a part of any size for itself.
    own, other = 3, 2
    if rank == 0:
        out = torch.empty(own + other * (size - 1))
        sizes = [own] + [other] * (size - 1)
        dist.all_to_all_single(out, torch.full_like(out, float(rank)), sizes, sizes)
    else:
        out = torch.empty(other * size)
        dist.all_to_all_single(out, torch.full_like(out, float(rank)))
    assert out.tolist() == [sender for sender in range(size)
                            for _ in range(own if sender == rank == 0 else other)]
    # What a call only reads may lie in any order, and where all_to_all writes.
    column = torch.stack([torch.arange(3.0), torch.full((3,), float(rank))], 1)[:, 1]
    assert not column.is_contiguous()
    parts = [torch.empty(3) for _ in range(size)]
    dist.all_gather(parts, column)
    assert [got.tolist() for got in parts] == [[other] * 3 for other in range(size)]
    whole = torch.empty(size * 3)
    dist.all_gather_into_tensor(whole, column)
    assert whole.tolist() == [other for other in range(size) for _ in range(3)]
    dist.gather(column, parts if rank == 0 else None)
    # So may the results of a gather or an all_to_all.
    columns = torch.zeros(3, 2 * size)
    results = [columns[:, 2 * other] for other in range(size)]
    dist.all_gather(results, column)
    assert columns.tolist() == [[other // 2 if other % 2 == 0 else 0 for other in range(2 * size)]] * 3
    columns.zero_()
    dist.gather(column, results if rank == 0 else None)
    assert columns[:, ::2].tolist() == [[other if rank == 0 else 0 for other in range(size)]] * 3
    work = dist.all_to_all(results, [column] * size, async_op=True)
    work.get_future().wait()
    assert columns[:, ::2].tolist() == [list(range(size))] * 3
    out = torch.empty(3)
    columns = torch.arange(3.0 * size).reshape(3, size)
    dist.scatter(out, [columns[:, other] for other in range(size)] if rank == 0 else None)
    assert out.tolist() == columns[:, rank].tolist()
    dist.reduce_scatter_tensor(out, columns.t())
    assert out.tolist() == [size * value for value in columns[:, rank].tolist()]
    both = list((10.0 * rank + torch.arange(float(size))).split(1))
    dist.all_to_all(both, both)
    assert [got.item() for got in both] == [10 * other + rank for other in range(size)]
    one = 10.0 * rank + torch.arange(float(size))
    dist.all_to_all_single(one, one)
    assert one.tolist() == [10 * other + rank for other in range(size)]
    dist.barrier()
    coalesced(rank, size)
    several(rank, size)


def coalesced(rank, size):
    # What of one kind is asked for in a block is one call; with a device it is as many as were asked for.
    for device in (None, torch.device("cpu")):
        with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as works:
            first, second = torch.ones(2), torch.ones(3)
            dist.all_reduce(first)
            dist.all_reduce(second)
        works.wait()
        same(first, size)
        same(second, size)
    wholes = [torch.empty(size * length) for length in (1, 3)]
    with dist.distributed_c10d._coalescing_manager():
        for length, whole in zip((1, 3), wholes):
            dist.all_gather_into_tensor(whole, torch.full((length,), float(rank)))
    for length, whole in zip((1, 3), wholes):
        assert whole.tolist() == [other for other in range(size) for _ in range(length)]
    parts = [torch.empty(length) for length in (1, 3)]
    with dist.distributed_c10d._coalescing_manager():
        for length, part in zip((1, 3), parts):
            dist.reduce_scatter_tensor(part, torch.arange(float(size * length)))
    for length, part in zip((1, 3), parts):
        assert part.tolist() == [size * (length * rank + place) for place in range(length)]
    lists = [[torch.empty(1), torch.empty(2, 2)] for _ in range(size)]
    own = [torch.full((1,), float(rank)), torch.full((2, 2), 10.0 * rank)]
    future = dist.all_gather_coalesced(lists, own, async_op=True)  # A future, and no work.
    value = future.wait() if size > 1 else [future.wait()]
    assert [[tensor.shape for tensor in each] for each in value] == [[tensor.shape for tensor in own]] * size
    for other, (one, square) in enumerate(lists):
        same(one, other)
        same(square, 10 * other)


def several(rank, size):
    """As many tensors of a rank as gloo takes in a call."""
    group = dist.distributed_c10d._get_default_group()
    values = [float(tensor + 2 * other) for other in range(size) for tensor in range(2)]
    for op, wanted in ((ReduceOp.SUM, sum(values)), (ReduceOp.MAX, max(values)), (ReduceOp.MIN, 0),
                       (ReduceOp.AVG, sum(values) / len(values))):
        options = dist.AllreduceOptions()
        options.reduceOp = op
        tensors = [torch.full((3,), values[2 * rank]), torch.full((3,), values[2 * rank + 1])]
        group.allreduce(tensors, options).wait()
        for tensor in tensors:
            same(tensor, wanted)
    for root_tensor in range(2):
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = size - 1, root_tensor
        tensors = [torch.full((3,), values[2 * rank]), torch.full((3,), values[2 * rank + 1])]
        group.broadcast(tensors, options).wait()
        for tensor in tensors:
            same(tensor, values[2 * (size - 1) + root_tensor])
    columns = torch.zeros(2, 2 * size)  # The second list is one of columns.
    lists = [[torch.empty(2) for _ in values], [columns[:, place] for place in range(2 * size)]]
    work = group.allgather(lists, [torch.full((2,), values[2 * rank]), torch.full((2,), values[2 * rank + 1])])
    for results in (*lists, *work.get_future().wait()):
        assert [tensor.tolist() for tensor in results] == [[value] * 2 for value in values]
    results = [torch.empty(1), torch.empty(1)]
    group.reduce_scatter(results, [[torch.tensor([float(other)]) for other in range(size)],
                                   [torch.tensor([10.0 * other]) for other in range(size)]]).wait()
    assert [result.item() for result in results] == [size * rank, 10 * size * rank]


def objects(rank, size):
    everyones = [None] * size
    dist.all_gather_object(everyones, {"rank": rank})
    assert everyones == [{"rank": other} for other in range(size)]
    listed = [rank, "text"]
    dist.broadcast_object_list(listed, 0)
    assert listed == [0, "text"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered)
    assert rank or gathered == list(range(size))
    large = [bytes(range(256)) * (1 << 18) if rank == 0 else None]  # 64 MiB.
    dist.broadcast_object_list(large, 0)
    assert len(large[0]) == 1 << 26 and large[0][-256:] == bytes(range(256))


def messages(rank, size):
    if size == 1:
        return
    following, before = (rank + 1) % size, (rank - 1) % size
    got = torch.empty(1 << 18)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((1 << 18,), float(rank)), following),
                                    dist.P2POp(dist.irecv, got, before)])
    for work in works:
        work.wait()
    same(got, before)
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            tensor = torch.empty(2, dtype=torch.int64)
            source = dist.recv(tensor)  # From any rank.
            assert tensor.tolist() == [source, 7]
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.tensor([rank, 7]), 0)
    # From any rank, by its tag: the message that came before has another.
    dist.barrier()
    if rank == 0:
        tensor = torch.empty(1)
        assert dist.recv(tensor, tag=12) == size - 1 and tensor.item() == 12
        assert dist.recv(tensor, tag=11) == size - 1 and tensor.item() == 11
    if rank == size - 1:
        for tag in (11, 12):
            dist.send(torch.full((1,), float(tag)), 0, tag=tag)
    # Tags tell messages apart, whatever their order.
    if rank == 0:
        dist.send(torch.tensor([1]), 1, tag=1)
        dist.send(torch.tensor([2]), 1, tag=2)
    if rank == 1:
        tensor = torch.empty(1, dtype=torch.int64)
        dist.recv(tensor, 0, tag=2)
        assert tensor.item() == 2
        dist.recv(tensor, 0, tag=1)
        assert tensor.item() == 1
    dist.barrier()


def futures(rank, size):
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    # A callback may start calls and wait for them.
    nested = work.get_future().then(
        lambda future: dist.all_reduce(future.value()[0].clone(), async_op=True).get_future().wait()[0])
    same(nested.wait(), size * size)
    assert work.is_completed()
    works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(20)]
    del works[3:]  # What is dropped goes on.
    for work in works:
        work.wait()
    if size > 1:
        work = dist.irecv(torch.empty(1), (rank + 1) % size, tag=9)
        assert not work.is_completed()
        future = work.get_future()
        dist.barrier()
        dist.isend(torch.zeros(1), (rank - 1) % size, tag=9).wait()
        future.wait()
        polled(rank, size)
    dist.barrier()


def polled(rank, size):
    """A thread that waits for long keeps no other from seeing that its call has ended."""
    waits = threading.Event()

    def receive():
        waits.set()
        dist.recv(torch.empty(1), (rank - 1) % size, tag=13)

    receiver = threading.Thread(target=receive)
    receiver.start()
    waits.wait()
    for _ in range(20):  # The receiver has begun to wait in the first ones.
        work = dist.all_reduce(torch.ones(1), async_op=True)
        message = dist.isend(torch.ones(1), (rank + 1) % size, tag=14)
        late = time.monotonic() + 30
        while not (work.is_completed() and message.is_completed()):
            assert time.monotonic() < late, "a call that has ended is not seen to have"
            time.sleep(0.001)  # As those do that have other work meanwhile.
        dist.recv(torch.empty(1), (rank - 1) % size, tag=14)
    dist.send(torch.ones(1), (rank + 1) % size, tag=13)
    receiver.join()


def numbers(rank, size):
    """Collectives are counted, by all ranks alike, and messages are not."""
    group = dist.distributed_c10d._get_default_group()
    group._enable_collectives_timing()  # It is NCCL's, and torch asks all backends.
    backend = group._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 1
    if size > 1:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), (rank + 1) % size),
                                        dist.P2POp(dist.irecv, torch.ones(1), (rank - 1) % size)])
        for work in works:
            work.wait()
    assert backend._get_sequence_number_for_group() == before + 1
    everyones = torch.empty(size, dtype=torch.int64)
    dist.all_gather_into_tensor(everyones, torch.tensor([before]))
    same(everyones, before)


def groups(rank, size):
    evens = dist.new_group(list(range(0, size, 2)))
    if rank % 2 == 0:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=evens)
        same(tensor, (size + 1) // 2)
    own = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(torch.ones(1), group=own)
    pg = dist.distributed_c10d._get_default_group()
    if hasattr(pg, "split_group"):
        half = max(1, size // 2)
        parts = [part for part in (list(range(half)), list(range(half, size))) if part]
        mine = next(part for part in parts if rank in part)
        made = pg.split_group(mine, group_name=f"part{mine[0]}")
        tensor = torch.ones(3)
        made.allreduce([tensor]).wait()
        same(tensor, len(mine))
        if hasattr(made, "merge_remote_group"):
            whole = made.merge_remote_group(dist.distributed_c10d._get_default_store(), size,
                                            datetime.timedelta(seconds=30), "whole", "merged")
            tensor = torch.ones(3)
            whole.allreduce([tensor]).wait()
            same(tensor, size)
    pg.monitored_barrier(datetime.timedelta(seconds=30))
    dist.barrier()


def main():
    dist.init_process_group(os.environ.get("BACKEND", "dlaunch"))
    rank, size = dist.get_rank(), dist.get_world_size()
    for part in (collectives, objects, messages, futures, numbers, groups):
        part(rank, size)
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL":  # Torch compares what the ranks ask for first.
        try:
            dist.all_reduce(torch.ones(1 + rank))
            raise AssertionError("nobody found that the shapes differ")
        except RuntimeError as error:
            assert "Detected mismatch between collectives on ranks" in str(error), error
    dist.destroy_process_group()
    # Again, in the same process. With DETAIL torch adds groups of gloo, which find the addresses of the last ones in
    # the store.
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") != "DETAIL":
        for _ in range(5):
            dist.init_process_group("dlaunch")
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            same(tensor, size)
            dist.destroy_process_group()
    print(f"rank {rank} of {size}: every call is right")


main()
