"""What everything that stands for something of the library's has in common."""
from __future__ import annotations

from typing import Any


class Handle:
    """One object stands for each of them, and gives it back."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        # The copy module asks for this as well.
        raise TypeError(f"a {type(self).__name__} is neither copied nor pickled: it stands for something that this "
                        "process has once")
