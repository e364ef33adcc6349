"""torch.distributed by dlaunch: importing this registers the backend "dlaunch" for tensors on the host.

    torch.distributed.init_process_group("dlaunch")
    torch.distributed.init_process_group("cpu:dlaunch,cuda:nccl")

`import torch` does so by itself where this package is installed. The extension module is that of torch's minor version
and of this Python; it is loaded when the first process group is made, or when this package is imported.
"""
from __future__ import annotations

import datetime
from typing import Any, List, Optional

import torch
import torch.distributed as dist

from ._backend import backend_of, register
from ._extension import load

__all__ = ["find_lost_ranks", "shrink_group"]

load()
register()


def find_lost_ranks(group: Optional[Any] = None, timeout: Optional[datetime.timedelta] = None) -> List[int]:
    """The ranks of `group` that are gone, as ranks of it. Every rank that lives calls it, and leaves all calls of the
    group that it is in; no other call of the group succeeds afterwards. Takes `dlaunch --on-failure continue`."""
    backend = _backend_of(group)
    lost: List[int] = backend.find_lost(timeout if timeout is not None else datetime.timedelta(0))
    return lost


def shrink_group(group: Optional[Any] = None, timeout: Optional[datetime.timedelta] = None) -> Any:
    """The process group of those ranks of `group` that live, in their old order; torch's default group becomes this one
    where `group` was that. Every rank that lives calls it. An error where none is lost."""
    if not hasattr(dist, "shrink_group"):
        raise NotImplementedError(f"shrink_group: torch {torch.__version__} cannot shrink a process group, which goes "
                                  "on; 2.13 can")
    lost = find_lost_ranks(group, timeout)
    if not lost:
        raise dist.DistBackendError("shrink_group: no rank of this group is lost, so there is nothing to shrink; it "
                                    "cannot be used any more: make it again, or end")
    return dist.shrink_group(lost, group, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)


def _backend_of(group: Optional[Any]) -> Any:
    backend = backend_of(group if group is not None else dist.distributed_c10d._get_default_group())
    if backend is None:
        raise ValueError("the backend of this process group is not dlaunch")
    return backend
