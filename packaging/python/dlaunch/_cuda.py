"""Memory and streams of CUDA devices, as other packages show them. Nothing here needs one of those packages."""
from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple, Optional

#: The default stream that waits for all others: cudaStreamLegacy, in CUDA and in both protocols.
LEGACY_STREAM = 1
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class DeviceMemory(NamedTuple):
    """What __cuda_array_interface__ says."""

    address: int
    elements: int
    kind: str  # "f", "i", "u", "c", "b", as NumPy has it.
    element_bytes: int
    is_contiguous: bool
    read_only: bool
    stream: Optional[int]  # On which it may still be written; None if on no other.


def memory_of(owner: Any) -> DeviceMemory:
    shown = owner.__cuda_array_interface__
    address, read_only = shown["data"]
    kind, element_bytes = shown["typestr"][1], int(shown["typestr"][2:])
    elements, is_contiguous = 1, True
    shape, strides = shown["shape"], shown.get("strides")
    for axis in reversed(range(len(shape))):
        if strides is not None and shape[axis] > 1 and strides[axis] != elements * element_bytes:
            is_contiguous = False
        elements *= shape[axis]
    return DeviceMemory(address or 0, elements, kind, element_bytes, is_contiguous or elements == 0, bool(read_only),
                        shown.get("stream"))


def device_of(address: int) -> Optional[int]:
    """The number of the device on which memory lies; None where the driver does not know it."""
    try:
        driver = ctypes.CDLL(os.environ.get("DLAUNCH_CUDA_LIBRARY", "libcuda.so.1"))
    except OSError:
        return None
    device = ctypes.c_int()
    failed = driver.cuPointerGetAttribute(ctypes.byref(device), ctypes.c_int(_DEVICE_ORDINAL), ctypes.c_uint64(address))
    return None if failed else device.value


def stream_handle(stream: Any) -> Optional[int]:
    """The cudaStream_t of a number, a torch.cuda.Stream, a cupy.cuda.Stream, or what has __cuda_stream__; None where
    it is none of these."""
    if hasattr(stream, "__cuda_stream__"):
        shown = stream.__cuda_stream__
        stream = (shown() if callable(shown) else shown)[1]
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if not isinstance(stream, int) or isinstance(stream, bool) or not 0 <= stream < 2**64:
        return None
    return stream or LEGACY_STREAM
