"""Groups of four ranks become smaller, with and without a loss: shrinks.py, under --on-failure continue."""
import os
import signal

import dlaunch_torch
import torch
import torch.distributed as dist


def total(group=None):
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    return tensor.tolist()


def loses(group=None):
    """The call that finds a rank gone: not every rank's first does, as the result may have been there before."""
    while True:
        try:
            total(group)
        except dist.DistBackendError as error:
            assert "lost rank" in str(error) or "revoked" in str(error), error
            return


def refused(sentence, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except (dist.DistBackendError, ValueError) as error:
        assert sentence in str(error), error
        return
    raise AssertionError(f"nothing was refused: {sentence}")


def main():
    dist.init_process_group("dlaunch")
    rank = dist.get_rank()
    assert total() == [4] * 3
    # A sound group without one of its ranks, which is in no such call.
    three = dist.new_group([0, 1, 2])
    if rank < 3:
        if rank != 1:
            pair = dist.shrink_group([1], three)
            assert total(pair) == [2] * 3 and dist.get_rank(pair) == rank // 2
    assert total() == [4] * 3
    nobody = dist.new_group()
    refused("no rank of this group is lost", dlaunch_torch.shrink_group, nobody)
    one_is_wrong = dist.new_group()
    everyone = dist.new_group([0, 1, 2, 3])
    assert total(everyone) == [4] * 3

    # One after the other is lost; what is left makes groups, as ever.
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    loses()
    if rank == 0:  # The mistake of one: it asks again for what the others have by then.
        refused("the ranks that are lost are [3], and it was to exclude [1]", dist.shrink_group, [1], one_is_wrong,
                shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    smaller = dist.shrink_group([3], one_is_wrong, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    assert total(smaller) == [3] * 3
    dlaunch_torch.shrink_group()
    assert total() == [3] * 3 and dist.get_world_size() == 3 and dist.get_rank() == rank
    made = dist.new_group([0, 2])
    if rank != 1:
        assert total(made) == [2] * 3
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    loses()
    assert dlaunch_torch.find_lost_ranks() == [0]
    dlaunch_torch.shrink_group()
    assert total() == [2] * 3 and dist.get_rank() == rank - 1
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: all shrank", flush=True)
    dist.destroy_process_group()


main()
