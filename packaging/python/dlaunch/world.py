"""This process among its peers, from init() to finalize()."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import weakref
from types import FrameType, TracebackType
from typing import Callable, Iterator, List, Optional, Type

from . import _library as c
from ._calls import left_by
from ._handle import Handle
from ._places import INT_MAX, Integer, Seconds, failed, integer, milliseconds, place_of, text
from .communicator import Communicator
from .errors import Error, MisuseError
from .store import Store

_frame = sys._getframe
_addressof = ctypes.addressof
_current: Optional[World] = None


class World(Handle):
    """A rank's place among the ranks of its job, and all that was made from it. init() makes it.

    As a context manager it is finalized at the block's end, and after an exception abandoned: the others are told
    that this rank was lost. What is still there when the interpreter ends is ended in the same way.

    rank, size, local_rank, local_size, node_rank, node_count    this process in the job, and on its node
    epoch, attempt    which rank map of the job this is, and how often its workers were restarted
    job, hostname, master_addr, master_port, init_method    as text
    """

    def __init__(self, handle: int, where: str) -> None:
        self._handle: Optional[int] = handle
        self._where = where
        self._pid = os.getpid()
        self._communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()
        self._first: Optional[Communicator] = None
        self._store: Optional[Store] = None
        self._inside: List[int] = []  # The threads that are in a call of the library with the handle.
        info = c.WorldInfo(ctypes.sizeof(c.WorldInfo))
        status = c.world_get_info(handle, _addressof(info))
        if status:
            raise failed(status, handle, "world")
        self.rank: int = info.rank
        self.size: int = info.size
        self.local_rank: int = info.local_rank
        self.local_size: int = info.local_size
        self.node_rank: int = info.node_rank
        self.node_count: int = info.node_count
        self.epoch: int = info.epoch
        self.attempt: int = info.attempt
        self.job: str = info.job.decode()
        self.hostname: str = info.hostname.decode()
        self.master_addr: str = info.master_addr.decode()
        self.master_port: str = info.master_port.decode()
        self.init_method: str = info.init_method.decode()

    @property
    def comm(self) -> Communicator:
        """The communicator of all ranks, which is made when it is first asked for."""
        if self._first is None:
            self._first = self._communicator("world", _frame(1))
        return self._first

    def communicator(self, name: str) -> Communicator:
        """Another communicator of all ranks; `name` is for messages. Ranks make them in the same order."""
        return self._communicator(name, _frame(1))

    @property
    def store(self) -> Store:
        """The store through which the ranks meet."""
        if self._store is None:
            frame, made = _frame(1), ctypes.c_void_p()
            with self._within():
                self._check(c.world_store(self._handle, _addressof(made)), "store", frame)
                assert made.value is not None
                self._store = Store(made.value, self.rank)
        return self._store

    def finalize(self) -> None:
        """Ends this rank's part in order: the others see that it has left. Does nothing the second time.

        It waits for started calls that go on, receives and probes apart, as long as their timeouts allow. A call that
        another thread is in raises AbortedError there."""
        if self._handle is not None:
            for communicator in self._made():
                communicator._finish()
        self._end(c.world_free)

    def abandon(self) -> None:
        """Ends it without a goodbye: the others see that this rank was lost, as they should after an error."""
        self._end(c.world_abandon)

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finalize()
        else:
            self.abandon()

    def __repr__(self) -> str:
        return f"<dlaunch.World rank {self.rank} of {self.size}, {self.hostname}>"

    def _communicator(self, name: str, frame: FrameType) -> Communicator:
        made = ctypes.c_void_p()
        of_name = text(name, "a name", "communicator", frame, self.rank)
        with self._within():
            self._check(c.comm_create(self._handle, of_name, _addressof(made)), "communicator", frame)
            assert made.value is not None
            return Communicator(self, made.value)

    @contextlib.contextmanager
    def _within(self) -> Iterator[None]:
        """What another thread ends meanwhile is not freed before this one has left, and what is made is freed."""
        thread = threading.get_ident()
        self._inside.append(thread)
        try:
            yield
        finally:
            self._inside.remove(thread)

    def _made(self) -> List[Communicator]:
        while True:
            with contextlib.suppress(RuntimeError):  # Another thread has made one meanwhile.
                return list(self._communicators)

    def _is_left(self) -> bool:
        """A signal's handler that ends the world may have interrupted a call of this thread's, which waits for it."""
        here = threading.get_ident()
        return all(thread == here for thread in list(self._inside))

    def _check(self, status: int, call: str, frame: FrameType) -> None:
        if not status:
            return
        place = place_of(frame)
        if self._handle is None:
            why = self._forked() if self._pid != os.getpid() else MisuseError("this world was finalized")
            raise type(why)(f"{call}: {why} [{place}]", call=call, rank=self.rank, place=place)
        raise failed(status, self._handle, call, self.rank, place)

    def _end(self, function: Callable[[Optional[int]], None]) -> None:
        global _current
        handle, self._handle = self._handle, None
        if handle is None:
            return
        if _current is self:
            _current = None
        is_left = left_by(self._is_left)
        # A call that is ended may have made another communicator.
        while is_left and (left := [each for each in self._made() if each._handle is not None]):
            is_left = all([communicator._free() for communicator in left])
        if self._store is not None:
            self._store._free()
        if is_left:
            function(handle)
        else:
            print(f"dlaunch: rank {self.rank} ends, and a call of another thread does not, so the others see that this "
                  "rank was lost", file=sys.stderr)

    def _forked(self) -> Error:
        return MisuseError(f"this process was forked from process {self._pid}, which is rank {self.rank}, and has no "
                           "rank of its own; fork before init(), or start programs by subprocess")

    def _forget(self) -> None:
        """In a forked process, where the handles are the parent's."""
        why = self._forked()
        for communicator in self._made():
            communicator._forget(why)
        if self._store is not None:
            self._store._forget(why)
        self._handle = None
        self._inside.clear()  # Those of threads that are not here.


