"""Fails in its first attempt with keys left behind; the second attempt must find none of them."""

import datetime
import os
import sys

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
# Debian's torch 2 was built without libuv, and its clients have to say that they know.
OLD = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}


def main():
    dist.init_process_group("gloo")
    # Without a prefix, so that nothing but an empty store hides what an earlier attempt has left.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False,
                          datetime.timedelta(seconds=60), wait_for_workers=False, **OLD)
    left = store.add("left/behind%d" % RANK, 0)
    assert left == 0, "an earlier attempt left %d" % left
    tensor = torch.tensor([1])
    dist.all_reduce(tensor)
    assert tensor.item() == WORLD

    if ATTEMPT == 0:
        for rank in range(WORLD):
            store.add("left/behind%d" % rank, 7)
        dist.barrier()
        if RANK == WORLD - 1:
            print("rank %d fails its first attempt" % RANK, flush=True)
            sys.exit(3)
        store.wait(["never"])
    dist.barrier()
    dist.destroy_process_group()
    print("rank %d of %d: attempt %d found an empty store" % (RANK, WORLD, ATTEMPT), flush=True)


main()
