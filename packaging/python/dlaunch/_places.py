"""Where in the program a call stands, as the C API's options have it, and the exception of a call that failed."""
from __future__ import annotations

import ctypes
from types import CodeType, FrameType
from typing import Dict, Optional, Tuple

from . import _library as c
from . import errors

_TAG_MAX = 0x7FFFFFFF
# The library keeps pointers to a place's text for as long as the process lives, so it stays here. A program that
# makes its code while it runs may have any number of places; those beyond the limit are not told.
_PLACES_LIMIT = 4096
_OPTIONS_SIZE = ctypes.sizeof(c.Options)
# By code and place in it; finding the line takes long in a long function. What holds the code keeps its id its own.
_known: Dict[Tuple[int, int], Tuple[CodeType, c.Options, int]] = {}
_unknown = c.Options(_OPTIONS_SIZE)


def options_at(frame: FrameType) -> int:
    """The address of options with the place of `frame`, and else of zeros."""
    code = frame.f_code
    found = _known.get((id(code), frame.f_lasti))
    return found[2] if found is not None else _remember(frame)


def _remember(frame: FrameType) -> int:
    if len(_known) >= _PLACES_LIMIT:
        return ctypes.addressof(_unknown)
    code = frame.f_code
    function = code.co_name.encode(errors="replace") if code.co_name != "<module>" else None
    made = c.Options(_OPTIONS_SIZE, code.co_filename.encode(errors="replace"), function, frame.f_lineno)
    _known[(id(code), frame.f_lasti)] = (code, made, ctypes.addressof(made))
    return ctypes.addressof(made)


def options_with(frame: FrameType, call: str, timeout: Optional[float], tag: int = 0,
                 ordered_output: bool = False) -> c.Options:
    """The same with more, which lives as long as what is returned."""
    made = c.Options()
    ctypes.memmove(ctypes.byref(made), options_at(frame), _OPTIONS_SIZE)
    if timeout is not None:
        made.timeout_ms = milliseconds(timeout, call, frame)
    if not -1 <= tag <= _TAG_MAX:
        place = place_of(frame)
        raise errors.MisuseError(f"{call}: a tag is 0 to {_TAG_MAX}, not {tag} [{place}]", call=call, place=place)
    made.tag = tag
    made.ordered_output = ordered_output
    return made


def milliseconds(seconds: float, call: str, frame: FrameType) -> int:
    if not isinstance(seconds, (int, float)) or not 0 < seconds < 1e12:
        place = place_of(frame)
        raise errors.MisuseError(f"{call}: a timeout is a number of seconds greater than zero, not {seconds!r} "
                                 f"[{place}]", call=call, place=place)
    return max(1, round(seconds * 1000))


def place_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def failed(status: int, handle: Optional[int], call: str, rank: Optional[int] = None,
           place: Optional[str] = None) -> errors.Error:
    """The exception of a call on `handle` that returned `status`; the library has its sentence."""
    message = c.last_message(handle).decode(errors="replace")
    if not message:
        message = f"{call}: {c.status_text(status).decode()}"
    if place is not None and not message.endswith("]"):  # An error that stays has the place of its first call.
        message += f" [{place}]"
    return errors.KINDS.get(status, errors.InternalError)(message, call=call, rank=rank, place=place)
