"""What DistributedDataParallel on gloo adds to a step of 64 layers with gradients of 1 MiB each.

    dlaunch --nproc_per_node 2 PYTHON ddp.py [--steps N] [--view]

The same layers, batch and buckets as ours.cpp, the same lines of JSON. --view: gradients are views of the buckets.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, BATCH = 64, 512, 8


class Layers(torch.nn.Module):
    """Each layer sees the same input, so that backward computes the weights' gradients alone."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, x):
        return sum(layer(x).sum() for layer in self.layers)


def measure(model, x, steps):
    costs = []
    for step in range(-2, steps):
        model.zero_grad(set_to_none=False)
        loss = model(x)  # Not timed: ours has no forward pass.
        dist.barrier()
        begin = time.perf_counter()
        loss.backward()
        took = torch.tensor([(time.perf_counter() - begin) * 1e3])
        dist.all_reduce(took, dist.ReduceOp.MAX)
        if step >= 0:
            costs.append(took.item())
    return costs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--view", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    x = torch.ones(BATCH, WIDTH)
    alone = statistics.median(measure(Layers(), x, arguments.steps))
    ddp = DistributedDataParallel(Layers(), bucket_cap_mb=1, gradient_as_bucket_view=arguments.view)
    costs = measure(ddp, x, arguments.steps)
    if dist.get_rank() == 0:
        median = statistics.median(costs)
        print(json.dumps({"who": "torch " + torch.__version__, "way": "ddp, views" if arguments.view else "ddp",
                          "ranks": dist.get_world_size(), "ms": round(median, 3), "least": round(min(costs), 3),
                          "most": round(max(costs), 3), "added": round(median - alone, 3)}), flush=True)
    dist.barrier()


main()
os._exit(0)  # torch 2.13 aborts now and then while the interpreter ends it.
