"""The memory of a caller's object, as a view of the C API: by the buffer protocol, else by DLPack, else, on a device,
by the CUDA array interface. No copy is made."""
from __future__ import annotations

import ctypes
import enum
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Tuple

from ctypes import (c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint16, c_uint32, c_uint64, c_uint8, c_void_p,
                    py_object)

from . import _cuda
from . import _library as c
from .errors import MisuseError

if TYPE_CHECKING:
    from ._custom import Custom


class DType(enum.IntEnum):
    """The element types, by the C API's numbers."""

    U8 = 1
    I8 = 2
    I16 = 3
    U16 = 4
    I32 = 5
    U32 = 6
    I64 = 7
    U64 = 8
    F16 = 9
    BF16 = 10
    F32 = 11
    F64 = 12
    BOOL = 13
    C64 = 14
    C128 = 15


class PyBuffer(ctypes.Structure):
    """Py_buffer, whose layout the stable ABI fixes."""

    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


_READABLE = 0x0038 | 0x0004  # PyBUF_C_CONTIGUOUS and PyBUF_FORMAT.
_WRITABLE = _READABLE | 0x0001
_LEAST_ADDRESS = 1 << 40  # Programs have their memory above it; what lies lower is asked more.
_python = ctypes.pythonapi
_get_buffer = _python.PyObject_GetBuffer
_get_buffer.argtypes = (py_object, c_void_p, c_int)
_release_buffer = _python.PyBuffer_Release
_release_buffer.argtypes = (c_void_p,)
_release_buffer.restype = None
_capsule_name = _python.PyCapsule_GetName
_capsule_name.argtypes = (py_object,)
_capsule_name.restype = c_char_p
_capsule_pointer = _python.PyCapsule_GetPointer
_capsule_pointer.argtypes = (py_object, c_char_p)
_capsule_pointer.restype = c_void_p


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)),
                ("strides", ctypes.POINTER(c_int64)), ("byte_offset", c_uint64)]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _DLTensor)]


HOST = 0  # The place of a view; that of device i is i + 1.
_DL_CPU = (1, 3)  # kDLCPU, and kDLCUDAHost: pinned memory.
_DL_CUDA = (2, 13)  # kDLCUDA, and kDLCUDAManaged.
_DL_READ_ONLY = 1
_DL_TYPES = {(0, 8): DType.I8, (0, 16): DType.I16, (0, 32): DType.I32, (0, 64): DType.I64, (1, 8): DType.U8,
             (1, 16): DType.U16, (1, 32): DType.U32, (1, 64): DType.U64, (2, 16): DType.F16, (2, 32): DType.F32,
             (2, 64): DType.F64, (4, 16): DType.BF16, (5, 64): DType.C64, (5, 128): DType.C128, (6, 8): DType.BOOL}


def _formats() -> Dict[Tuple[bytes, int], int]:
    """The element types of the buffer protocol's formats and element sizes. 'l' is native, '<l' is not."""
    found: Dict[Tuple[bytes, int], int] = {}
    integers = {1: (DType.I8, DType.U8), 2: (DType.I16, DType.U16), 4: (DType.I32, DType.U32),
                8: (DType.I64, DType.U64)}
    for prefix in (b"", b"@", b"=", b"<"):
        for size, (signed, unsigned) in integers.items():
            found.update({(prefix + bytes([letter]), size): int(signed) for letter in b"bhilqn"})
            found.update({(prefix + bytes([letter]), size): int(unsigned) for letter in b"BHILQN"})
        found.update({(prefix + b"e", 2): 9, (prefix + b"f", 4): 11, (prefix + b"d", 8): 12, (prefix + b"?", 1): 13,
                      (prefix + b"c", 1): 1,
                      (prefix + b"Zf", 8): 14, (prefix + b"Zd", 16): 15})
    return found


