"""How the ranks' elements become one."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, ClassVar, Optional, Tuple

from . import _library as c
from ._buffers import DType, Held
from ._custom import Custom, located, numpy_for
from ._places import failed, place_of
from .errors import MisuseError

_frame = sys._getframe
_ORDER_RANKS, _ORDER_CANONICAL, _ORDER_ANY = range(3)
_CUSTOM = 10


class ReduceOp:
    """An operation, as `ReduceOp.SUM`; sums are made in the order of the ranks unless canonical() or any_order() says
    otherwise. The same on all ranks."""

    __slots__ = ("_struct", "_name", "_made_by")

    SUM: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    MEAN: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    LAND: ClassVar[ReduceOp]
    LOR: ClassVar[ReduceOp]
    LXOR: ClassVar[ReduceOp]

    def __init__(self, name: str, number: int, factor: float = 1.0, order: int = _ORDER_RANKS) -> None:
        self._name = name
        self._struct = c.Reduction(number, order, factor, None, None, None, 0)
        self._made_by: Optional[Tuple[Callable[..., ReduceOp], Tuple[Any, ...]]] = None

    @staticmethod
    def premul_sum(factor: float) -> ReduceOp:
        """Each element times `factor`, then summed. Floats and complex numbers only."""
        return ReduceOp(f"premul_sum({factor})", 9, float(factor))

    @staticmethod
    def custom(function: Callable[[Any, Any], Any], name: Optional[str] = None, dtype: Any = None) -> ReduceOp:
        """An operation of the program's own: function(mine, theirs) gets two NumPy arrays of one length, of which the
        first comes from the lower ranks, and returns an array of that length, which may be `mine`, written into. They
        are the call's memory, and gone with it.

        name     shows in messages, and is compared between ranks; the function's own, if it has one
        dtype    a NumPy dtype of elements of its own, as of structs; without it they are those of the call's buffers

        It has to be associative; its operands keep the order of the ranks, unless it is told any_order(). It is called
        on a thread of the library's choice, and makes no call of dlaunch. What it raises, the call raises here, as the
        cause of an InternalError; the other ranks' calls raise InternalError with that sentence, and the communicator
        is broken."""
        numpy = numpy_for("ReduceOp.custom")
        if not callable(function):
            raise MisuseError(f"ReduceOp.custom: {function!r} is no function of two arrays", call="custom")
        shown = name if name is not None else getattr(function, "__name__", None)
        if not isinstance(shown, str) or not shown or "\0" in shown:
            raise MisuseError("ReduceOp.custom: an operation has a name, which ranks compare: text without NUL, not "
                              f"{shown!r}", call="custom")
        elements = None
        if dtype is not None:
            try:
                elements = numpy.dtype(dtype)
            except TypeError as error:
                raise MisuseError(f"ReduceOp.custom: {dtype!r} is no dtype: {error}", call="custom") from None
            if elements.hasobject or elements.itemsize == 0:
                raise MisuseError(f"ReduceOp.custom: elements of {elements} have no memory that ranks could send; "
                                  "their fields are numbers", call="custom")
        made = ReduceOp(f"custom({shown!r})", _CUSTOM)
        size = elements.itemsize if elements is not None else 0
        made._take(c.Reduction(_CUSTOM, _ORDER_RANKS, 1.0, shown.encode(errors="replace"), None, None, size),
                   Custom(f"ReduceOp.{made._name}", size, elements, function))
        made._made_by = ReduceOp.custom, (function, name, dtype)
        return made

    @staticmethod
    def min_located(value: DType, index: DType) -> ReduceOp:
        """Picks the pair of the least value among pairs of a value and an index, I32 or I64, and among equal ones that
        of the smallest index; NaN wins. Arrays of such pairs have the operation's `dtype`, whose fields are "value"
        and "index"; they lie as a C compiler lays out a struct."""
        return _located("min_located", c.op_min_located, ReduceOp.min_located, value, index)

    @staticmethod
    def max_located(value: DType, index: DType) -> ReduceOp:
        """The same of the greatest value."""
        return _located("max_located", c.op_max_located, ReduceOp.max_located, value, index)

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of elements of its own, as np.zeros(3, op.dtype) takes it. None where they are those of the
        call's buffers, or where there is no NumPy."""
        custom = self._struct.custom
        return custom.dtype if custom is not None else None

    def canonical(self) -> ReduceOp:
        """Pairs of ranks, then pairs of pairs: the same bits however ranks are spread over nodes."""
        return self._ordered("canonical", _ORDER_CANONICAL)

    def any_order(self) -> ReduceOp:
        """Whichever order is fastest. One of the program's own has to be commutative."""
        return self._ordered("any_order", _ORDER_ANY)

    def _ordered(self, word: str, order: int) -> ReduceOp:
        made = ReduceOp(f"{self._name}.{word}()", self._struct.op, self._struct.factor, order)
        made._made_by = self._made_by
        custom = self._struct.custom
        if custom is not None:
            made._take(self._struct, custom)
            made._struct.order = order
        return made

    def _take(self, struct: c.Reduction, custom: Custom) -> None:
        self._struct = c.Reduction(struct.op, struct.order, struct.factor, struct.name,
                                   ctypes.cast(custom.pointer, ctypes.c_void_p) if custom.pointer else struct.fold,
                                   struct.argument, struct.element_bytes)
        self._struct.custom = custom

    def __reduce__(self) -> Any:
        if getattr(ReduceOp, self._name, None) is self:
            return f"ReduceOp.{self._name}"
        if self._made_by is not None:
            return _again, (*self._made_by, self._struct.order)
        return ReduceOp, (self._name, self._struct.op, self._struct.factor, self._struct.order)

    def __repr__(self) -> str:
        return f"ReduceOp.{self._name}"


