"""Calls that were started and may not be complete."""
from __future__ import annotations

import contextlib
import ctypes
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Sequence, Tuple

from . import _library as c
from ._buffers import DType, Held
from ._cuda import stream_handle
from ._custom import Custom
from ._handle import Handle
from ._places import NO_LIMIT, Seconds, failed, place_of, refused, seconds_of
from .errors import Error, MisuseError

if TYPE_CHECKING:
    from ._calls import Calls

_frame = sys._getframe
_SECONDS_MAX = 1e12
_OK = 0


class Received(NamedTuple):
    """What a message was."""

    source: int
    tag: int
    dtype: DType
    elements: int


def received_from(struct: c.Received) -> Received:
    return Received(struct.source, struct.tag, DType(struct.dtype), struct.count)


class Work(Handle):
    """A started call. It holds the buffers it was given until it is complete.

    Its communicator knows it until then, so a Work that is dropped goes on, and its buffers stay; an error of it
    sticks to the communicator, whose next call raises it. For the thread that uses the communicator.
    """

    __slots__ = ("_handle", "_calls", "_held", "_call", "_file", "_line", "_error", "_received",
                 "_is_awaited", "_custom")

    def __init__(self, calls: Calls, handle: int, held: Tuple[Held, ...], call: str, file: str, line: int,
                 is_awaited: bool, custom: Optional[Custom]) -> None:
        self._handle: Optional[int] = handle
        self._calls: Optional[Calls] = calls
        self._held = held
        self._call = call
        self._file = file
        self._line = line
        self._custom = custom  # Its function is called until the call is complete.
        self._error: Optional[BaseException] = None
        self._received: Optional[Received] = None
        self._is_awaited = is_awaited  # By other ranks, so that the world's end waits for it.

    def wait(self) -> None:
        """Blocks until complete, and raises what the blocking form of the call raises; so does each further call."""
        calls = self._calls
        if calls is not None:
            with calls._within("wait", _frame(1)):
                if self._handle is not None:
                    self._end(c.work_wait(self._handle))
        if self._error is not None:
            raise self._error

    def wait_for(self, seconds: Seconds) -> bool:
        """The same for so long at most. True when complete, also when it failed: wait() then raises."""
        frame, calls, done = _frame(1), self._calls, ctypes.c_int()
        limit = _limit(seconds, "wait_for", frame, calls.rank if calls is not None else None)
        if calls is not None:
            with calls._within("wait_for", frame):
                if self._handle is not None:
                    c.work_wait_for(self._handle, limit, ctypes.addressof(done))
                    self._end_if(done.value)
        return self._handle is None

    def test(self) -> bool:
        """True when complete, also when it failed. Makes what progress is possible without waiting."""
        return self._test(_frame(1))

    def _test(self, frame: FrameType) -> bool:
        calls = self._calls
        if calls is not None:
            with calls._within("test", frame):
                self._look()
        return self._handle is None

    def _look(self) -> bool:
        """The same within a call."""
        done = ctypes.c_int()
        if self._handle is not None:
            c.work_test(self._handle, ctypes.addressof(done))
            self._end_if(done.value)
        return self._handle is None

    @property
    def done(self) -> bool:
        """True when complete. Makes no progress."""
        calls = self._calls
        if calls is None:
            return True
        with calls._within("done", _frame(1)):
            return self._is_done()

    def _is_done(self) -> bool:
        """The same within a call."""
        return self._handle is None or c.work_done(self._handle) != 0

    def cancel(self) -> bool:
        """Takes back a receive or a probe that no message has come for: wait() raises AbortedError then."""
        calls, cancelled = self._calls, ctypes.c_int()
        if calls is not None:
            with calls._within("cancel", _frame(1)):
                if self._handle is None:
                    return False
                status = c.work_cancel(self._handle, ctypes.addressof(cancelled))
                if status != _OK:
                    raise failed(status, self._handle, self._call, calls.rank, self._place())
        return cancelled.value != 0

    def order_before(self, stream: Any) -> None:
        """Lets a CUDA stream (see Communicator.cuda_stream) wait for the result while the host goes on. Of calls with
        memory of a device alone; of others, UnsupportedError."""
        frame, calls = _frame(1), self._calls
        if calls is None:
            return
        handle = stream_handle(stream)
        if handle is None:
            raise calls._here(MisuseError(f"order_before: {stream!r} is no CUDA stream", call="order_before"), frame)
        with calls._within("order_before", frame):
            if self._handle is None:
                return
            status = c.work_order_before(self._handle, handle)
            if status != _OK:
                raise failed(status, self._handle, self._call, calls.rank, self._place())

    @property
    def received(self) -> Optional[Received]:
        """What the message of a complete receive was, or what a complete probe has found; None for others, and
        before."""
        self._test(_frame(1))
        return self._received

    def _place(self) -> str:
        return f"{self._file.rpartition('/')[2]}:{self._line}"

    def _end_if(self, done: int) -> None:
        if done and self._handle is not None:
            self._end(c.work_wait(self._handle))

    def _end(self, status: int) -> None:
        """What is to be told is kept here, and the rest given back."""
        handle, self._handle = self._handle, None  # A signal's handler that comes in between finds it complete.
        if handle is None:
            return
        calls = self._calls
        try:
            if status != _OK:
                rank, place = calls.rank if calls else None, self._place()
                own = self._custom.failure(self._call, rank, place) if self._custom is not None else None
                self._error = own or failed(status, handle, self._call, rank, place)
            struct, found = c.Received(), ctypes.c_int()
            c.work_received(handle, ctypes.addressof(found), ctypes.addressof(struct))
            if found.value:
                self._received = received_from(struct)
        finally:
            c.work_free(handle)
            self._let_go()

    def _let_go(self) -> None:
        self._handle = None
        for held in self._held:
            held.release()
        self._held = ()
        self._custom = None
        if self._calls is not None:
            self._calls._started.discard(self)
            self._calls = None

    def _give_up(self, error: Error) -> None:
        """In a forked process, where nothing of it can be waited for or freed."""
        self._error = error
        self._let_go()


