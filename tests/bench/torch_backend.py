#!/usr/bin/env python3
"""Step times of DistributedDataParallel, and all_reduce, by the backend dlaunch beside gloo, in turns in one run.

    dlaunch --nproc_per_node 2 tests/bench/torch_backend.py [--parameters 1,4,64] [--rounds N]

Two nodes on one host are two agents: the same line with `--nnodes 2 --rdzv-endpoint 127.0.0.1:PORT --node-id a` and `b`.
Prints, by rank 0, the medians and their ratio; and whether both trained the same bits.
"""
import argparse
import hashlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("gloo", "dlaunch")
WIDTHS = {1: 512, 4: 1024, 64: 4096}  # Millions of parameters: the width of four square layers.
BATCH = 8


class Trained:
    def __init__(self, width, group):
        torch.manual_seed(0)
        net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())))
        self.net = DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        self.width = width
        self.step_count = 0
        self.losses = []

    def step(self):
        """Seconds of one."""
        generator = torch.Generator().manual_seed(1000 * self.step_count + dist.get_rank())
        inputs = torch.randn(BATCH, self.width, generator=generator)
        self.step_count += 1
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.net(inputs).square().mean()
        loss.backward()
        self.optimizer.step()
        took = time.perf_counter() - begin
        self.losses.append(loss.item().hex())
        return took

    def digest(self):
        whole = hashlib.sha256(repr(self.losses).encode())
        for parameter in self.net.parameters():
            whole.update(parameter.detach().numpy().tobytes())
        return whole.hexdigest()


def without_communication(trained):
    """A step of this rank alone."""
    with trained.net.no_sync():
        return trained.step()


def slowest(seconds):
    """A step takes as long as that of the slowest rank."""
    tensor = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def ddp(millions, groups, rounds):
    trained = {name: Trained(WIDTHS[millions], group) for name, group in groups.items()}
    times = {name: [] for name in BACKENDS}
    for turn in range(rounds + 2):
        for name in BACKENDS if turn % 2 else reversed(BACKENDS):
            dist.barrier()
            took = slowest(trained[name].step())
            if turn >= 2:  # The first ones make connections and buffers.
                times[name].append(took)
    bits = {name: each.digest() for name, each in trained.items()}
    equal = "the same bits" if len(set(bits.values())) == 1 else "other bits"
    # Of another model, as no_sync leaves gradients of its own behind.
    alone = statistics.median(slowest(without_communication(trained["dlaunch"])) for _ in range(max(3, rounds // 3)))
    report(f"ddp {millions} M", times, f"{equal}; without communication {1000 * alone:.2f} ms")


def all_reduce(mebibytes, groups, rounds):
    tensor = torch.ones(mebibytes << 18)
    times = {name: [] for name in BACKENDS}
    for turn in range(rounds + 2):
        for name in BACKENDS if turn % 2 else reversed(BACKENDS):
            tensor.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(tensor, group=groups[name])
            took = slowest(time.perf_counter() - begin)
            if turn >= 2:
                times[name].append(took)
    report(f"all_reduce {mebibytes} MiB", times, "")


def report(what, times, more):
    gloo, ours = (1000 * statistics.median(times[name]) for name in BACKENDS)
    low = min(mine / other for mine, other in zip(times["dlaunch"], times["gloo"]))
    high = max(mine / other for mine, other in zip(times["dlaunch"], times["gloo"]))
    say(f"{what:18} gloo {gloo:9.2f} ms, dlaunch {ours:9.2f} ms, ratio {ours / gloo:.2f} "
        f"(of pairs {low:.2f} to {high:.2f}); {more}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", default="1,4,64")
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    dist.init_process_group("dlaunch")
    groups = {"dlaunch": dist.new_group(backend="dlaunch"), "gloo": dist.new_group(backend="gloo")}
    say(f"{dist.get_world_size()} ranks, torch {torch.__version__}, {torch.get_num_threads()} threads each")
    all_reduce(16, groups, asked.rounds)
    for millions in map(int, asked.parameters.split(",")):
        ddp(millions, groups, asked.rounds if millions < 64 else max(4, asked.rounds // 4))
    dist.destroy_process_group()


main()
