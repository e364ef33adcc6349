"""The key-value store through which the ranks of a job meet."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Union

from . import _library as c
from ._places import failed, milliseconds, place_of
from .errors import Error, MisuseError

_frame = sys._getframe
_addressof = ctypes.addressof
_DEFAULT_TIMEOUT = 300.0

Value = Union[bytes, bytearray, memoryview, str]


class Store:
    """A map of byte strings with counters: keys are text of up to 8 KiB, values have up to 8 MiB; text is stored as
    UTF-8. Any thread may call at any time. Every call may raise UnreachableError, PeerLostError or RefusedError."""

    __slots__ = ("_handle", "_gone", "__weakref__")

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        self._gone: Optional[Error] = None

    def set(self, key: str, value: Value) -> None:
        data = _bytes(value)
        self._check(c.store_set(self._handle, key.encode(), data, len(data)), "store.set")

    def get(self, key: str) -> Optional[bytes]:
        """None where the key is absent."""
        found = c.Bytes()
        self._check(c.store_get(self._handle, key.encode(), _addressof(found)), "store.get")
        return _taken(found)

    def wait(self, key: str, timeout: float = _DEFAULT_TIMEOUT) -> bytes:
        """Waits until the key exists and gives its value."""
        found = c.Bytes()
        limit = milliseconds(timeout, "store.wait", _frame(1))
        self._check(c.store_wait(self._handle, key.encode(), limit, _addressof(found)), "store.wait")
        return _taken(found) or b""

    def add(self, key: str, delta: int = 1) -> int:
        """Adds to a decimal counter, which counts as 0 where it is absent, and gives the sum."""
        total = ctypes.c_int64()
        self._check(c.store_add(self._handle, key.encode(), delta, _addressof(total)), "store.add")
        return total.value

    def compare_set(self, key: str, expected: Optional[Value], desired: Value) -> bool:
        """Stores `desired` if the value is `expected`, None for absent. Whether it did."""
        old = None if expected is None else _bytes(expected)
        new = _bytes(desired)
        stored = ctypes.c_int()
        self._check(c.store_compare_set(self._handle, key.encode(), old, len(old or b""), new, len(new),
                                        _addressof(stored)), "store.compare_set")
        return stored.value != 0

    def delete(self, key: str) -> bool:
        """Whether the key existed."""
        existed = ctypes.c_int()
        self._check(c.store_erase(self._handle, key.encode(), _addressof(existed)), "store.delete")
        return existed.value != 0

    def _check(self, status: int, call: str) -> None:
        if not status:
            return
        place = place_of(_frame(2))
        if self._gone is not None:
            raise type(self._gone)(f"{call}: {self._gone} [{place}]", call=call, place=place)
        raise failed(status, self._handle, call, place=place)

    def _free(self) -> None:
        if self._handle is not None:
            c.store_free(self._handle)
            self._handle = None
            self._gone = MisuseError("the world of this store was finalized")

    def _forget(self, why: Error) -> None:
        self._handle = None
        self._gone = why


def _bytes(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _taken(found: Any) -> Optional[bytes]:
    if found.data is None:
        return None
    value = ctypes.string_at(found.data, found.size)
    c.bytes_free(_addressof(found))
    return value
