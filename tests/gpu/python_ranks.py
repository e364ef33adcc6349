"""dlaunch's calls on memory of CUDA devices, by DLPack and by the CUDA array interface: PyTorch's tensors, CuPy's arrays."""
import importlib.util
import os

import torch

import dlaunch

device = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
torch.cuda.set_device(device)


class ByArrayInterface:
    """Shows its memory in no other way, as Numba's arrays do."""

    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self):
        return self.tensor.__cuda_array_interface__


def check(world):
    comm, size = world.comm, world.size
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        tensor = torch.ones(1000, 3, dtype=dtype, device="cuda")
        address = tensor.data_ptr()
        comm.all_reduce(tensor)
        assert (tensor == size).all() and tensor.data_ptr() == address, (dtype, tensor)
    tensor = torch.full((1000,), 2.0, device="cuda")
    comm.all_reduce(ByArrayInterface(tensor))
    assert (tensor == 2 * size).all(), tensor
    gathered = torch.empty(size * 4, device="cuda")
    comm.all_gather(torch.full((4,), float(comm.rank), device="cuda"), gathered)
    assert gathered.tolist() == [float(i // 4) for i in range(4 * size)], gathered
    if size > 1:
        if comm.rank == 0:
            comm.send(torch.arange(5.0, device="cuda"), 1)
        if comm.rank == 1:
            got = torch.zeros(5, device="cuda")
            comm.recv(got, 0)
            assert got.tolist() == [0, 1, 2, 3, 4], got

    # On a stream of torch's, behind what is there.
    for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):
        comm.cuda_stream = stream
        with torch.cuda.stream(stream):
            tensor = torch.ones(1 << 20, device="cuda")
            for _ in range(3):
                comm.all_reduce(tensor)
            total = tensor.sum().item()
        assert total == float(size) ** 3 * (1 << 20), total
        work = comm.start_all_reduce(tensor)
        other = torch.cuda.Stream()
        work.order_before(other)
        with torch.cuda.stream(other):
            total = tensor.sum().item()
        assert total == float(size) ** 4 * (1 << 20), total
        work.wait()
    # What torch writes on its own stream is done before the default one reads it.
    comm.cuda_stream = None
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor = torch.ones(1 << 24, device="cuda")
        for _ in range(50):
            tensor.add_(1)
        comm.all_reduce(tensor)
        assert (tensor == 51 * size).all(), tensor
    assert comm.all_gather_object(comm.rank) == list(range(size))  # The host's calls go on beside.

    for owner, words in ((torch.ones(4, 4, device="cuda")[:, 1], "do not lie side by side"),
                         (ByArrayInterface(torch.ones(4, 4, device="cuda")[:, 1]), "do not lie side by side")):
        try:
            comm.all_reduce(owner)
        except dlaunch.MisuseError as error:
            assert words in str(error) and "python_ranks.py:" in str(error), error
        else:
            raise AssertionError(f"{words}: was taken")
    if importlib.util.find_spec("cupy") is None:
        return "without CuPy"
    import cupy

    array = cupy.full((100, 2), 3, dtype=cupy.float64)
    comm.all_reduce(array)
    assert (array == 3 * size).all(), array
    with cupy.cuda.Stream(non_blocking=True) as stream:
        comm.cuda_stream = stream
        array.fill(1)
        comm.all_reduce(array)
        array += 1
        assert (array == size + 1).all(), array
    return "and CuPy"


with dlaunch.init() as world:
    with_cupy = check(world)
    print(f"rank {world.rank} is done, {with_cupy}")