_dtypes = _formats()
# By the letters of NumPy's type strings, which the CUDA array interface has.
_numpy_codes = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Held:
    """The memory of a caller's object, held for as long as a call may use it."""

    __slots__ = ("_buffer", "_address", "_capsule", "_owner", "_on_device")

    def __init__(self) -> None:
        self._buffer = PyBuffer()
        self._address = ctypes.addressof(self._buffer)
        self._capsule: Any = None
        self._owner: Any = None
        self._on_device: Optional[c.View] = None

    def show(self, owner: Any, view: c.View, writable: bool, call: str, stream: Optional[int] = None,
             custom: Optional[Custom] = None) -> None:
        """Lets `view` show the memory of `owner`. release() has to follow. The call moves memory of a device on
        `stream`, and reduces by `custom`, if that is not None."""
        try:
            _get_buffer(owner, self._address, _WRITABLE if writable else _READABLE)
        except (BufferError, TypeError, ValueError) as error:
            self._show_otherwise(owner, view, writable, call, error, stream)
            return
        buffer = self._buffer
        if custom is not None and custom.size > 0:
            view.data = buffer.buf
            view.count, view.dtype = custom.show(buffer, owner, call)
            return
        size = buffer.itemsize
        dtype = _dtypes.get((buffer.format, size))
        if dtype is None:
            dtype = self._dtype_unknown(owner, call)
        view.data = buffer.buf
        view.count = buffer.len // size
        view.dtype = dtype

    def _dtype_unknown(self, owner: Any, call: str) -> int:
        buffer = self._buffer
        if buffer.format is None and buffer.itemsize == 1:
            return int(DType.U8)
        element = getattr(owner, "dtype", None)
        name = f"dtype {element}" if element is not None else f"format {(buffer.format or b'').decode()!r}"
        self.release()
        raise MisuseError(f"{call}: dlaunch has no elements of {name}; it has {', '.join(_names())}, in the "
                          "machine's byte order", call=call)

    def _show_otherwise(self, owner: Any, view: c.View, writable: bool, call: str, error: Exception,
                        stream: Optional[int]) -> None:
        if not isinstance(error, TypeError):  # It has the protocol, and refuses.
            raise MisuseError(f"{call}: {_why_refused(owner, writable, error)}", call=call) from None
        if not hasattr(owner, "__dlpack__"):
            if hasattr(owner, "__cuda_array_interface__"):
                self._show_device_array(owner, view, writable, call, stream)
                return
            raise MisuseError(f"{call}: an object of type {type(owner).__name__} shows no memory; pass a NumPy array, "
                              "a tensor, or another object with the buffer protocol or DLPack",
                              call=call) from None
        try:
            kind, number = owner.__dlpack_device__()
        except (BufferError, RuntimeError, TypeError, ValueError):  # Not even DLPack knows this device.
            kind, number = None, 0
        if kind not in _DL_CPU and kind not in _DL_CUDA:
            where = getattr(owner, "device", f"type {kind} of DLPack")
            raise MisuseError(f"{call}: this {type(owner).__name__} lies on device {where}; calls take memory of the "
                              "host, as tensor.cpu() gives it, or of a CUDA device", call=call) from None
        try:
            capsule = _capsule_of(owner, (stream or _cuda.LEGACY_STREAM) if kind in _DL_CUDA else None)
        except (BufferError, RuntimeError, ValueError) as refusal:
            raise MisuseError(f"{call}: {str(refusal).rstrip('.')}", call=call) from None
        tensor, read_only = _tensor_of(capsule)
        if writable and read_only:
            raise MisuseError(f"{call}: this {type(owner).__name__} may only be read, and the call writes into it",
                              call=call)
        view.count = _elements(tensor, owner, call)
        if view.count > 0 and (tensor.data or 0) < _LEAST_ADDRESS and _was_freed(owner, tensor.data):
            raise MisuseError(f"{call}: the memory of this {type(owner).__name__} was freed: {view.count} elements "
                              "have no address", call=call)
        dtype = _DL_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if dtype is None:
            raise MisuseError(f"{call}: dlaunch has no elements of dtype {getattr(owner, 'dtype', '?')}; it has "
                              f"{', '.join(_names())}", call=call)
        view.dtype = dtype
        view.data = (tensor.data or 0) + tensor.byte_offset
        self._capsule, self._owner = capsule, owner
        if kind in _DL_CUDA:
            self._place_on(number, view)

    def _show_device_array(self, owner: Any, view: c.View, writable: bool, call: str, stream: Optional[int]) -> None:
        memory, kind = _cuda.memory_of(owner), type(owner).__name__
        dtype = _DL_TYPES.get((_numpy_codes.get(memory.kind, -1), memory.element_bytes * 8))
        runs_on = stream or _cuda.LEGACY_STREAM
        device = _cuda.device_of(memory.address) if memory.elements else 0
        problem = None
        if dtype is None:
            problem = f"dlaunch has no elements of dtype {getattr(owner, 'dtype', '?')}; it has {', '.join(_names())}"
        elif not memory.is_contiguous:
            problem = (f"the elements of this {kind} do not lie side by side, in row-major order; pass a contiguous "
                       "one")
        elif writable and memory.read_only:
            problem = f"this {kind} may only be read, and the call writes into it"
        elif memory.stream is not None and memory.stream != runs_on:
            problem = (f"this {kind} may still be written on the CUDA stream {memory.stream}, and the call is put on "
                       f"{runs_on}; set the communicator's cuda_stream to the array's")
        elif device is None:
            problem = f"the driver does not know the memory of this {kind}, as one of a CUDA device"
        if problem is not None or dtype is None or device is None:
            raise MisuseError(f"{call}: {problem}", call=call) from None
        view.data, view.count, view.dtype = memory.address, memory.elements, dtype
        self._owner = owner
        self._place_on(device, view)

    def _place_on(self, device: int, view: c.View) -> None:
        view.place = device + 1
        self._on_device = view

    def release(self) -> None:
        """The object may do with its memory what it likes again."""
        if self._buffer.obj:
            _release_buffer(self._address)
        elif self._on_device is not None:  # A view is used again, mostly for memory of the host.
            self._on_device.place = HOST
            self._on_device = None
        self._capsule = self._owner = None


