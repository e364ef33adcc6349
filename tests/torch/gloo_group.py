"""A gloo group from the environment, and one of each kind of collective in it."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    every = list(range(world))

    tensor = torch.full((1000,), float(rank + 1))
    dist.all_reduce(tensor)
    assert (tensor == world * (world + 1) / 2).all(), tensor

    tensor = torch.tensor([rank])
    dist.broadcast(tensor, src=world - 1)
    assert tensor.item() == world - 1

    gathered = [torch.zeros(2) for _ in every] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), gathered, dst=0)
    if rank == 0:
        assert [int(each[0]) for each in gathered] == every, gathered

    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert [each["rank"] for each in objects] == every, objects

    # Groups within the group, which meet in the store again.
    for parity in (0, 1):
        members = [each for each in every if each % 2 == parity]
        group = dist.new_group(members)
        if rank in members:
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(members)
    dist.barrier()

    dist.destroy_process_group()
    print("rank %d of %d: the group is right" % (rank, world), flush=True)


main()
