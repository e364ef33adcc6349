"""Where in the program a call stands, as the C API's options have it, and the exception of a call that failed."""
from __future__ import annotations

import ctypes
from types import FrameType
from typing import Dict, Optional, Tuple

from . import _library as c
from . import errors

_TAG_MAX = 0x7FFFFFFF
# The library keeps pointers to a place's text for as long as the process lives, so it stays here. A program that
# makes its code while it runs may have any number of places; those beyond the limit are not told.
_PLACES_LIMIT = 4096
_OPTIONS_SIZE = ctypes.sizeof(c.Options)
_known: Dict[Tuple[str, int, str], Tuple[c.Options, int]] = {}
_unknown = c.Options(_OPTIONS_SIZE)


def options_at(frame: FrameType) -> int:
    """The address of options with the place of `frame`, and else of zeros."""
    code = frame.f_code
    key = (code.co_filename, frame.f_lineno, code.co_name)
    found = _known.get(key)
    return found[1] if found is not None else _remember(key)


def _remember(key: Tuple[str, int, str]) -> int:
    if len(_known) >= _PLACES_LIMIT:
        return ctypes.addressof(_unknown)
    file, line, function = key
    made = c.Options(_OPTIONS_SIZE, file.encode(errors="replace"),
                     function.encode(errors="replace") if function != "<module>" else None, line)
    _known[key] = (made, ctypes.addressof(made))
    return ctypes.addressof(made)


def options_with(frame: FrameType, call: str, timeout: Optional[float], tag: int = 0,
                 ordered_output: bool = False) -> c.Options:
    """The same with more, which lives as long as what is returned."""
    made = c.Options()
    ctypes.memmove(ctypes.byref(made), options_at(frame), _OPTIONS_SIZE)
    if timeout is not None:
        made.timeout_ms = milliseconds(timeout, call)
    if not -1 <= tag <= _TAG_MAX:
        raise errors.MisuseError(f"{call}: a tag is 0 to {_TAG_MAX}, not {tag}", call=call)
    made.tag = tag
    made.ordered_output = ordered_output
    return made


def milliseconds(seconds: float, call: str) -> int:
    if not 0 < seconds < 1e12:
        raise errors.MisuseError(f"{call}: a timeout is a number of seconds greater than zero, not {seconds!r}",
                                 call=call)
    return max(1, round(seconds * 1000))


def place_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def failed(status: int, handle: Optional[int], call: str, rank: Optional[int] = None,
           place: Optional[str] = None) -> errors.Error:
    """The exception of a call on `handle` that returned `status`; the library has its sentence."""
    message = c.last_message(handle).decode(errors="replace")
    if not message:
        message = f"{call}: {c.status_text(status).decode()}"
    if place is not None and f"[{place}]" not in message:
        message += f" [{place}]"
    return errors.KINDS.get(status, errors.InternalError)(message, call=call, rank=rank, place=place)
