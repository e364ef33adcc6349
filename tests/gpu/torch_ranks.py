"""PyTorch under dlaunch on GPUs, as torch_ranks.py MODE: ranks that may share one, each with an NCCL_HOSTID then.

train      collectives on the host and on the device, DistributedDataParallel, and dlaunch's calls on torch's tensors
hang       rank 1 keeps the others waiting in all_reduce
timeout    the same, and PyTorch's limit is ten seconds
die        rank 1 is killed while the others wait for it
"""
import datetime
import importlib.util
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

mode = sys.argv[1]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.cuda.set_device(device)
HAS_BACKEND = importlib.util.find_spec("dlaunch_torch") is not None
if HAS_BACKEND:
    importlib.import_module("dlaunch_torch")


def say(text):
    if rank == 0:
        print(text, flush=True)


def begin():
    limit = datetime.timedelta(seconds=10 if mode == "timeout" else 120)
    dist.init_process_group("cpu:dlaunch,cuda:nccl" if HAS_BACKEND else "nccl", timeout=limit)
    ones = torch.ones(1 << 18, device=device)
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    assert (ones == size).all()
    say(f"ok: all_reduce on {torch.cuda.get_device_name(device)}, torch {torch.__version__}, "
        f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")


def train():
    if HAS_BACKEND:
        host = torch.full((1000,), float(rank))
        dist.all_reduce(host)
        assert (host == size * (size - 1) / 2).all()
        everyone = [None] * size
        dist.all_gather_object(everyone, {"rank": rank})
        assert [each["rank"] for each in everyone] == list(range(size))
        say("ok: the host's tensors by dlaunch beside the device's by NCCL")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10):
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(32, 64, device=device)).square().mean().backward()
        optimizer.step()
    for parameter in model.parameters():
        copies = [torch.empty_like(parameter) for _ in range(size)]
        dist.all_gather(copies, parameter.detach())
        assert all(torch.equal(copies[0], each) for each in copies)
    say("ok: ten steps of DistributedDataParallel leave the ranks with the same parameters")


def wait():
    if rank == 1 and mode == "die":
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        load_data()
    dist.all_reduce(torch.ones(1 << 18, device=device))
    torch.cuda.synchronize()


def load_data():
    print("rank 1 keeps the others waiting", flush=True)
    time.sleep(1000)


begin()
train() if mode == "train" else wait()
dist.destroy_process_group()
