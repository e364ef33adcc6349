"""What every call of a communicator has in common: its buffers, its place in the program, and how it fails."""
from __future__ import annotations

import ctypes
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

from . import _library as c
from ._buffers import HOST, Held, release
from ._custom import Custom
from ._handle import Handle
from ._places import INT_MAX, Integer, Seconds, failed, integer, options_at, options_with, place_of
from .errors import Error, MisuseError
from .work import Work

_addressof = ctypes.addressof
_SWEEP_AT = 64  # So many started works before those that are complete and were dropped are looked for.
_OK = 0
_LEAVE_SECONDS = 10.0  # A call that was aborted is left by then.

#: A buffer that this rank has not, since it is not the root.
ABSENT: Any = object()


def left_by(is_left: Callable[[], bool], seconds: float = _LEAVE_SECONDS) -> bool:
    """Waits until other threads have left, for so long at most. Whether they have."""
    until = time.monotonic() + seconds
    while not is_left():
        if time.monotonic() >= until:
            return False
        time.sleep(0.001)
    return True


class Calls(Handle):
    """A communicator's handle, and the ways to call the library with it. For one thread at a time."""

    __slots__ = ("_handle", "_gone", "_source", "_target", "_source_view", "_target_view", "_started", "_sweep_at",
                 "_stream", "_inside", "_inside_call", "_aborts", "rank", "size", "__weakref__")

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        self._gone: Optional[Error] = None  # Why there is no handle any more.
        # The frame and the name of the call that is inside the library, of which there is one at a time. Python
        # changes threads at calls and in loops alone, so none comes between a look at it and the next assignment.
        self._inside: Optional[FrameType] = None
        self._inside_call = ""
        self._aborts = 0  # So many threads are in abort(), which may come while a call is inside.
        self._own_buffers()
        self._started: Set[Work] = set()
        self._sweep_at = _SWEEP_AT
        self._stream: Optional[int] = None  # That of calls with memory of a device.
        self.rank: int = c.comm_rank(handle)
        self.size: int = c.comm_size(handle)

    def _own_buffers(self) -> None:
        """Makes the buffers of blocking calls."""
        self._source, self._target = Held(), Held()
        self._source_view, self._target_view = c.View(stride=1), c.View(stride=1)

    # Blocking calls.

    def _in_place(self, call: c.Call, buffer: Any, argument: Any, timeout: Optional[Seconds], frame: FrameType,
                  custom: Optional[Custom] = None) -> None:
        before = self._inside  # As Within, which takes longer.
        if before is not None:
            self._enter_again(call.name, frame)
        self._inside = frame
        self._inside_call = call.name
        try:
            target, view = self._target, self._target_view
            try:
                target.show(buffer, view, True, call.name, self._stream, custom)
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
                raise self._failed(status, call.name, frame, custom)
        finally:
            self._inside = before

    def _from_to(self, call: c.Call, source: Any, target: Any, arguments: Tuple[Any, ...], timeout: Optional[Seconds],
                 frame: FrameType, custom: Optional[Custom] = None) -> None:
        """`arguments` has the others, in their order."""
        with _Two(self, source, target, call.name, frame, custom) as views:
            if timeout is None and self._stream is None:
                options = options_at(frame)
            else:
                made = self._options(views, call.name, timeout, frame)
                options = _addressof(made)
            parameters = call.arranged(views, arguments)
            status = call.blocking(self._handle, *parameters, options)
            if status:
                raise self._failed(status, call.name, frame, custom)

    # Started ones. Each has buffers of its own, which its work holds.

    def _start(self, call: c.Call, buffers: Sequence[Tuple[Any, bool]], arguments: Tuple[Any, ...],
               timeout: Optional[Seconds], frame: FrameType, custom: Optional[Custom] = None) -> Work:
        """`buffers` has each object and whether it is written; `arguments` the others, in their order."""
        with Within(self, call.name, frame):
            held, views = self._show(call.name, buffers, frame, custom)
            options = self._options_of(held, views, call.name, timeout, frame)
            return self._begin(call.name, call.started, call.arranged(views, arguments), held, options, frame,
                               custom=custom)

    def _show(self, call: str, buffers: Sequence[Tuple[Any, bool]], frame: FrameType,
              custom: Optional[Custom] = None) -> Tuple[Tuple[Held, ...], List[c.View]]:
        held: List[Held] = []
        views: List[c.View] = []
        try:
            for owner, writable in buffers:
                view = c.View(stride=1)
                if owner is not ABSENT:
                    one = Held()
                    one.show(owner, view, writable, call, self._stream, custom)
                    held.append(one)
                views.append(view)
        except BaseException as error:  # Also what the objects raise.
            release(held)
            if isinstance(error, MisuseError):
                raise self._here(error, frame) from None
            raise
        return tuple(held), views

    def _begin(self, call: str, function: Any, parameters: Sequence[Any], held: Tuple[Held, ...], options: c.Options,
               frame: FrameType, is_awaited: bool = True, custom: Optional[Custom] = None) -> Work:
        handle = ctypes.c_void_p()
        try:
            status = function(self._handle, *parameters, _addressof(handle), _addressof(options))
        except BaseException:
            if handle.value is None:
                release(held)
            else:  # A signal's handler has raised, and the call goes on.
                self._work(_OK, call, handle, held, frame, is_awaited, custom)
            raise
        return self._work(status, call, handle, held, frame, is_awaited, custom)

    def _work(self, status: int, call: str, handle: ctypes.c_void_p, held: Tuple[Held, ...], frame: FrameType,
              is_awaited: bool, custom: Optional[Custom] = None) -> Work:
        if status or handle.value is None:
            release(held)
            raise self._failed(status, call, frame, custom)
        work = Work(self, handle.value, held, call, frame.f_code.co_filename, frame.f_lineno, is_awaited, custom)
        self._started.add(work)
        if len(self._started) >= self._sweep_at:
            for one_work in [each for each in self._started if each._is_done()]:
                one_work._look()
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._started))
        return work

    def _options(self, views: Sequence[c.View], call: str, timeout: Optional[Seconds], frame: FrameType,
                 tag: Integer = 0) -> c.Options:
        """Those of a call with buffers, which is put on the communicator's stream if they lie on a device."""
        made = options_with(frame, call, timeout, tag, rank=self.rank)
        if any(view.place != HOST for view in views):
            made.cuda_stream = self._stream
            made.tag = max(made.tag, 0)  # NCCL's messages have no tags, so that of any is the only one.
        return made

    def _options_of(self, held: Tuple[Held, ...], views: Sequence[c.View], call: str, timeout: Optional[Seconds],
                    frame: FrameType, tag: Integer = 0) -> c.Options:
        """The same; the buffers are let go where an argument is refused."""
        try:
            return self._options(views, call, timeout, frame, tag)
        except BaseException:
            release(held)
            raise

    def _within(self, call: str, frame: FrameType) -> Within:
        return Within(self, call, frame)

    # Arguments.

    def _peer(self, rank: Any, call: str, frame: FrameType) -> int:
        """A root or a peer, as far as the C API's type has it; the library knows which ranks there are."""
        return integer(rank, -INT_MAX, INT_MAX, f"a rank is 0 to {self.size - 1}", call, frame, self.rank)

    def _at_root(self, buffer: Any, root: Integer, name: str, call: str, frame: FrameType) -> Any:
        """A buffer that is needed there alone."""
        if buffer is not None:
            return buffer
        if root == self.rank:
            raise self._here(MisuseError(f"{call}: rank {root} is the root, and needs a {name}, not None", call=call),
                             frame)
        return ABSENT

    # How a call fails, and how all end.

    def _here(self, error: MisuseError, frame: FrameType) -> MisuseError:
        """An error that was found before the library was called, with its place."""
        place = place_of(frame)
        return MisuseError(f"{error} [{place}]", call=error.call, rank=self.rank, place=place)

    def _failed(self, status: int, call: str, frame: FrameType, custom: Optional[Custom] = None) -> BaseException:
        place = place_of(frame)
        if custom is not None and (own := custom.failure(call, self.rank, place)) is not None:
            return own
        if self._handle is None and self._gone is not None:
            return type(self._gone)(f"{call}: {self._gone} [{place}]", call=call, rank=self.rank, place=place)
        return failed(status, self._handle, call, self.rank, place)

    def _enter_again(self, call: str, frame: FrameType) -> None:
        """While a call is inside: one of this thread's comes from a signal's handler, another thread's is refused."""
        if self._is_elsewhere():
            raise self._here(MisuseError(f"{call}: a communicator is for one thread at a time, and another one is in "
                                         f"{self._inside_call}", call=call), frame)
        self._own_buffers()  # The call that is inside keeps those it has.

    def _is_elsewhere(self) -> bool:
        """Whether another thread is in a call. A signal's handler that raises may keep this one's from being noted as
        left, so it is looked at where the threads are."""
        inside, here = self._inside, threading.get_ident()
        for thread, innermost in sys._current_frames().items():
            called, frame = innermost, innermost if thread != here else None
            while frame is not None and frame is not inside:
                called, frame = frame, frame.f_back
            if frame is not None:
                return called.f_globals.get("__package__") == __package__
        return False

    def abort(self) -> None:
        """Here every pending and later call raises AbortedError; the others get AbortedError or PeerLostError."""
        self._aborts += 1  # free() waits for it.
        try:
            c.comm_abort(self._handle)
        finally:
            self._aborts -= 1

    def free(self) -> None:
        """Ends what is still under way with AbortedError, also a call that another thread is in; waits for no other
        rank."""
        self._free()

    def _free(self) -> bool:
        """False where a call does not end, so that nothing could be given back."""
        if self._handle is None:
            return True
        frame = sys._getframe()
        while self._inside is not None and self._is_elsewhere():
            self.abort()
            if not left_by(lambda: not self._is_elsewhere()):
                return False
        self._inside = frame
        self._inside_call = "free"
        try:
            handle, self._handle = self._handle, None
            self._gone = MisuseError("this communicator was freed, or its world finalized")
            if handle is None:  # Another thread was first.
                return True
            if not left_by(lambda: self._aborts == 0):
                return False
            c.comm_free(handle)  # From here on every work is complete.
            for work in list(self._started):
                work._look()
        finally:
            self._inside = None
        return True

    def _finish(self) -> None:
        """Waits for what was started and goes on without a receiver here, as long as its timeouts allow."""
        if self._handle is None or self._inside is not None:
            return
        for work in list(self._started):
            if work._is_awaited:
                try:
                    if not work.done:
                        work.wait()
                except Error as error:  # No call comes that could raise it.
                    print(f"dlaunch: rank {self.rank} ends, and a call that it had started failed: {error}",
                          file=sys.stderr)

    def _forget(self, why: Error) -> None:
        """In a forked process: the handle is the parent's."""
        self._handle = None
        self._gone = why
        self._inside, self._aborts = None, 0  # Those of threads that are not here.
        for work in list(self._started):
            work._give_up(why)

    def __del__(self) -> None:
        # Not at the interpreter's end, when the world has been ended already.
        if getattr(self, "_handle", None) is not None and c is not None:
            self.free()


