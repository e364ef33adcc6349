"""What torch calls when it is imported: makes the backend "dlaunch" known, and loads nothing. A torch for which there
is no extension module is imported as ever, and says so when a process group asks for the backend."""
from __future__ import annotations

from typing import Any, Optional


def register() -> None:
    import torch.distributed as dist

    if dist.is_available() and "dlaunch" not in dist.Backend.backend_list:
        dist.Backend.register_backend("dlaunch", _create, extended_api=True, devices=["cpu"])


def _create(options: Any, backend_options: Optional[Any]) -> Any:
    from dlaunch_torch._backend import create

    return create(options, backend_options)