def init(url: Optional[str] = None, *, rank: Optional[Integer] = None, world_size: Optional[Integer] = None,
         timeout: Optional[Seconds] = None) -> World:
    """Joins the other ranks and returns when all have arrived, within `timeout` seconds (five minutes).

    Without `url` it goes by the environment that dlaunch, mpirun or srun made, and without such a one the world has
    one rank. Urls: dlaunch://, env://, tcp://host:port and file://path; of the last two `rank` and `world_size` may
    stand here.
    """
    global _current
    frame = _frame(1)
    place = place_of(frame)
    if _current is not None:
        if _current._pid != os.getpid():
            why = str(_current._forked())
        else:
            why = f"this process has joined a world at {_current._where}; use that one, or finalize() it first"
        raise MisuseError(f"init: {why} [{place}]", call="init", place=place)
    options = c.InitOptions(ctypes.sizeof(c.InitOptions))
    options.timeout_ms = 0 if timeout is None else milliseconds(timeout, "init", frame)
    if (rank is None) != (world_size is None):
        raise MisuseError(f"init: rank and world_size are given together, or not at all [{place}]", call="init",
                          place=place)
    if rank is not None and world_size is not None:
        options.rank = integer(rank, 0, INT_MAX, f"a rank is 0 to {INT_MAX}", "init", frame)
        options.world_size = integer(world_size, 1, INT_MAX, f"a world size is 1 to {INT_MAX}", "init", frame)
    made = ctypes.c_void_p()
    if url is None:
        status = c.world_from_env(_addressof(options), _addressof(made))
    else:
        status = c.world_init(text(url, "a URL", "init", frame), _addressof(options), _addressof(made))
    if status or made.value is None:
        raise failed(status, None, "init", place=place)
    _current = World(made.value, place)
    return _current


@atexit.register
def _at_exit() -> None:
    if _current is None or _current._pid != os.getpid():
        return
    if getattr(sys, "last_value", None) is None:
        _current.finalize()
    else:
        _current.abandon()


def _after_fork() -> None:
    if _current is not None:
        _current._forget()


os.register_at_fork(after_in_child=_after_fork)
