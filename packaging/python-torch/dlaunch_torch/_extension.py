"""Finds the extension module that was built for this torch."""
from __future__ import annotations

import importlib
import pathlib
import re
import sys
from typing import Any, List

import torch

HERE = pathlib.Path(__file__).resolve().parent


def built_for() -> List[str]:
    """The versions of torch for which this Python finds a module here."""
    suffix = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-"
    found = (re.fullmatch(r"_torch_(\d+)_(\d+)", path.name.partition(".")[0])
             for path in HERE.glob("_torch_*.so") if suffix in path.name)
    return [".".join(match.groups()) for match in sorted(filter(None, found), key=lambda m: [int(n) for n in m.groups()])]


def load() -> Any:
    """The module; ImportError with a sentence where there is none."""
    importlib.import_module("dlaunch")  # Loads libdlaunch, which the module needs.

    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        raise ImportError(f"dlaunch-torch needs a torch that was built with C++'s new ABI, and torch {torch.__version__} "
                          "from this index was not; torch 2.7 and later are")
    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    versions = built_for()
    if version not in versions:
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise ImportError(
            f"dlaunch-torch has no module for torch {torch.__version__} under Python {python}: this one was built for "
            f"torch {', '.join(versions) if versions else '(none)'} under that Python; install it again, with this "
            "torch, from its source: pip install --no-build-isolation")
    module = importlib.import_module(f"{__package__}._torch_{version.replace('.', '_')}")
    if not _prepared:
        module.skip_code_in(str(pathlib.Path(torch.__file__).parent) + "/")
        module.skip_code_in(str(HERE) + "/")
        # Decorators of torch's functions, whose frames lie between those and the program's.
        for decorating in ("contextlib", "typing_extensions", "warnings"):
            file = getattr(sys.modules.get(decorating), "__file__", None)
            if file is not None:
                module.skip_code_in(file)
        _prepared.append(True)
    return module


_prepared: List[bool] = []
