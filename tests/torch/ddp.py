"""A small model trained by DistributedDataParallel, checked against the same steps in one process."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
ROWS_PER_RANK = 8


def new_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs, targets in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(2)
    batches = [(torch.randn(ROWS_PER_RANK * world, 16), torch.randn(ROWS_PER_RANK * world, 4))
               for _ in range(STEPS)]
    rows = slice(rank * ROWS_PER_RANK, (rank + 1) * ROWS_PER_RANK)

    together = DistributedDataParallel(new_model())
    train(together, [(inputs[rows], targets[rows]) for inputs, targets in batches])
    alone = new_model()
    train(alone, batches)

    for ours, theirs in zip(together.module.parameters(), alone.parameters()):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6), (ours - theirs).abs().max()
    dist.destroy_process_group()
    print("rank %d of %d: the model is right" % (rank, world), flush=True)


main()
