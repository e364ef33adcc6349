"""Reductions with a function or elements of their own, as the library and the calls see them."""
from __future__ import annotations

import ctypes
import importlib
from typing import Any, Callable, List, Optional, Tuple

from . import _library as c
from ._buffers import DType, PyBuffer
from .errors import InternalError, MisuseError

_NUMPY_NAMES = {DType.U8: "u1", DType.I8: "i1", DType.I16: "i2", DType.U16: "u2", DType.I32: "i4", DType.U32: "u4",
                DType.I64: "i8", DType.U64: "u8", DType.F16: "f2", DType.F32: "f4", DType.F64: "f8", DType.BOOL: "?",
                DType.C64: "c8", DType.C128: "c16"}


def numpy_for(what: str) -> Any:
    """NumPy, which nothing else in the package needs."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        raise MisuseError(f"{what} needs NumPy: pip install numpy", call=what) from None


class Custom:
    """What a call has to know of such a reduction beyond its structure, which the library may use until the call is
    complete.

    name     for messages
    size     the bytes of an element of its own; 0: the elements are the buffers'
    dtype    those as NumPy has them, where that is known
    """

    __slots__ = ("name", "size", "dtype", "pointer", "_function", "_error")

    def __init__(self, name: str, size: int, dtype: Any, function: Optional[Callable[[Any, Any], Any]] = None) -> None:
        self.name, self.size, self.dtype = name, size, dtype
        self._function = function
        self._error: Optional[BaseException] = None
        self.pointer = c.Fold(self._fold) if function is not None else None

    def show(self, buffer: PyBuffer, owner: Any, call: str) -> Tuple[int, int]:
        """The count and the dtype of a view of elements of its own: the library has them as bytes."""
        kind = type(owner).__name__
        if buffer.itemsize != self.size and b"T{" in (buffer.format or b""):
            raise MisuseError(f"{call}: an element of this {kind} has {buffer.itemsize} bytes, and one of {self.name} "
                              f"{self.size}; make the array with the operation's dtype", call=call)
        theirs = getattr(owner, "dtype", None)
        if self.dtype is not None and getattr(theirs, "fields", None) and _layout(theirs) != _layout(self.dtype):
            raise MisuseError(f"{call}: this {kind} has elements of {theirs}, and {self.name} those of {self.dtype}; "
                              "make the array with the operation's dtype", call=call)
        return buffer.len, int(DType.U8)

    def failure(self, call: str, rank: Optional[int], place: str) -> Optional[BaseException]:
        """What a call raises whose function has raised here; that is not raised again."""
        error, self._error = self._error, None
        if error is None or not isinstance(error, Exception):  # As KeyboardInterrupt.
            return error
        raised = InternalError(f"{call}: the function of {self.name} failed: {_told(error)} [{place}]", call=call,
                               rank=rank, place=place)
        raised.__cause__ = error
        return raised

    def _fold(self, _argument: int, accumulated: int, following: int, count: int, number: int) -> None:
        assert self._function is not None
        try:
            numpy = numpy_for(self.name)
            dtype = self.dtype if self.dtype is not None else _numpy_dtype(numpy, DType(number))
            mine = _array(numpy, accumulated, count, dtype)
            theirs = _array(numpy, following, count, dtype)
            theirs.flags.writeable = False
            result = self._function(mine, theirs)
            if result is not mine:
                found = numpy.asarray(result)
                if found.shape != mine.shape:
                    raise ValueError(f"it returned {_shown(result)}, and is to return the reduction of its arguments, "
                                     f"of shape {mine.shape}")
                numpy.copyto(mine, found, casting="same_kind")
        except BaseException as error:  # Nothing may pass through the library.
            self._error = error
            c.fold_failed(_told(error).encode(errors="replace").replace(b"\0", b"?"))


def _array(numpy: Any, address: int, count: int, dtype: Any) -> Any:
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return numpy.ndarray((count,), dtype=dtype, buffer=memory)


def _numpy_dtype(numpy: Any, dtype: DType) -> Any:
    if dtype not in _NUMPY_NAMES:
        raise TypeError(f"NumPy has no elements of {dtype.name.lower()}")
    return numpy.dtype(_NUMPY_NAMES[dtype])


def located(value: DType, index: DType) -> Any:
    """The dtype of such pairs, if there is NumPy, and has them."""
    try:
        numpy = importlib.import_module("numpy")
        return numpy.dtype([("value", _numpy_dtype(numpy, value)), ("index", _numpy_dtype(numpy, index))], align=True)
    except (ImportError, TypeError):
        return None


def _layout(dtype: Any) -> List[Tuple[int, str]]:
    """The places and types of its fields, whatever their names."""
    return sorted((offset, field.str) for field, offset, *_ in dtype.fields.values()) if dtype.fields else []


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"an array of shape {shape}"


def _told(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
