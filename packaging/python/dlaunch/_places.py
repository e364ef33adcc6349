"""Where in the program a call stands, as the C API's options have it, and the exception of a call that failed."""
from __future__ import annotations

import ctypes
import operator
from types import CodeType, FrameType
from typing import Any, Dict, Optional, SupportsFloat, SupportsIndex, Tuple

from . import _library as c
from . import errors

#: What calls take for numbers: Python's and NumPy's.
Integer = SupportsIndex
Seconds = SupportsFloat

INT_MAX = 2**31 - 1  # The C API's numbers of ranks, tags, colours and keys are of 32 bits.
NO_LIMIT = 2**63 - 1  # Of milliseconds.
_SECONDS_MAX = 1e12
TAG_RULE = f"a tag is 0 to {INT_MAX}"
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


def options_with(frame: FrameType, call: str, timeout: Optional[Seconds], tag: Integer = 0,
                 ordered_output: bool = False, rank: Optional[int] = None) -> c.Options:
    """The same with more, which lives as long as what is returned."""
    made = c.Options()
    ctypes.memmove(ctypes.byref(made), options_at(frame), _OPTIONS_SIZE)
    if timeout is not None:
        made.timeout_ms = milliseconds(timeout, call, frame, rank)
    made.tag = integer(tag, -1, INT_MAX, TAG_RULE, call, frame, rank)
    made.ordered_output = ordered_output
    return made


def milliseconds(seconds: Seconds, call: str, frame: FrameType, rank: Optional[int] = None) -> int:
    """A limit for the C API; with infinity there is none."""
    number = seconds_of(seconds)
    if number is None or not number > 0:
        raise refused(seconds, "a timeout is a number of seconds greater than zero", call, frame, rank)
    return max(1, round(number * 1000)) if number < _SECONDS_MAX else NO_LIMIT


def seconds_of(value: Any) -> Optional[float]:
    """A number of any type, such as NumPy's; None for what is no number."""
    if isinstance(value, str) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def integer(value: Any, least: int, most: int, rule: str, call: str, frame: FrameType,
            rank: Optional[int] = None) -> int:
    """`value`, which ctypes would cut to the width of its C type; `rule` says what it may be."""
    try:
        number = operator.index(value)
    except TypeError:
        raise refused(value, rule, call, frame, rank) from None
    if not least <= number <= most:
        raise refused(value, rule, call, frame, rank)
    return number


def text(value: Any, what: str, call: str, frame: FrameType, rank: Optional[int] = None) -> bytes:
    """`value` for the C API, where text ends at a NUL."""
    if isinstance(value, str) and "\0" not in value:
        try:
            return value.encode()
        except UnicodeEncodeError:  # It has half of a surrogate pair.
            pass
    raise refused(value, f"{what} is text without NUL that UTF-8 can have", call, frame, rank)


def refused(value: Any, rule: str, call: str, frame: FrameType, rank: Optional[int] = None) -> errors.MisuseError:
    place = place_of(frame)
    return errors.MisuseError(f"{call}: {rule}, not {value!r} [{place}]", call=call, rank=rank, place=place)


def place_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def failed(status: int, handle: Optional[int], call: str, rank: Optional[int] = None,
           place: Optional[str] = None) -> errors.Error:
    """The exception of a call on `handle` that returned `status`; the library has its sentence."""
    message = c.last_message(handle).decode(errors="replace")
    if not message:
        message = f"{call}: {c.status_text(status).decode()}"
    if call == "recv_object" and message.startswith("match "):  # Such a receive begins with one.
        message = call + message[len("match"):]
    if message.startswith((call.partition("store.")[2] + " '", call.partition("store.")[2] + ": ")):
        message = "store." + message
    if place is not None and not message.endswith("]"):  # An error that stays has the place of its first call.
        message += f" [{place}]"
    return errors.KINDS.get(status, errors.InternalError)(message, call=call, rank=rank, place=place)
