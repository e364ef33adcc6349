"""dlaunch: collectives, messages and a store for the ranks of a job, and run(), which starts them.

    with dlaunch.init() as world:
        world.comm.all_reduce(array)
"""
from ._buffers import DType
from ._library import PREFIX, version as _version
from ._messages import ANY_SOURCE, ANY_TAG
from .communicator import Communicator
from .errors import (AbortedError, Error, InternalError, MismatchError, MisuseError, PeerLostError, RefusedError,
                     RevokedError, TimeoutError, UnauthenticatedError, UnreachableError, UnsupportedError,
                     VersionError)
from .jobs.run import RunError, run
from .join import EarlyTermination, Join
from .message import Message, Transfer
from .reduction import ReduceOp, reduce_local
from .store import Store
from .work import Received, Work, test_all, test_any, wait_all, wait_any, wait_some
from .world import World, init

__version__: str = _version().decode()

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "AbortedError", "Communicator", "DType", "EarlyTermination", "Error", "InternalError",
    "Join", "Message", "MismatchError", "MisuseError", "PREFIX", "PeerLostError", "Received", "ReduceOp",
    "RefusedError", "RevokedError", "RunError", "Store", "TimeoutError", "Transfer", "UnauthenticatedError",
    "UnreachableError", "UnsupportedError", "VersionError", "Work", "World", "init", "reduce_local", "run", "test_all",
    "test_any", "wait_all", "wait_any", "wait_some",
]
