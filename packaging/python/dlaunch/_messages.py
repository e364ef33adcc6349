"""Messages between two ranks."""
from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any, List, Optional, Sequence, Tuple

from . import _library as c
from ._buffers import DType, Held, release
from ._calls import Calls, Within
from ._places import INT_MAX, TAG_RULE, Integer, Seconds, integer, options_with
from .errors import MisuseError
from .message import Message, Transfer
from .work import Received, Work, received_from

_frame = sys._getframe
_addressof = ctypes.addressof
_EMPTY = c.View(stride=1, dtype=DType.U8)  # A transfer's other side.

#: recv, irecv, probe: from whichever rank comes first, and whatever the tag.
ANY_SOURCE = -1
ANY_TAG = -1


class Messages(Calls):
    """Messages between two ranks with one tag arrive in the order sent. Ranks are the communicator's own. Messages with
    memory of a CUDA device have no tags, and come from a named rank."""

    __slots__ = ()

    def send(self, buffer: Any, to: Integer, tag: Integer = 0, *, synchronous: bool = False,
             timeout: Optional[Seconds] = None) -> None:
        """Returns when `buffer` may be used again; with `synchronous` when the receiver has received it."""
        frame = _frame(1)
        call = "ssend" if synchronous else "send"
        peer = self._peer(to, call, frame)
        with Within(self, call, frame):
            held, (view,) = self._show(call, ((buffer, False),), frame)
            try:
                options = self._options((view,), call, timeout, frame, tag)
                status = (c.ssend if synchronous else c.send)(self._handle, view, peer, _addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, call, frame)

    def recv(self, buffer: Any, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG, *, up_to: bool = False,
             timeout: Optional[Seconds] = None) -> Received:
        """Receives exactly as many elements as `buffer` has; with `up_to` that many at most."""
        frame = _frame(1)
        call = "recv_up_to" if up_to else "recv"
        peer = self._peer(source, call, frame)
        struct = c.Received()
        with Within(self, call, frame):
            held, (view,) = self._show(call, ((buffer, True),), frame)
            try:
                options = self._options((view,), call, timeout, frame, tag)
                status = (c.recv_up_to if up_to else c.recv)(self._handle, view, peer, _addressof(struct),
                                                             _addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, call, frame)
            return received_from(struct)

    def sendrecv(self, out: Any, to: Integer, into: Any, source: Integer, tag: Integer = 0, *,
                 up_to: bool = False, timeout: Optional[Seconds] = None) -> Received:
        """Sends `out` and receives `into`, both at once and by one tag; with `up_to` as many elements as `into` has at
        most."""
        frame = _frame(1)
        call, function = ("sendrecv_up_to", c.sendrecv_up_to) if up_to else ("sendrecv", c.sendrecv)
        struct = c.Received()
        receiver, sender = self._peer(to, call, frame), self._peer(source, call, frame)
        with Within(self, call, frame):
            held, (from_view, to_view) = self._show(call, ((out, False), (into, True)), frame)
            try:
                options = self._options((from_view, to_view), call, timeout, frame, tag)
                status = function(self._handle, from_view, receiver, to_view, sender, _addressof(struct),
                                  _addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, call, frame)
            return received_from(struct)

    def isend(self, buffer: Any, to: Integer, tag: Integer = 0, *, synchronous: bool = False,
              timeout: Optional[Seconds] = None) -> Work:
        """Starts send(), and returns while it goes on."""
        call = ("issend", c.issend) if synchronous else ("isend", c.isend)
        return self._start_message(*call, (buffer, False), to, tag, timeout, _frame(1))

    def irecv(self, buffer: Any, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG, *, up_to: bool = False,
              timeout: Optional[Seconds] = None) -> Work:
        """Starts recv(), and returns while it goes on; what came is the Work's `received`."""
        call = ("irecv_up_to", c.irecv_up_to) if up_to else ("irecv", c.irecv)
        return self._start_message(*call, (buffer, True), source, tag, timeout, _frame(1))

    def _start_message(self, call: str, function: Any, buffer: Tuple[Any, bool], peer: Integer, tag: Integer,
                       timeout: Optional[Seconds], frame: FrameType) -> Work:
        peer = self._peer(peer, call, frame)
        with Within(self, call, frame):
            held, (view,) = self._show(call, (buffer,), frame)
            options = self._options_of(held, (view,), call, timeout, frame, tag)
            return self._begin(call, function, (view, peer), held, options, frame, not buffer[1])

    def probe(self, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG, *,
              timeout: Optional[Seconds] = None) -> Received:
        """Waits until a message that a recv with these arguments would take has begun to arrive. It takes nothing, so
        that it breaks nothing where it ends at a `timeout` of its own; so with start_probe() and match()."""
        frame = _frame(1)
        peer = self._peer(source, "probe", frame)
        with Within(self, "probe", frame):
            options = options_with(frame, "probe", timeout, tag, rank=self.rank)
            struct = c.Received()
            status = c.probe(self._handle, peer, _addressof(struct), _addressof(options))
            if status:
                raise self._failed(status, "probe", frame)
            return received_from(struct)

    def try_probe(self, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG) -> Optional[Received]:
        """The same without waiting."""
        frame = _frame(1)
        peer = self._peer(source, "try_probe", frame)
        with Within(self, "try_probe", frame):
            options = options_with(frame, "try_probe", None, tag, rank=self.rank)
            struct, found = c.Received(), ctypes.c_int()
            status = c.try_probe(self._handle, peer, _addressof(found), _addressof(struct), _addressof(options))
            if status:
                raise self._failed(status, "try_probe", frame)
            return received_from(struct) if found.value else None

    def start_probe(self, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG, *,
                    timeout: Optional[Seconds] = None) -> Work:
        """The same as a call that goes on beside others, for wait_any() over probes and receives. Its `received` is
        what was found; it takes nothing, and cancel() ends it."""
        frame = _frame(1)
        peer = self._peer(source, "start_probe", frame)
        with Within(self, "start_probe", frame):
            options = options_with(frame, "start_probe", timeout, tag, rank=self.rank)
            return self._begin("start_probe", c.start_probe, (peer,), (), options, frame, False)

    def match(self, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG, *,
              timeout: Optional[Seconds] = None) -> Message:
        """As probe(), and sets the message apart for recv_matched(): what was probed may be another receive's by the
        time of a recv(), where several are under way."""
        frame = _frame(1)
        peer = self._peer(source, "match", frame)
        with Within(self, "match", frame):
            options = options_with(frame, "match", timeout, tag, rank=self.rank)
            handle = ctypes.c_void_p()
            status = c.match(self._handle, peer, _addressof(handle), _addressof(options))
            if status or handle.value is None:
                raise self._failed(status, "match", frame)
            return Message(handle.value)

    def try_match(self, source: Integer = ANY_SOURCE, tag: Integer = ANY_TAG) -> Optional[Message]:
        """The same without waiting."""
        frame = _frame(1)
        peer = self._peer(source, "try_match", frame)
        with Within(self, "try_match", frame):
            options = options_with(frame, "try_match", None, tag, rank=self.rank)
            handle, found = ctypes.c_void_p(), ctypes.c_int()
            status = c.try_match(self._handle, peer, _addressof(found), _addressof(handle), _addressof(options))
            if status:
                raise self._failed(status, "try_match", frame)
            return Message(handle.value) if found.value and handle.value is not None else None

    def recv_matched(self, message: Message, buffer: Any, *, timeout: Optional[Seconds] = None) -> Received:
        """Receives it into the first elements of `buffer`. Where the buffer is too short or of another type, `message`
        stays as it was."""
        frame = _frame(1)
        if not isinstance(message, Message):
            raise self._here(MisuseError(f"recv_matched: a message is what match() gives, not {message!r}",
                                         call="recv_matched"), frame)
        if message._handle is None:
            raise self._here(MisuseError("recv_matched: this message was received already", call="recv_matched"), frame)
        with Within(self, "recv_matched", frame):
            held, (view,) = self._show("recv_matched", ((buffer, True),), frame)
            try:
                options = self._options((view,), "recv_matched", timeout, frame)
                status = c.recv_matched(self._handle, message._handle, view, None, _addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, "recv_matched", frame)
            message._free()
            return message.what

    def batch(self, transfers: Sequence[Transfer], *, timeout: Optional[Seconds] = None) -> None:
        """Starts all before it waits for any, so that exchanges cannot block each other. Misuse of any is found before
        the first has begun."""
        frame = _frame(1)
        with Within(self, "batch", frame):
            held, views, structs = self._transfers("batch", transfers, frame)
            try:
                options = self._options(views, "batch", timeout, frame)
                status = c.batch(self._handle, _addressof(structs), len(structs), _addressof(options))
            finally:
                release(held)
            if status:
                raise self._failed(status, "batch", frame)

    def start_batch(self, transfers: Sequence[Transfer], *, timeout: Optional[Seconds] = None) -> List[Work]:
        """The same without waiting: a Work for each."""
        frame = _frame(1)
        with Within(self, "start_batch", frame):
            held, views, structs = self._transfers("start_batch", transfers, frame)
            options = self._options_of(held, views, "start_batch", timeout, frame)
            handles = (ctypes.c_void_p * len(structs))()
            status = c.start_batch(self._handle, _addressof(structs), len(structs), _addressof(handles),
                                   _addressof(options))
            if status:
                release(held)
                raise self._failed(status, "start_batch", frame)
            return [self._work(status, "start_batch", ctypes.c_void_p(handle), (one,), frame, each.is_send)
                    for handle, one, each in zip(handles, held, transfers)]

    def _transfers(self, call: str, transfers: Sequence[Transfer],
                   frame: FrameType) -> Tuple[Tuple[Held, ...], List[c.View], Any]:
        numbers = []
        for each in transfers:
            if not isinstance(each, Transfer):
                raise self._here(MisuseError(f"{call}: a transfer is made by Transfer.send() or Transfer.recv(), and "
                                             f"{each!r} is not", call=call), frame)
            numbers.append((self._peer(each.peer, call, frame),
                            integer(each.tag, -1, INT_MAX, TAG_RULE, call, frame, self.rank)))
        held, views = self._show(call, [(each.buffer, not each.is_send) for each in transfers], frame)
        structs = [c.Transfer(*((view, _EMPTY) if each.is_send else (_EMPTY, view)), *peer_and_tag, each.is_send,
                              each.up_to)
                   for each, view, peer_and_tag in zip(transfers, views, numbers)]
        return held, views, (c.Transfer * len(structs))(*structs)

    def _recv_bytes(self, source: Integer, tag: Integer, call: str, timeout: Optional[Seconds],
                    frame: FrameType) -> bytearray:
        """A message of bytes, whatever its length. No other receive can take it once it is found."""
        peer = self._peer(source, call, frame)
        with Within(self, call, frame):
            options = options_with(frame, call, timeout, tag, rank=self.rank)
            message = ctypes.c_void_p()
            status = c.match(self._handle, peer, _addressof(message), _addressof(options))
            if status:
                raise self._failed(status, call, frame)
            try:
                struct = c.Received()
                c.message_what(message, _addressof(struct))
                data = bytearray(struct.count)
                held, (view,) = self._show(call, ((data, True),), frame)
                try:
                    status = c.recv_matched(self._handle, message, view, None, _addressof(options))
                finally:
                    release(held)
            finally:
                c.message_free(message)
            if status:
                raise self._failed(status, call, frame)
            return data