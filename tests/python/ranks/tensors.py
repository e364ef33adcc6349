"""PyTorch's tensors on the host, which calls read and write where they are."""
import torch

import dlaunch

with dlaunch.init() as world:
    comm = world.comm
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.complex64):
        tensor = torch.ones(2, 3, dtype=dtype)
        address = tensor.data_ptr()
        comm.all_reduce(tensor)
        assert (tensor == comm.size).all() and tensor.data_ptr() == address, tensor
    flags = torch.tensor([comm.rank == 0, True])
    comm.all_reduce(flags, dlaunch.ReduceOp.LAND)
    assert flags.tolist() == [comm.size == 1, True]
    rows = torch.zeros(4, 4)
    comm.broadcast(rows[1], 0)
    work = comm.start_all_gather(torch.full((2,), comm.rank), torch.zeros(2 * comm.size, dtype=torch.int64))
    work.wait()

    freed = torch.zeros(4)
    part_of_freed = freed[2:]
    freed.untyped_storage().resize_(0)
    for tensor, words in ((rows[:, 1], "do not lie side by side"), (rows.t(), "do not lie side by side"),
                          (torch.zeros(2, requires_grad=True), "require gradient"),
                          (torch.zeros(2, device="meta"), "lies on device meta"),
                          (freed, "the memory of this Tensor was freed: 4 elements have no address"),
                          (part_of_freed, "the memory of this Tensor was freed: 2 elements have no address")):
        try:
            comm.all_reduce(tensor)
        except dlaunch.MisuseError as error:
            assert words in str(error) and "tensors.py:" in str(error), error
        else:
            raise AssertionError(f"{words}: was taken")
    print(f"rank {comm.rank} is done")
