"""The key-value store through which the ranks of a job meet."""
from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any, Optional, Union

from . import _library as c
from ._calls import left_by
from ._handle import Handle
from ._places import Integer, Seconds, failed, integer, milliseconds, place_of, refused, text
from .errors import Error, MisuseError

_frame = sys._getframe
_addressof = ctypes.addressof
_DEFAULT_TIMEOUT = 300.0
_LEAVE_SECONDS = 1.0

Value = Union[bytes, bytearray, memoryview, str]


class Store(Handle):
    """A map of byte strings with counters: keys are text of up to 8 KiB, values have up to 8 MiB; text is stored as
    UTF-8. Any thread may call at any time. Every call may raise UnreachableError, PeerLostError or RefusedError."""

    __slots__ = ("_handle", "_rank", "_gone", "_callers", "__weakref__")

    def __init__(self, handle: int, rank: int) -> None:
        self._handle: Optional[int] = handle
        self._rank = rank
        self._gone: Optional[Error] = None
        self._callers = 0  # So many threads are in a call. Python changes threads at calls alone.

    def set(self, key: str, value: Value) -> None:
        """In place of what the key had."""
        frame = _frame(1)
        data = self._bytes(value, "store.set", frame)
        self._call("store.set", c.store_set, frame, key, data, len(data))

    def get(self, key: str) -> Optional[bytes]:
        """None where the key is absent."""
        found = c.Bytes()
        self._call("store.get", c.store_get, _frame(1), key, _addressof(found))
        return _taken(found)

    def wait(self, key: str, timeout: Seconds = _DEFAULT_TIMEOUT) -> bytes:
        """Waits until the key exists and gives its value."""
        frame = _frame(1)
        found = c.Bytes()
        limit = milliseconds(timeout, "store.wait", frame, self._rank)
        self._call("store.wait", c.store_wait, frame, key, limit, _addressof(found))
        return _taken(found) or b""

    def add(self, key: str, delta: Integer = 1) -> int:
        """Adds to a decimal counter, which counts as 0 where it is absent, and gives the sum."""
        frame = _frame(1)
        total = ctypes.c_int64()
        number = integer(delta, -2**63, 2**63 - 1, "what is added is an integer of 64 bits", "store.add", frame,
                         self._rank)
        self._call("store.add", c.store_add, frame, key, number, _addressof(total))
        return total.value

    def compare_set(self, key: str, expected: Optional[Value], desired: Value) -> bool:
        """Stores `desired` if the value is `expected`, None for absent. Whether it did."""
        frame = _frame(1)
        old = None if expected is None else self._bytes(expected, "store.compare_set", frame)
        new = self._bytes(desired, "store.compare_set", frame)
        stored = ctypes.c_int()
        self._call("store.compare_set", c.store_compare_set, frame, key, old, len(old or b""), new, len(new),
                   _addressof(stored))
        return stored.value != 0

    def delete(self, key: str) -> bool:
        """Whether the key existed."""
        existed = ctypes.c_int()
        self._call("store.delete", c.store_erase, _frame(1), key, _addressof(existed))
        return existed.value != 0

    def _call(self, call: str, function: Any, frame: FrameType, key: str, *arguments: Any) -> None:
        of_key = text(key, "a key", call, frame, self._rank)
        self._callers += 1
        try:
            status = function(self._handle, of_key, *arguments)
            if not status:
                return
            place = place_of(frame)
            if self._gone is not None:
                raise type(self._gone)(f"{call}: {self._gone} [{place}]", call=call, rank=self._rank,
                                       place=place)
            raise failed(status, self._handle, call, self._rank, place)
        finally:
            self._callers -= 1

    def _bytes(self, value: Value, call: str, frame: FrameType) -> bytes:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:  # It has half of a surrogate pair.
                pass
        else:
            try:
                return memoryview(value).tobytes()
            except TypeError:
                pass
        raise refused(value, "a value is bytes, or text that UTF-8 can have", call, frame, self._rank)

    def _free(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._gone = MisuseError("the world of this store was finalized")
            if left_by(lambda: self._callers == 0, _LEAVE_SECONDS):  # Else it stays, for a thread that waits in it.
                c.store_free(handle)

    def _forget(self, why: Error) -> None:
        self._handle = None
        self._gone = why


def _taken(found: Any) -> Optional[bytes]:
    if found.data is None:
        return None
    value = ctypes.string_at(found.data, found.size)
    c.bytes_free(_addressof(found))
    return value
