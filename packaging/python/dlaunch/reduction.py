"""How the ranks' elements become one."""
from __future__ import annotations

from typing import Any, ClassVar

from . import _library as c

_ORDER_RANKS, _ORDER_CANONICAL, _ORDER_ANY = range(3)


class ReduceOp:
    """An operation, as `ReduceOp.SUM`; sums are made in the order of the ranks unless canonical() or any_order() says
    otherwise. The same on all ranks."""

    __slots__ = ("_struct", "_name")

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

    @staticmethod
    def premul_sum(factor: float) -> ReduceOp:
        """Each element times `factor`, then summed. Floats and complex numbers only."""
        return ReduceOp(f"premul_sum({factor})", 9, float(factor))

    def canonical(self) -> ReduceOp:
        """Pairs of ranks, then pairs of pairs: the same bits however ranks are spread over nodes."""
        return ReduceOp(f"{self._name}.canonical()", self._struct.op, self._struct.factor, _ORDER_CANONICAL)

    def any_order(self) -> ReduceOp:
        """Whichever order is fastest."""
        return ReduceOp(f"{self._name}.any_order()", self._struct.op, self._struct.factor, _ORDER_ANY)

    def __reduce__(self) -> Any:
        if getattr(ReduceOp, self._name, None) is self:
            return f"ReduceOp.{self._name}"
        return ReduceOp, (self._name, self._struct.op, self._struct.factor, self._struct.order)

    def __repr__(self) -> str:
        return f"ReduceOp.{self._name}"


for _number, _name in enumerate(("SUM", "PRODUCT", "MIN", "MAX", "MEAN", "BAND", "BOR", "BXOR"), start=1):
    setattr(ReduceOp, _name, ReduceOp(_name, _number))
for _number, _name in enumerate(("LAND", "LOR", "LXOR"), start=11):
    setattr(ReduceOp, _name, ReduceOp(_name, _number))
