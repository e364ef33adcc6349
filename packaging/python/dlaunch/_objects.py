"""Python objects, which travel as pickle writes them. Only ranks in Python read each other's."""
from __future__ import annotations

import ctypes
import pickle
import struct
import sys
from types import FrameType
from typing import Any, List, Optional, Sequence, Union

from . import _library as c
from ._buffers import release
from ._calls import ABSENT, Within
from ._collectives import Collectives
from ._messages import ANY_SOURCE, ANY_TAG, Messages
from ._places import Integer, Seconds, options_with, place_of
from .errors import Error, MisuseError

_frame = sys._getframe
_LENGTH = struct.Struct("=Q")


class ObjectCalls(Collectives, Messages):
    """An object's length goes first, in a call of its own, so each of these is two collectives."""

    __slots__ = ()

    def broadcast_object(self, value: Any, root: Integer, *, timeout: Optional[Seconds] = None) -> Any:
        """Everyone gets root's value; the others' is not looked at."""
        frame = _frame(1)
        root = self._peer(root, "broadcast_object", frame)
        data = bytearray(self._pickled(value, "broadcast_object", frame)) if self.rank == root else bytearray()
        length = bytearray(_LENGTH.pack(len(data)))
        self._in_place(c.broadcast, length, root, timeout, frame)
        if self.rank != root:
            data = bytearray(_LENGTH.unpack(length)[0])
        self._in_place(c.broadcast, data, root, timeout, frame)
        return value if self.rank == root else self._unpickled(data, root, "broadcast_object", frame)

    def all_gather_object(self, value: Any, *, timeout: Optional[Seconds] = None) -> List[Any]:
        """Everyone's value, in the order of the ranks."""
        frame = _frame(1)
        data = self._pickled(value, "all_gather_object", frame)
        lengths = bytearray(self.size * _LENGTH.size)
        self._from_to(c.all_gather, _LENGTH.pack(len(data)), lengths, (), timeout, frame)
        counts = [length for (length,) in _LENGTH.iter_unpack(lengths)]
        target = bytearray(sum(counts))
        self._from_to(c.all_gather_v, data, target, (self._counts(counts),), timeout, frame)
        return self._split(target, counts, "all_gather_object", frame)

    def gather_object(self, value: Any, root: Integer, *, timeout: Optional[Seconds] = None) -> Optional[List[Any]]:
        """Everyone's value on `root`; None elsewhere."""
        frame = _frame(1)
        root = self._peer(root, "gather_object", frame)
        data = self._pickled(value, "gather_object", frame)
        lengths = bytearray(self.size * _LENGTH.size) if self.rank == root else None
        of_all = ABSENT if lengths is None else lengths
        self._from_to(c.gather, _LENGTH.pack(len(data)), of_all, (root,), timeout, frame)
        if lengths is None:
            self._from_to(c.gather_v, data, ABSENT, (None, root), timeout, frame)
            return None
        counts = [length for (length,) in _LENGTH.iter_unpack(lengths)]
        target = bytearray(sum(counts))
        self._from_to(c.gather_v, data, target, (self._counts(counts), root), timeout, frame)
        return self._split(target, counts, "gather_object", frame)

    def scatter_object(self, values: Optional[Sequence[Any]], root: Integer, *,
                       timeout: Optional[Seconds] = None) -> Any:
        """values[r] of root goes to rank r; elsewhere `values` is not looked at."""
        frame = _frame(1)
        root = self._peer(root, "scatter_object", frame)
        length = bytearray(_LENGTH.size)
        if self.rank != root:
            self._from_to(c.scatter, ABSENT, length, (root,), timeout, frame)
            data = bytearray(_LENGTH.unpack(length)[0])
            self._from_to(c.scatter_v, ABSENT, data, (None, root), timeout, frame)
            return self._unpickled(data, root, "scatter_object", frame)
        values = [] if values is None else list(values)
        if len(values) != self.size:
            raise self._here(MisuseError("scatter_object: the root has one value for each of the "
                                         f"{self.size} ranks, not {len(values) or 'none'}", call="scatter_object"),
                             frame)
        parts = [self._pickled(value, "scatter_object", frame) for value in values]
        counts = [len(part) for part in parts]
        self._from_to(c.scatter, b"".join(map(_LENGTH.pack, counts)), length, (root,), timeout, frame)
        self._from_to(c.scatter_v, b"".join(parts), bytearray(counts[root]),
                      (self._counts(counts), root), timeout, frame)
        return values[root]

    def send_object(self, value: Any, to: Integer, tag: Integer = 0, *, timeout: Optional[Seconds] = None) -> None:
        """One message of bytes, which recv_object takes."""
        frame = _frame(1)
        peer = self._peer(to, "send_object", frame)
        with Within(self, "send_object", frame):
            held, (view,) = self._show("send_object", ((self._pickled(value, "send_object", frame), False),), frame)
            try:
                options = options_with(frame, "send_object", timeout, tag, rank=self.rank)
                status = c.send(self._handle, view, peer, ctypes.addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, "send_object", frame)

    def recv_object(self, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG, *,
                    timeout: Optional[Seconds] = None) -> Any:
        """The next object that send_object() sent here, from any rank or that one."""
        frame = _frame(1)
        return self._unpickled(self._recv_bytes(source, tag, "recv_object", timeout, frame), None, "recv_object", frame)

    def _pickled(self, value: Any, call: str, frame: FrameType) -> bytes:
        try:
            return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise self._here(MisuseError(f"{call}: pickle cannot write this {type(value).__name__}: {error}",
                                         call=call), frame) from error

    def _unpickled(self, data: Union[bytearray, memoryview], source: Optional[int], call: str,
                   frame: FrameType) -> Any:
        try:
            return pickle.loads(data)
        except Exception as error:
            sender = "the sender's object" if source is None else f"rank {source}'s object"
            place = place_of(frame)
            raise Error(f"{call}: pickle cannot read {sender} here: {type(error).__name__}: {error} [{place}]",
                        call=call, rank=self.rank, place=place) from error

    def _split(self, data: bytearray, counts: Sequence[int], call: str, frame: FrameType) -> List[Any]:
        values: List[Any] = []
        at = 0
        for source, count in enumerate(counts):
            values.append(self._unpickled(memoryview(data)[at:at + count], source, call, frame))
            at += count
        return values
