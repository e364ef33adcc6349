"""Registers the backend with torch, and makes it for process groups."""
from __future__ import annotations

import atexit
from typing import Any, Optional

import torch.distributed as dist

NAME = "dlaunch"
_modules: list[Any] = []


def register() -> None:
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])


def create(options: Any, backend_options: Optional[Any]) -> Any:
    """A process group's backend: of some ranks of the default group's, or of ranks that meet in the store."""
    from ._extension import load

    module = load()
    if not _modules:
        _modules.append(module)
    ranks = list(options.global_ranks_in_group)
    if ranks and dist.is_initialized():
        parent = backend_of(dist.distributed_c10d._get_default_group())
        if parent is not None:
            return parent.of_members(ranks, options.timeout)
    return module.DlaunchBackend.meet(options.store, options.group_rank, options.group_size, not ranks,
                                      options.timeout)


@atexit.register
def _at_exit() -> None:
    """A program that ends in order without destroy_process_group() has left, and was not lost. Whether it does is told
    by its exit code, which is not known yet."""
    for module in _modules:
        module.leave_at_exit()


def backend_of(group: Any) -> Optional[Any]:
    """The backend of a group for tensors on the host, if it is ours."""
    import torch

    from ._extension import load

    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return None
    while hasattr(backend, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL puts one around it.
        backend = backend.wrapped_pg
    return backend if isinstance(backend, load().DlaunchBackend) else None