def wait_any(works: Sequence[Optional[Work]], timeout: Optional[Seconds] = None) -> Optional[int]:
    """Waits until one of the works is complete, also when it failed, and gives its index, the lowest such. None among
    them are passed over; None where none is left, or when `timeout` seconds have passed."""
    frame = _frame(1)
    limit = _limit(timeout, "wait_any", frame)
    complete = _complete(works)
    if complete:
        return complete[0]
    with _within_all(works, "wait_any", frame):
        handles, index = _handles(works), ctypes.c_size_t()
        status = c.work_wait_any(ctypes.addressof(handles), len(works), limit, ctypes.addressof(index))
        if status != _OK:
            raise failed(status, None, "wait_any", place=place_of(frame))
    return index.value if index.value < len(works) else None


def wait_some(works: Sequence[Optional[Work]], timeout: Optional[Seconds] = None) -> List[int]:
    """The same, and gives the indices of all that are complete by then. Put None in the places of those that were dealt
    with, or they come again."""
    frame = _frame(1)
    limit = _limit(timeout, "wait_some", frame)
    with _within_all(works, "wait_some", frame):
        complete = _complete(works)
        handles, count = _handles(works), ctypes.c_size_t()
        indices = (ctypes.c_size_t * len(works))()
        # Where some are complete already the others are looked at.
        status = c.work_wait_some(ctypes.addressof(handles), len(works), 0 if complete else limit,
                                  ctypes.addressof(indices), ctypes.addressof(count))
        if status != _OK:
            raise failed(status, None, "wait_some", place=place_of(frame))
    return sorted(complete + indices[:count.value])


def test_any(works: Sequence[Optional[Work]]) -> Optional[int]:
    """wait_any() that waits for nothing, as Work.test()."""
    frame = _frame(1)
    complete = _complete(works)
    if complete:
        return complete[0]
    with _within_all(works, "test_any", frame):
        handles, index = _handles(works), ctypes.c_size_t()
        status = c.work_test_any(ctypes.addressof(handles), len(works), ctypes.addressof(index))
        if status != _OK:
            raise failed(status, None, "test_any", place=place_of(frame))
    return index.value if index.value < len(works) else None


def _within_all(works: Sequence[Optional[Work]], call: str, frame: FrameType) -> contextlib.ExitStack:
    """A call is inside the communicators of all of them."""
    stack = contextlib.ExitStack()
    with stack:
        for calls in {work._calls for work in works if work is not None and work._calls is not None}:
            stack.enter_context(calls._within(call, frame))
        return stack.pop_all()


def _complete(works: Sequence[Optional[Work]]) -> List[int]:
    """Those of which the library knows no more."""
    return [index for index, work in enumerate(works) if work is not None and work._handle is None]


def _handles(works: Sequence[Optional[Work]]) -> Any:
    return (ctypes.c_void_p * len(works))(*(work._handle if work is not None else None for work in works))


def _limit(timeout: Optional[Seconds], call: str, frame: FrameType, rank: Optional[int] = None) -> int:
    """In milliseconds; none for None and for infinity."""
    if timeout is None:
        return NO_LIMIT
    number = seconds_of(timeout)
    if number is None or number != number:
        raise refused(timeout, "what is waited for at most is a number of seconds", call, frame, rank)
    return round(max(0.0, number) * 1000) if number < _SECONDS_MAX else NO_LIMIT


def wait_all(works: Sequence[Optional[Work]]) -> None:
    """Waits for all, whatever becomes of any, and raises what the first that failed raises."""
    first: Optional[Error] = None
    for work in works:
        if work is None:
            continue
        try:
            work.wait()
        except Error as error:
            first = first or error
    if first is not None:
        raise first


def test_all(works: Sequence[Optional[Work]]) -> bool:
    """True when all are complete, also when they failed."""
    return all([work is None or work.test() for work in works])
