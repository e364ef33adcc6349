"""What can go wrong, as exceptions: one class for each of the C API's statuses."""
from __future__ import annotations

import builtins
from typing import Any, Dict, Optional, Type


class Error(RuntimeError):
    """A call failed. str() is the whole sentence: what was tried, with whom, what happened.

    rank    this process' rank where the call has one, else None
    call    the call's name, as "all_reduce"
    place   the line of Python that made the call, as "train.py:16"; None where it is not known
    """

    status = 0

    def __init__(self, message: str, *, call: str = "", rank: Optional[int] = None,
                 place: Optional[str] = None) -> None:
        super().__init__(message)
        self.call = call
        self.rank = rank
        self.place = place

    def __reduce__(self) -> Any:
        return _again, (type(self), str(self), self.call, self.rank, self.place)


def _again(kind: Type[Error], message: str, call: str, rank: Optional[int], place: Optional[str]) -> Error:
    return kind(message, call=call, rank=rank, place=place)


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed; the sentence names the ranks that did not come."""

    status = 1


class PeerLostError(Error):
    """Another rank, the store or the agent is gone: which, and why."""

    status = 2


class AbortedError(Error):
    """This or another rank aborted the communicator, or a receive was taken back."""

    status = 3


class MismatchError(Error):
    """Ranks made different calls; the sentence shows both."""

    status = 4


class UnreachableError(Error):
    """A host or a port cannot be reached."""

    status = 5


class RefusedError(Error):
    """The other side said no; the sentence has its reason."""

    status = 6


class MisuseError(Error, ValueError):
    """The call itself is wrong: an argument, or the order of calls. Nothing was sent."""

    status = 7


class RevokedError(Error):
    """One of its ranks revoked the communicator."""

    status = 8


class UnsupportedError(Error):
    """This build, this machine or this type has it not."""

    status = 9


class VersionError(Error):
    """Two versions of dlaunch met."""

    status = 10


class InternalError(Error):
    """The system denied a resource, or dlaunch has a bug."""

    status = 11


class UnauthenticatedError(Error):
    """The job's secret was not proved."""

    status = 12


#: The class of each status.
KINDS: Dict[int, Type[Error]] = {
    kind.status: kind for kind in (
        TimeoutError, PeerLostError, AbortedError, MismatchError, UnreachableError, RefusedError, MisuseError,
        RevokedError, UnsupportedError, VersionError, InternalError, UnauthenticatedError)
}

for _kind in (Error, *KINDS.values()):
    _kind.__module__ = "dlaunch"  # Where programs have them from, and what tracebacks say.
