"""Loops that ranks leave at different times."""
from __future__ import annotations

import array
import sys
from types import FrameType, TracebackType
from typing import Callable, Optional, Type

from . import _library as c
from ._handle import Handle
from .communicator import Communicator
from ._places import Seconds
from .errors import MisuseError
from .reduction import ReduceOp

_frame = sys._getframe


class EarlyTermination(Exception):
    """Not a failure: what ends the loop on all ranks in the same iteration, where Join is asked for it."""


class Join(Handle):
    """Covers a loop whose ranks may have different numbers of inputs.

        with dlaunch.Join(comm, shadow) as join:
            for batch in batches:
                join.announce()
                comm.all_reduce(gradient_of(batch))

    A rank that has no inputs left calls `shadow()` for each iteration that another one announces, until nobody has any;
    then all go on together. `shadow` makes the collectives that follow announce() there, with neutral values. Each
    announcement costs a small all_reduce. All ranks of the communicator make the same Joins, one at a time.

    If a rank leaves the loop by an exception, its communicator is aborted, and the others' calls raise AbortedError.

    active      how many ranks announced the last iteration: what a sum over those with inputs is divided by
    last        after the loop, the highest of the ranks that had inputs longest: whose state the others may take over,
                as by broadcast(values, join.last); None where no rank had any
    """

    def __init__(self, comm: Communicator, shadow: Callable[[], None], *, early_termination: bool = False,
                 timeout: Optional[Seconds] = None) -> None:
        """`early_termination`: as soon as one rank has no inputs left, announce() or the end of the loop raises
        EarlyTermination on all. `timeout`: of each announcement, in seconds."""
        self.active = 0
        self.last: Optional[int] = None
        self._comm = comm
        self._shadow = shadow
        self._ends_early = early_termination
        self._timeout = timeout
        self._is_open = False
        self._was_here = False  # Announced the last iteration.

    def __enter__(self) -> Join:
        if self._is_open:
            raise MisuseError("Join: it covers one loop at a time", call="Join", rank=self._comm.rank)
        self._is_open = True
        return self

    def announce(self) -> int:
        """The first thing in each iteration: those without inputs take part in what follows. Returns `active`."""
        frame = _frame(1)
        if not self._is_open:
            raise self._comm._here(MisuseError("announce: this Join covers no loop now; use it in a with statement",
                                               call="announce"), frame)
        self._count(True, frame)
        return self.active

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self._is_open = False
        if kind is not None:
            if not issubclass(kind, EarlyTermination):
                self._comm.abort()
            return
        frame = _frame(1)
        try:
            while self._count(False, frame):
                self._shadow()
        except EarlyTermination:
            raise
        except BaseException:
            self._comm.abort()
            raise

    def _count(self, is_here: bool, frame: FrameType) -> int:
        """Of the ranks here, those that announce an iteration. When none does, the last are told from each other."""
        counted = array.array("i", [is_here])
        self._comm._in_place(c.all_reduce, counted, ReduceOp.SUM._struct, self._timeout, frame)
        if counted[0] == 0:
            highest = array.array("i", [self._comm.rank if self._was_here else -1])
            self._comm._in_place(c.all_reduce, highest, ReduceOp.MAX._struct, self._timeout, frame)
            self.last = highest[0] if highest[0] >= 0 else None
            return 0
        self.active, self._was_here = counted[0], is_here
        if self._ends_early and self.active < self._comm.size:
            raise EarlyTermination(f"{self._comm.size - self.active} of {self._comm.size} ranks have no inputs left")
        return self.active