class Within:
    """While a call is inside the library no other thread's comes in, and nothing is freed under it."""

    __slots__ = ("_calls", "_call", "_frame", "_before")

    def __init__(self, calls: Calls, call: str, frame: FrameType) -> None:
        self._calls, self._call, self._frame = calls, call, frame

    def __enter__(self) -> Any:
        calls = self._calls
        self._before = calls._inside
        if self._before is not None:
            calls._enter_again(self._call, self._frame)
        calls._inside = self._frame
        calls._inside_call = self._call
        return None

    def __exit__(self, *ignored: Any) -> None:
        self._calls._inside = self._before


class _Two(Within):
    """The same with the buffers of a blocking call that reads one and writes another; ABSENT for one that this rank has
    not."""

    __slots__ = ("_from", "_to", "_source", "_target", "_custom")

    def __init__(self, calls: Calls, source: Any, target: Any, call: str, frame: FrameType,
                 custom: Optional[Custom]) -> None:
        super().__init__(calls, call, frame)
        self._from, self._to, self._custom = source, target, custom

    def __enter__(self) -> Tuple[c.View, c.View]:
        super().__enter__()
        calls = self._calls
        self._source, self._target = calls._source, calls._target
        source, target = calls._source_view, calls._target_view
        try:
            if self._from is not ABSENT:
                self._source.show(self._from, source, False, self._call, calls._stream, self._custom)
            else:
                source = c.View(stride=1)
            if self._to is not ABSENT:
                self._target.show(self._to, target, True, self._call, calls._stream, self._custom)
            else:
                target = c.View(stride=1)
        except BaseException as error:  # Also what the objects raise.
            self.__exit__()
            if isinstance(error, MisuseError):
                raise calls._here(error, self._frame) from None
            raise
        return source, target

    def __exit__(self, *ignored: Any) -> None:
        try:
            self._source.release()
            self._target.release()
        finally:
            super().__exit__()