def release(held: Iterable[Held]) -> None:
    for one in held:
        one.release()


def _names() -> Tuple[str, ...]:
    return tuple(kind.name.lower() for kind in DType)


def _why_refused(owner: Any, writable: bool, error: Exception) -> str:
    kind = type(owner).__name__
    dtype = getattr(owner, "dtype", None)
    if getattr(dtype, "kind", None) in ("M", "m"):  # NumPy shows none of these.
        return f"dlaunch has no elements of dtype {dtype}; pass a view of them as integers, array.view(\"i8\")"
    try:
        seen = memoryview(owner)
    except (BufferError, TypeError, ValueError):
        return f"this {kind} does not show its memory: {error}"
    if not seen.c_contiguous:
        return (f"the elements of this {kind} do not lie side by side, in row-major order; pass a contiguous one, as "
                "numpy.ascontiguousarray gives it")
    if writable and seen.readonly:
        return f"this {kind} may only be read, and the call writes into it; pass a writable copy"
    return f"this {kind} does not show its memory: {error}"


def _capsule_of(owner: Any, stream: Optional[int]) -> Any:
    """On a device, its memory is ready for what is put on `stream` from now on."""
    on_stream = {} if stream is None else {"stream": stream}
    try:
        return owner.__dlpack__(max_version=(1, 0), **on_stream)
    except TypeError:  # It is of before version 1.
        return owner.__dlpack__(**on_stream)


def _tensor_of(capsule: Any) -> Tuple[_DLTensor, bool]:
    name: Optional[bytes] = _capsule_name(capsule)
    address = _capsule_pointer(capsule, name)
    if name == b"dltensor_versioned":
        managed = _DLManagedTensorVersioned.from_address(address)
        return managed.tensor, bool(managed.flags & _DL_READ_ONLY)
    return _DLTensor.from_address(address), False


def _was_freed(owner: Any, address: Optional[int]) -> bool:
    """A part of a tensor without storage has its offset for an address."""
    if not address:
        return True
    storage = getattr(owner, "untyped_storage", None)
    return storage is not None and storage().nbytes() == 0


def _elements(tensor: _DLTensor, owner: Any, call: str) -> int:
    count = 1
    side_by_side = True
    for axis in reversed(range(tensor.ndim)):
        extent = tensor.shape[axis]
        if tensor.strides and extent > 1 and tensor.strides[axis] != count:
            side_by_side = False
        count *= extent
    if count > 0 and not side_by_side:
        raise MisuseError(f"{call}: the elements of this {type(owner).__name__} do not lie side by side, in row-major "
                          "order; pass a contiguous one, as tensor.contiguous() gives it", call=call)
    return count
