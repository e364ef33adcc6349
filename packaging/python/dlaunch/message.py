"""What a batch is made of, and messages that were found and set apart."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

from . import _library as c
from ._handle import Handle
from ._places import Integer
from .work import Received, received_from


class Transfer(NamedTuple):
    """One message of a batch: made by Transfer.send() or Transfer.recv()."""

    buffer: Any
    peer: Integer
    tag: Integer
    is_send: bool
    up_to: bool = False

    @staticmethod
    def send(buffer: Any, to: Integer, tag: Integer = 0) -> Transfer:
        """One that batch() sends."""
        return Transfer(buffer, to, tag, True)

    @staticmethod
    def recv(buffer: Any, source: Integer, tag: Integer = 0, *, up_to: bool = False) -> Transfer:
        """One that batch() receives: exactly as many elements as `buffer` has; with `up_to` that many at most."""
        return Transfer(buffer, source, tag, False, up_to)


class Message(Handle):
    """A message that match() has found, and recv_matched() receives: no other receive takes it, and no probe finds it.
    One that is dropped before that goes back to where it was. For the thread that uses the communicator.

    what      its source, tag, type and number of elements
    """

    __slots__ = ("_handle", "what")

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        struct = c.Received()
        c.message_what(handle, ctypes.addressof(struct))
        self.what: Received = received_from(struct)

    def _free(self) -> None:
        handle, self._handle = self._handle, None
        c.message_free(handle)

    def __del__(self) -> None:
        # Not at the interpreter's end.
        if getattr(self, "_handle", None) is not None and c is not None:
            self._free()
