"""Memory of a CUDA device, on the test doubles of the driver and of NCCL: its two protocols, streams, and what is refused."""
import ctypes
import inspect
import os

import numpy as np

import dlaunch

driver = ctypes.CDLL(os.environ["DLAUNCH_CUDA_LIBRARY"])
driver.cuMemAlloc_v2.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)
driver.cuMemcpy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t)
driver.cuStreamCreate.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)
driver.cuStreamSynchronize.argtypes = (ctypes.c_void_p,)
context = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0


class DeviceArray:
    """An array on the device, which shows its memory as Numba's do."""

    def __init__(self, values, stream=None, **changed):
        self.host = np.ascontiguousarray(values)
        address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), max(1, self.host.nbytes)) == 0
        self.address = address.value
        driver.cuMemcpy(self.address, self.host.ctypes.data, self.host.nbytes)
        self.__cuda_array_interface__ = {"version": 3, "shape": self.host.shape, "typestr": self.host.dtype.str,
                                         "data": (self.address, False), "stream": stream, **changed}

    def get(self):
        driver.cuMemcpy(self.host.ctypes.data, self.address, self.host.nbytes)
        return self.host.tolist()


class ByDLPack(DeviceArray):
    """The same by DLPack: NumPy's description of memory of the host, with the address changed."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        self.stream = stream
        capsule = self.host.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.c_void_p.from_address(pointer(capsule, b"dltensor")).value = self.address
        return capsule


class Stream:
    """As CUDA's Python packages show theirs."""

    def __init__(self):
        self.handle = ctypes.c_void_p()
        assert driver.cuStreamCreate(ctypes.byref(self.handle), 1) == 0

    def __cuda_stream__(self):
        return 0, self.handle.value

    def synchronize(self):
        assert driver.cuStreamSynchronize(self.handle) == 0


def refused(words, call, *args):
    line = inspect.currentframe().f_back.f_lineno
    try:
        call(*args)
    except dlaunch.MisuseError as error:
        assert words in str(error) and "[device.py:" in str(error), error
        return
    raise AssertionError(f"line {line} was not refused")


with dlaunch.init() as world:
    comm, size = world.comm, world.size
    comm.prepare_device(0)
    for dtype in ("f4", "f8", "i4", "u8", "f2"):
        for kind in (DeviceArray, ByDLPack):
            array = kind(np.full((2, 3), comm.rank + 1, dtype))
            comm.all_reduce(array)
            assert array.get() == [[size * (size + 1) / 2] * 3] * 2, (dtype, array.get())
    assert array.stream == 1
    comm.all_reduce(host := np.ones(3))  # The view of the device's memory is not taken for the host's.
    assert host.tolist() == [size] * 3
    gathered = DeviceArray(np.zeros(2 * size, "i8"))
    comm.all_gather(DeviceArray(np.full(2, comm.rank)), gathered)
    assert gathered.get() == [i // 2 for i in range(2 * size)]
    comm.all_reduce(DeviceArray(np.zeros(0)))
    stream, other = Stream(), Stream()
    assert comm.cuda_stream is None
    comm.cuda_stream = stream
    assert comm.cuda_stream == stream.handle.value
    array = ByDLPack(np.ones(5))
    comm.all_reduce(array)
    assert array.stream == stream.handle.value
    work = comm.start_all_reduce(array)
    work.order_before(other)
    other.synchronize()
    assert array.get() == [size * size] * 5
    work.wait()
    work.order_before(other)  # Is complete, and nothing to wait for.
    written = DeviceArray(np.ones(5), stream=stream.handle.value)
    comm.all_reduce(written)
    stream.synchronize()
    assert written.get() == [size] * 5
    comm.all_reduce(host := np.ones(3), timeout=30)  # The host's calls have no stream.
    assert host.tolist() == [size] * 3
    comm.barrier()
    refused(f"may still be written on the CUDA stream {other.handle.value}, and the call is put on", comm.all_reduce,
            DeviceArray(np.ones(5), stream=other.handle.value))
    comm.cuda_stream = 0  # As torch and CuPy number the default one.
    assert comm.cuda_stream == 1
    comm.cuda_stream = None

    refused("do not lie side by side", comm.all_reduce, DeviceArray(np.ones((2, 2)), strides=(8, 16)))
    refused("may only be read, and the call writes", comm.all_reduce, DeviceArray(np.ones(2), data=(1 << 55, True)))
    refused("no elements of dtype", comm.all_reduce, DeviceArray(np.ones(2), typestr="<M8"))
    refused("the driver does not know the memory", comm.all_reduce, DeviceArray(np.ones(2), data=(4096, False)))
    refused("one buffer lies in", comm.all_gather, np.ones(2), DeviceArray(np.ones(2 * size)))
    refused("is no CUDA stream", setattr, comm, "cuda_stream", "a name")
    refused("is no CUDA stream", setattr, comm, "cuda_stream", True)
    work = comm.start_all_reduce(host)
    try:
        work.order_before(stream)
    except dlaunch.UnsupportedError as error:
        assert "host" in str(error), error
    else:
        assert work.done
    work.wait()
    print(f"rank {comm.rank} is done")
