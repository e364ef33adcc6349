"""What PyTorch builds on process groups: DDP, FSDP2, DTensor, functional collectives, checkpoints, Join.

training.py BACKEND prints DDP's losses, and a digest of all that was trained, which is the same for every backend with two
ranks. training.py BACKEND BACKEND prints the losses of each.
"""
import hashlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 8))


def inputs(rank, step):
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(1000 * step + rank))


def train(net, rank, steps=5):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(inputs(rank, step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses


def losses(rank, size):
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.005), rank)


def ddp(rank, size):
    said = losses(rank, size)
    print(f"rank {rank} of {size}: losses {' '.join(said)}")
    # A communication hook whose future is another call's.
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    net = DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(net, rank)
    net = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(net, rank)
    # Ranks with different numbers of inputs.
    net = DistributedDataParallel(model().eval())
    from torch.distributed.algorithms.join import Join
    with Join([net]):
        for step in range(rank + 1):
            net(inputs(rank, step)).sum().backward()
    # No bucket is waited for, and the group goes.
    return said


def fsdp(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (size,))
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    torch.manual_seed(1)
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train(net, rank)


def dtensor(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(48.0).reshape(8, 6)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.full_tensor(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    import torch.distributed._functional_collectives as functional
    total = functional.all_reduce(torch.ones(4), "sum", mesh)
    assert functional.wait_tensor(total).tolist() == [size] * 4
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, mesh)
    assert functional.wait_tensor(gathered).tolist() == [other for other in range(size) for _ in range(2)]
    return []


def checkpoint(rank, size):
    import torch.distributed.checkpoint as dcp
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    state = {"weights": torch.full((4,), 3.0), "step": 7}
    dcp.async_save(state, checkpoint_id=os.path.join(folder[0], "saved")).result()
    dist.barrier()
    loaded = {"weights": torch.zeros(4), "step": 0}
    dcp.load(loaded, checkpoint_id=os.path.join(folder[0], "saved"))
    assert loaded["weights"].tolist() == [3.0] * 4 and loaded["step"] == 7
    dist.barrier()
    return []


def main():
    if len(sys.argv) > 2:
        for backend in sys.argv[1:]:
            dist.init_process_group(backend)
            rank, size = dist.get_rank(), dist.get_world_size()
            print(f"rank {rank} of {size}: losses of {backend} {' '.join(losses(rank, size))}")
            dist.destroy_process_group()
        return
    dist.init_process_group(sys.argv[1])
    rank, size = dist.get_rank(), dist.get_world_size()
    digest = hashlib.sha256()
    for part in (ddp, fsdp, dtensor, checkpoint):
        digest.update(repr(part(rank, size)).encode())
    print(f"rank {rank} of {size}: trained {digest.hexdigest()[:16]}")
    dist.destroy_process_group()


main()
