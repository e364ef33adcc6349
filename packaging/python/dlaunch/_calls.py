"""What every call of a communicator has in common: its buffers, its place in the program, and how it fails."""
from __future__ import annotations

import ctypes
from types import FrameType
from typing import Any, List, Optional, Sequence, Set, Tuple

from . import _library as c
from ._buffers import HOST, Held, release
from ._places import failed, options_at, options_with, place_of
from .errors import Error, MisuseError
from .work import Work

_addressof = ctypes.addressof
_SWEEP_AT = 64  # So many started works before those that are complete and were dropped are looked for.


class Calls:
    """A communicator's handle, and the ways to call the library with it. For one thread at a time."""

    __slots__ = ("_handle", "_gone", "_source", "_target", "_source_view", "_target_view", "_started", "_sweep_at",
                 "_stream", "rank", "size", "__weakref__")

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        self._gone: Optional[Error] = None  # Why there is no handle any more.
        # Of blocking calls, of which there is one at a time.
        self._source, self._target = Held(), Held()
        self._source_view, self._target_view = c.View(stride=1), c.View(stride=1)
        self._started: Set[Work] = set()
        self._sweep_at = _SWEEP_AT
        self._stream: Optional[int] = None  # That of calls with memory of a device.
        self.rank: int = c.comm_rank(handle)
        self.size: int = c.comm_size(handle)

    # Blocking calls.

    def _in_place(self, call: c.Call, buffer: Any, argument: Any, timeout: Optional[float], frame: FrameType) -> None:
        target, view = self._target, self._target_view
        try:
            target.show(buffer, view, True, call.name, self._stream)
        except MisuseError as error:
            raise self._here(error, frame) from None
        try:
            if timeout is None and self._stream is None:
                options = options_at(frame)
            else:
                made = self._options((view,), call.name, timeout, frame)
                options = _addressof(made)
            status = call.blocking(self._handle, view, argument, options)
        finally:
            target.release()
        if status:
            raise self._failed(status, call.name, frame)

    def _from_to(self, call: c.Call, source: Any, target: Any, arguments: Tuple[Any, ...], timeout: Optional[float],
                 frame: FrameType) -> None:
        """`arguments` has the others, in their order."""
        with _Two(self, source, target, call.name, frame) as views:
            if timeout is None and self._stream is None:
                options = options_at(frame)
            else:
                made = self._options(views, call.name, timeout, frame)
                options = _addressof(made)
            status = call.blocking(self._handle, *call.arranged(views, arguments), options)
        if status:
            raise self._failed(status, call.name, frame)

    # Started ones. Each has buffers of its own, which its work holds.

    def _start(self, call: c.Call, buffers: Sequence[Tuple[Any, bool]], arguments: Tuple[Any, ...],
               timeout: Optional[float], frame: FrameType) -> Work:
        """`buffers` has each object and whether it is written; `arguments` the others, in their order."""
        held, views = self._show(call.name, buffers, frame)
        options = self._options_of(held, views, call.name, timeout, frame)
        handle = ctypes.c_void_p()
        status = call.started(self._handle, *call.arranged(views, arguments), _addressof(handle), _addressof(options))
        return self._work(status, call.name, handle, held, frame)

    def _show(self, call: str, buffers: Sequence[Tuple[Any, bool]],
              frame: FrameType) -> Tuple[Tuple[Held, ...], List[c.View]]:
        held: List[Held] = []
        views: List[c.View] = []
        try:
            for owner, writable in buffers:
                view = c.View(stride=1)
                if owner is not None:
                    one = Held()
                    one.show(owner, view, writable, call, self._stream)
                    held.append(one)
                views.append(view)
        except MisuseError as error:
            release(held)
            raise self._here(error, frame) from None
        return tuple(held), views

    def _work(self, status: int, call: str, handle: ctypes.c_void_p, held: Tuple[Held, ...], frame: FrameType) -> Work:
        if status or handle.value is None:
            release(held)
            raise self._failed(status, call, frame)
        work = Work(self, handle.value, held, call, frame.f_code.co_filename, frame.f_lineno)
        self._started.add(work)
        if len(self._started) >= self._sweep_at:
            for one_work in [each for each in self._started if each.done]:
                one_work.test()
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._started))
        return work

    def _options(self, views: Sequence[c.View], call: str, timeout: Optional[float], frame: FrameType,
                 tag: int = 0) -> c.Options:
        """Those of a call with buffers, which is put on the communicator's stream if they lie on a device."""
        made = options_with(frame, call, timeout, tag)
        if any(view.place != HOST for view in views):
            made.cuda_stream = self._stream
            made.tag = max(made.tag, 0)  # NCCL's messages have no tags, so that of any is the only one.
        return made

    def _options_of(self, held: Tuple[Held, ...], views: Sequence[c.View], call: str, timeout: Optional[float],
                    frame: FrameType, tag: int = 0) -> c.Options:
        """The same; the buffers are let go where an argument is refused."""
        try:
            return self._options(views, call, timeout, frame, tag)
        except MisuseError:
            release(held)
            raise

    # How a call fails, and how all end.

    def _here(self, error: MisuseError, frame: FrameType) -> MisuseError:
        """An error that was found before the library was called, with its place."""
        place = place_of(frame)
        return MisuseError(f"{error} [{place}]", call=error.call, rank=self.rank, place=place)

    def _failed(self, status: int, call: str, frame: FrameType) -> Error:
        place = place_of(frame)
        if self._handle is None and self._gone is not None:
            return type(self._gone)(f"{call}: {self._gone} [{place}]", call=call, rank=self.rank, place=place)
        return failed(status, self._handle, call, self.rank, place)

    def free(self) -> None:
        """Ends what is still under way with AbortedError; waits for nobody."""
        if self._handle is None:
            return
        c.comm_free(self._handle)  # From here on every work is complete.
        for work in list(self._started):
            work.test()
        self._handle = None
        self._gone = MisuseError("this communicator was freed, or its world finalized")

    def _forget(self, why: Error) -> None:
        """In a forked process: the handle is the parent's."""
        self._handle = None
        self._gone = why
        for work in list(self._started):
            work._give_up(why)

    def __del__(self) -> None:
        # Not at the interpreter's end, when the world has been ended already.
        if getattr(self, "_handle", None) is not None and c is not None:
            self.free()


class _Two:
    """The buffers of a blocking call that reads one and writes another; None for one that this rank has not."""

    __slots__ = ("_calls", "_from", "_to", "_call", "_frame")

    def __init__(self, calls: Calls, source: Any, target: Any, call: str, frame: FrameType) -> None:
        self._calls, self._from, self._to, self._call, self._frame = calls, source, target, call, frame

    def __enter__(self) -> Tuple[c.View, c.View]:
        calls = self._calls
        source, target = calls._source_view, calls._target_view
        try:
            if self._from is not None:
                calls._source.show(self._from, source, False, self._call, calls._stream)
            else:
                source = c.View(stride=1)
            if self._to is not None:
                calls._target.show(self._to, target, True, self._call, calls._stream)
            else:
                target = c.View(stride=1)
        except MisuseError as error:
            calls._source.release()
            raise calls._here(error, self._frame) from None
        return source, target

    def __exit__(self, *ignored: Any) -> None:
        self._calls._source.release()
        self._calls._target.release()