for _number, _name in enumerate(("SUM", "PRODUCT", "MIN", "MAX", "MEAN", "BAND", "BOR", "BXOR"), start=1):
    setattr(ReduceOp, _name, ReduceOp(_name, _number))
for _number, _name in enumerate(("LAND", "LOR", "LXOR"), start=11):
    setattr(ReduceOp, _name, ReduceOp(_name, _number))


def reduce_local(source: Any, target: Any, op: ReduceOp = ReduceOp.SUM) -> None:
    """`target` becomes source op target, element by element, here and now: what a call does with the elements of two
    ranks, of which `source` is the lower. Without a communicator, for any thread; not for ReduceOp.MEAN and
    premul_sum(), which are of all ranks at once, nor for memory of a device."""
    frame = _frame(1)
    place = place_of(frame)
    if not isinstance(op, ReduceOp):
        raise MisuseError(f"reduce_local: an operation is one of ReduceOp, not {op!r} [{place}]", call="reduce_local",
                          place=place)
    custom = op._struct.custom
    held, views = (Held(), Held()), (c.View(stride=1), c.View(stride=1))
    try:
        for one, view, owner, writable in zip(held, views, (source, target), (False, True)):
            one.show(owner, view, writable, "reduce_local", custom=custom)
        status = c.reduce_local(*views, op._struct)
    except MisuseError as error:
        raise MisuseError(f"{error} [{place}]", call="reduce_local", place=place) from None
    finally:
        for one in held:
            one.release()
    if status:
        own = custom.failure("reduce_local", None, place) if custom is not None else None
        raise own or failed(status, None, "reduce_local", place=place)


def _located(call: str, make: Any, maker: Callable[..., ReduceOp], value: DType, index: DType) -> ReduceOp:
    for given in (value, index):
        if not isinstance(given, DType):
            raise MisuseError(f"ReduceOp.{call}: value and index are of dlaunch.DType, such as DType.F64 and DType.I32, "
                              f"not {given!r}", call=call)
    struct = make(value, index)
    if struct.op != _CUSTOM:  # Then its name is the reason.
        raise MisuseError(f"ReduceOp.{call}: {(struct.name or b'').decode()}", call=call)
    made = ReduceOp(f"{call}({value.name}, {index.name})", _CUSTOM)
    made._take(struct, Custom(f"ReduceOp.{made._name}", struct.element_bytes, located(value, index)))
    made._made_by = maker, (value, index)
    return made


def _again(maker: Callable[..., ReduceOp], arguments: Tuple[Any, ...], order: int) -> ReduceOp:
    made = maker(*arguments)
    if order == made._struct.order:
        return made
    return made.canonical() if order == _ORDER_CANONICAL else made.any_order()
