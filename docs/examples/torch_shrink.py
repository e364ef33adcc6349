"""DistributedDataParallel that loses a rank and goes on with those that live, without a restart:

    dlaunch --on-failure continue --nproc_per_node 3 torch_shrink.py
"""
import os
import signal

import dlaunch_torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


def inputs(step):
    """The ranks share the work of a step, however many they are."""
    whole = torch.randn(12, 8, generator=torch.Generator().manual_seed(step))
    return whole.tensor_split(dist.get_world_size())[dist.get_rank()]


def take_from_first(model, optimizer, step):
    """Some ranks may have ended the step in which another was lost, and some not: what the first has counts."""
    state = [(model.state_dict(), optimizer.state_dict(), step)]
    dist.broadcast_object_list(state, 0)
    weights, momenta, step = state[0]
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
    return step


def main():
    dist.init_process_group("dlaunch")
    unlucky = dist.get_rank() == 1
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    parallel = DistributedDataParallel(model)
    step = 0
    while step < STEPS:
        if unlucky and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            optimizer.zero_grad()
            parallel(inputs(step)).square().mean().backward()
        except dist.DistBackendError as error:
            print(f"step {step}: {error}", flush=True)
            dlaunch_torch.shrink_group()  # The default group is that of the living from now on.
            step = take_from_first(model, optimizer, step)
            parallel = DistributedDataParallel(model)
            continue
        optimizer.step()
        step += 1
    digest = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} did {step} steps, {digest:.6f}", flush=True)
    dist.destroy_process_group()


main()
