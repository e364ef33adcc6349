"""A group of ranks that make the same calls in the same order."""
from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Iterable, Optional

from . import _library as c
from ._calls import Within
from ._cuda import stream_handle
from ._objects import ObjectCalls
from ._places import INT_MAX, Integer, Seconds, integer, milliseconds, options_with
from .errors import MisuseError

if TYPE_CHECKING:
    from .world import World

_frame = sys._getframe
_addressof = ctypes.addressof
_NO_COLOR = -1


class Communicator(ObjectCalls):
    """Made by World.communicator(), and from others by split(), group(), duplicate() and shrink().

    rank, size      this process among its ranks
    name            for messages
    For one thread at a time; abort() and free() alone may come from any. Threads may each use one of their own, also
    where those were made from each other.
    The first error, except MisuseError and UnsupportedError, stays: every later call raises it again.
    """

    __slots__ = ("_world", "name")

    def __init__(self, world: World, handle: int) -> None:
        super().__init__(handle)
        self._world = world
        self.name: str = c.comm_name(handle).decode()
        world._communicators.add(self)

    @property
    def timeout(self) -> float:
        """Seconds that calls without a timeout of their own may take."""
        frame = _frame(1)
        with Within(self, "timeout", frame):
            if self._handle is None:
                raise self._failed(MisuseError.status, "timeout", frame)
            return c.comm_timeout_ms(self._handle) / 1000  # type: ignore[no-any-return]

    @timeout.setter
    def timeout(self, seconds: Seconds) -> None:
        frame = _frame(1)
        with Within(self, "timeout", frame):
            status = c.comm_set_timeout(self._handle, milliseconds(seconds, "timeout", frame, self.rank))
            if status:
                raise self._failed(status, "timeout", frame)

    @property
    def cuda_stream(self) -> Optional[int]:
        """The stream on which calls with memory of a CUDA device are put, behind what is there: they return at once,
        and the memory must stay until the stream has done them. Set it to a torch.cuda.Stream, a cupy.cuda.Stream, an
        object with __cuda_stream__, or a cudaStream_t as a number. None, as it begins, is the default stream, and
        blocking calls return when they are done."""
        return self._stream

    @cuda_stream.setter
    def cuda_stream(self, stream: Any) -> None:
        handle = None if stream is None else stream_handle(stream)
        if stream is not None and handle is None:
            raise self._here(MisuseError(f"cuda_stream: {stream!r} is no CUDA stream; pass a torch.cuda.Stream, a "
                                         "cupy.cuda.Stream, a cudaStream_t as a number, or None",
                                         call="cuda_stream"), _frame(1))
        self._stream = handle

    def prepare_device(self, device: Integer, *, timeout: Optional[Seconds] = None) -> None:
        """Called by all ranks, each with the number of its CUDA device: NCCL comes up now, and not in the first call
        with memory of a device; so that may be a message, or captured."""
        frame = _frame(1)
        number = integer(device, 0, INT_MAX, "a device is the number of one", "prepare_device", frame, self.rank)
        with Within(self, "prepare_device", frame):
            options = options_with(frame, "prepare_device", timeout, rank=self.rank)
            status = c.comm_prepare_device(self._handle, number, _addressof(options))
            if status:
                raise self._failed(status, "prepare_device", frame)

    def split(self, color: Optional[Integer], key: Integer = 0, *,
              timeout: Optional[Seconds] = None) -> Optional[Communicator]:
        """The ranks that give the same colour, ordered by `key`, then by rank. A rank without a colour takes part and
        gets None."""
        frame = _frame(1)
        if color is None:
            color = _NO_COLOR
        else:
            color = integer(color, 0, INT_MAX, f"a colour is 0 to {INT_MAX}, or None", "split", frame, self.rank)
        key = integer(key, -INT_MAX, INT_MAX, f"a key is {-INT_MAX} to {INT_MAX}", "split", frame, self.rank)
        return self._made("split", c.comm_split, (color, key), timeout, frame)

    def group(self, ranks: Iterable[Integer], *, timeout: Optional[Seconds] = None) -> Optional[Communicator]:
        """The ranks listed, in that order. All ranks call it, with the same list; those not listed get None."""
        frame = _frame(1)
        try:
            listed = [self._peer(rank, "group", frame) for rank in ranks]
        except TypeError:
            raise self._here(MisuseError(f"group: ranks are a list of them, not {ranks!r}", call="group"),
                             frame) from None
        numbers = (ctypes.c_int * len(listed))(*listed)
        return self._made("group", c.comm_group, (numbers, len(listed)), timeout, frame)

    def duplicate(self, *, timeout: Optional[Seconds] = None) -> Communicator:
        """The same ranks with traffic of their own."""
        made = self._made("duplicate", c.comm_duplicate, (), timeout, _frame(1))
        assert made is not None
        return made

    def agree(self, flags: Integer, *, timeout: Optional[Seconds] = None) -> int:
        """The bitwise and of everyone's `flags`, 32 bits, among the ranks that live, also on a broken communicator."""
        frame = _frame(1)
        bits = integer(flags, 0, 2**32 - 1, "flags are 0 to 0xffffffff", "agree", frame, self.rank)
        agreed = ctypes.c_uint32()
        with Within(self, "agree", frame):
            options = options_with(frame, "agree", timeout, rank=self.rank)
            status = c.comm_agree(self._handle, bits, _addressof(agreed), _addressof(options))
            if status:
                raise self._failed(status, "agree", frame)
            return agreed.value

    def shrink(self, *, timeout: Optional[Seconds] = None) -> Communicator:
        """A communicator of the ranks that live and call it. Start the job with dlaunch --on-failure continue."""
        made = self._made("shrink", c.comm_shrink, (), timeout, _frame(1))
        assert made is not None
        return made

    def descriptor(self) -> int:
        """For a loop of the program's own, as of selectors or asyncio: readable when something that was started may be
        complete; at first, too. Read it empty, os.read(fd, 8) until BlockingIOError, then test() what was started.
        Always the same one; valid as long as this communicator; not to be closed."""
        frame = _frame(1)
        found = ctypes.c_int()
        with Within(self, "descriptor", frame):
            status = c.comm_descriptor(self._handle, _addressof(found))
            if status:
                raise self._failed(status, "descriptor", frame)
            return found.value

    def revoke(self) -> None:
        """Makes every call on every rank of it raise RevokedError, so that all can meet in shrink()."""
        frame = _frame(1)
        with Within(self, "revoke", frame):
            status = c.comm_revoke(self._handle)
            if status:
                raise self._failed(status, "revoke", frame)

    def __repr__(self) -> str:
        return f"<dlaunch.Communicator rank {self.rank} of {self.size}>"

    def _made(self, call: str, function: Any, arguments: Any, timeout: Optional[Seconds],
              frame: Any) -> Optional[Communicator]:
        handle = ctypes.c_void_p()
        with Within(self, call, frame):
            options = options_with(frame, call, timeout, rank=self.rank)
            status = function(self._handle, *arguments, _addressof(handle), _addressof(options))
            if status:
                raise self._failed(status, call, frame)
            # Within the call, so that a world which ends in another thread finds this one to free as well.
            return Communicator(self._world, handle.value) if handle.value is not None else None
