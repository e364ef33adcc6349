"""Python objects, which travel as pickle writes them. Only ranks in Python read each other's."""
from __future__ import annotations

import ctypes
import pickle
import struct
import sys
from typing import Any, List, Optional, Sequence

from . import _library as c
from ._buffers import release
from ._calls import ABSENT, Within
from ._collectives import Collectives
from ._messages import ANY_SOURCE, ANY_TAG, Messages
from ._places import options_with
from .errors import MisuseError

_frame = sys._getframe
_LENGTH = struct.Struct("=Q")


class ObjectCalls(Collectives, Messages):
    """An object's length goes first, in a call of its own, so each of these is two collectives."""

    __slots__ = ()

    def broadcast_object(self, value: Any, root: int, *, timeout: Optional[float] = None) -> Any:
        """Everyone gets root's value; the others' is not looked at."""
        frame = _frame(1)
        root = self._peer(root, "broadcast_object", frame)
        data = bytearray(_pickled(value)) if self.rank == root else bytearray()
        length = bytearray(_LENGTH.pack(len(data)))
        self._in_place(c.broadcast, length, root, timeout, frame)
        if self.rank != root:
            data = bytearray(_LENGTH.unpack(length)[0])
        self._in_place(c.broadcast, data, root, timeout, frame)
        return value if self.rank == root else pickle.loads(data)

    def all_gather_object(self, value: Any, *, timeout: Optional[float] = None) -> List[Any]:
        """Everyone's value, in the order of the ranks."""
        frame = _frame(1)
        data = _pickled(value)
        lengths = bytearray(self.size * _LENGTH.size)
        self._from_to(c.all_gather, _LENGTH.pack(len(data)), lengths, (), timeout, frame)
        counts = [length for (length,) in _LENGTH.iter_unpack(lengths)]
        target = bytearray(sum(counts))
        self._from_to(c.all_gather_v, data, target, (self._counts(counts),), timeout, frame)
        return _split(target, counts)

    def gather_object(self, value: Any, root: int, *, timeout: Optional[float] = None) -> Optional[List[Any]]:
        """Everyone's value on `root`; None elsewhere."""
        frame = _frame(1)
        root = self._peer(root, "gather_object", frame)
        data = _pickled(value)
        lengths = bytearray(self.size * _LENGTH.size) if self.rank == root else None
        self._from_to(c.gather, _LENGTH.pack(len(data)), self._at_root(lengths, root), (root,), timeout, frame)
        if lengths is None:
            self._from_to(c.gather_v, data, ABSENT, (None, root), timeout, frame)
            return None
        counts = [length for (length,) in _LENGTH.iter_unpack(lengths)]
        target = bytearray(sum(counts))
        self._from_to(c.gather_v, data, target, (self._counts(counts), root), timeout, frame)
        return _split(target, counts)

    def scatter_object(self, values: Optional[Sequence[Any]], root: int, *, timeout: Optional[float] = None) -> Any:
        """values[r] of root goes to rank r; elsewhere `values` is not looked at."""
        frame = _frame(1)
        root = self._peer(root, "scatter_object", frame)
        length = bytearray(_LENGTH.size)
        if self.rank != root:
            self._from_to(c.scatter, ABSENT, length, (root,), timeout, frame)
            data = bytearray(_LENGTH.unpack(length)[0])
            self._from_to(c.scatter_v, ABSENT, data, (None, root), timeout, frame)
            return pickle.loads(data)
        values = [] if values is None else list(values)
        if len(values) != self.size:
            raise self._here(MisuseError("scatter_object: the root has one value for each of the "
                                         f"{self.size} ranks, not {len(values) or 'none'}", call="scatter_object"),
                             frame)
        parts = [_pickled(value) for value in values]
        counts = [len(part) for part in parts]
        self._from_to(c.scatter, b"".join(map(_LENGTH.pack, counts)), length, (root,), timeout, frame)
        self._from_to(c.scatter_v, b"".join(parts), bytearray(counts[root]),
                      (self._counts(counts), root), timeout, frame)
        return values[root]

    def send_object(self, value: Any, to: int, tag: int = 0, *, timeout: Optional[float] = None) -> None:
        """One message of bytes, which recv_object takes."""
        frame = _frame(1)
        peer = self._peer(to, "send_object", frame)
        with Within(self, "send_object", frame):
            held, (view,) = self._show("send_object", ((_pickled(value), False),), frame)
            try:
                options = options_with(frame, "send_object", timeout, tag)
                status = c.send(self._handle, view, peer, ctypes.addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, "send_object", frame)

    def recv_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: Optional[float] = None) -> Any:
        return pickle.loads(self._recv_bytes(source, tag, "recv_object", timeout, _frame(1)))


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _split(data: bytearray, counts: Sequence[int]) -> List[Any]:
    values: List[Any] = []
    at = 0
    for count in counts:
        values.append(pickle.loads(memoryview(data)[at:at + count]))
        at += count
    return values
