"""The collectives, blocking and started."""
from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any, Iterable, Optional, Tuple

from . import _library as c
from ._calls import Calls, Within
from ._places import Integer, Seconds, integer, options_with
from .errors import MisuseError
from .reduction import ReduceOp
from .work import Work

_frame = sys._getframe
_SUM = ReduceOp.SUM
_COUNT_MAX = 2**63 - 1


class Collectives(Calls):
    """Every rank of the communicator makes the same calls, in the same order.

    A buffer is an object with the buffer protocol (a NumPy array, bytearray, array.array), DLPack (a PyTorch tensor) or
    the CUDA array interface whose elements lie side by side; it is read and written in place. Those of one call lie all
    on the host, or all on one CUDA device (see cuda_stream). `timeout` is in seconds; without it the communicator's
    counts. With `counts` ranks have parts of different lengths, in elements.
    """

    __slots__ = ()

    def barrier(self, *, timeout: Optional[Seconds] = None, ordered_output: bool = False) -> None:
        """Returns when all ranks have called. With `ordered_output` what was printed before it appears before what is
        printed after it, on any rank."""
        frame = _frame(1)
        if ordered_output:
            sys.stdout.flush()
            sys.stderr.flush()
        with Within(self, "barrier", frame):
            options = options_with(frame, "barrier", timeout, ordered_output=ordered_output, rank=self.rank)
            status = c.barrier.blocking(self._handle, ctypes.addressof(options))
            if status:
                raise self._failed(status, "barrier", frame)

    def broadcast(self, buffer: Any, root: Integer, *, timeout: Optional[Seconds] = None) -> None:
        """Everyone's `buffer` becomes that of `root`."""
        frame = _frame(1)
        self._in_place(c.broadcast, buffer, self._peer(root, "broadcast", frame), timeout, frame)

    def all_reduce(self, buffer: Any, op: ReduceOp = _SUM, *, timeout: Optional[Seconds] = None) -> None:
        """Everyone's `buffer` becomes the reduction of all."""
        frame = _frame(1)
        reduction = self._struct_of(op, "all_reduce", frame)
        self._in_place(c.all_reduce, buffer, reduction, timeout, frame, reduction.custom)

    def all_reduce_into(self, source: Any, target: Any, op: ReduceOp = _SUM, *,
                        timeout: Optional[Seconds] = None) -> None:
        """The same from `source` to `target`."""
        frame = _frame(1)
        reduction = self._struct_of(op, "all_reduce_into", frame)
        self._from_to(c.all_reduce_into, source, target, (reduction,), timeout, frame, reduction.custom)

    def reduce(self, source: Any, target: Optional[Any], root: Integer, op: ReduceOp = _SUM, *,
               timeout: Optional[Seconds] = None) -> None:
        """`target` of `root` becomes the reduction of everyone's `source`; elsewhere it may be None."""
        frame = _frame(1)
        root, reduction = self._peer(root, "reduce", frame), self._struct_of(op, "reduce", frame)
        target = self._at_root(target, root, "target", "reduce", frame)
        self._from_to(c.reduce, source, target, (root, reduction), timeout, frame, reduction.custom)

    def all_gather(self, source: Any, target: Any, counts: Optional[Iterable[Integer]] = None, *,
                   timeout: Optional[Seconds] = None) -> None:
        """`target` becomes everyone's `source`, in the order of the ranks."""
        frame = _frame(1)
        call, parts = self._by_parts(c.all_gather, c.all_gather_v, counts, frame)
        self._from_to(call, source, target, parts, timeout, frame)

    def gather(self, source: Any, target: Optional[Any], root: Integer, counts: Optional[Iterable[Integer]] = None, *,
               timeout: Optional[Seconds] = None) -> None:
        """all_gather whose result is written on `root` alone. Only the root's counts are read; ranks with counts and
        ranks without make different calls."""
        frame = _frame(1)
        call, parts = self._by_parts(c.gather, c.gather_v, counts, frame)
        root = self._peer(root, call.name, frame)
        target = self._at_root(target, root, "target", call.name, frame)
        self._from_to(call, source, target, (*parts, root), timeout, frame)

    def scatter(self, source: Optional[Any], target: Any, root: Integer, counts: Optional[Iterable[Integer]] = None, *,
                timeout: Optional[Seconds] = None) -> None:
        """Rank r's `target` becomes the r-th part of the root's `source`; elsewhere that may be None."""
        frame = _frame(1)
        call, parts = self._by_parts(c.scatter, c.scatter_v, counts, frame)
        root = self._peer(root, call.name, frame)
        source = self._at_root(source, root, "source", call.name, frame)
        self._from_to(call, source, target, (*parts, root), timeout, frame)

    def reduce_scatter(self, source: Any, target: Any, op: ReduceOp = _SUM,
                       counts: Optional[Iterable[Integer]] = None, *, timeout: Optional[Seconds] = None) -> None:
        """Rank r's `target` becomes the r-th part of the reduction of everyone's `source`."""
        frame = _frame(1)
        call, parts = self._by_parts(c.reduce_scatter, c.reduce_scatter_v, counts, frame)
        reduction = self._struct_of(op, call.name, frame)
        self._from_to(call, source, target, (*_scaled(parts, reduction), reduction), timeout, frame, reduction.custom)

    def all_to_all(self, source: Any, target: Any, source_counts: Optional[Iterable[Integer]] = None,
                   target_counts: Optional[Iterable[Integer]] = None, *, timeout: Optional[Seconds] = None) -> None:
        """Part j of rank i goes to part i of rank j. They are equal parts; or source_counts[j] elements go to rank j,
        and target_counts[i] come from rank i."""
        frame = _frame(1)
        call, parts = self._by_both(source_counts, target_counts, frame)
        self._from_to(call, source, target, parts, timeout, frame)

    def scan(self, source: Any, target: Any, op: ReduceOp = _SUM, *, timeout: Optional[Seconds] = None) -> None:
        """Rank r's `target` becomes the reduction of the `source` of ranks 0 to r."""
        frame = _frame(1)
        reduction = self._struct_of(op, "scan", frame)
        self._from_to(c.scan, source, target, (reduction,), timeout, frame, reduction.custom)

    def exscan(self, source: Any, target: Any, op: ReduceOp = _SUM, *, timeout: Optional[Seconds] = None) -> None:
        """The same of the ranks before r alone; rank 0's `target` is not written."""
        frame = _frame(1)
        reduction = self._struct_of(op, "exscan", frame)
        self._from_to(c.exscan, source, target, (reduction,), timeout, frame, reduction.custom)

    # The started forms: the same meaning, in the order of starting.

    def start_barrier(self, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts barrier(), and returns while it goes on: the Work is complete when all ranks have come."""
        return self._start(c.barrier, (), (), timeout, _frame(1))

    def start_broadcast(self, buffer: Any, root: Integer, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts broadcast(), and returns while it goes on."""
        frame = _frame(1)
        root = self._peer(root, "broadcast", frame)
        return self._start(c.broadcast, ((buffer, True),), (root,), timeout, frame)

    def start_all_reduce(self, buffer: Any, op: ReduceOp = _SUM, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts all_reduce(), and returns while it goes on."""
        frame = _frame(1)
        reduction = self._struct_of(op, "all_reduce", frame)
        return self._start(c.all_reduce, ((buffer, True),), (reduction,), timeout, frame, reduction.custom)

    def start_all_reduce_into(self, source: Any, target: Any, op: ReduceOp = _SUM, *,
                              timeout: Optional[Seconds] = None) -> Work:
        """Starts all_reduce_into(), and returns while it goes on."""
        frame = _frame(1)
        reduction = self._struct_of(op, "all_reduce_into", frame)
        return self._start(c.all_reduce_into, _two(source, target), (reduction,), timeout, frame, reduction.custom)

    def start_reduce(self, source: Any, target: Optional[Any], root: Integer, op: ReduceOp = _SUM, *,
                     timeout: Optional[Seconds] = None) -> Work:
        """Starts reduce(), and returns while it goes on."""
        frame = _frame(1)
        root, reduction = self._peer(root, "reduce", frame), self._struct_of(op, "reduce", frame)
        target = self._at_root(target, root, "target", "reduce", frame)
        return self._start(c.reduce, _two(source, target), (root, reduction), timeout, frame, reduction.custom)

    def start_all_gather(self, source: Any, target: Any, counts: Optional[Iterable[Integer]] = None, *,
                         timeout: Optional[Seconds] = None) -> Work:
        """Starts all_gather(), and returns while it goes on."""
        frame = _frame(1)
        call, parts = self._by_parts(c.all_gather, c.all_gather_v, counts, frame)
        return self._start(call, _two(source, target), parts, timeout, frame)

    def start_gather(self, source: Any, target: Optional[Any], root: Integer,
                     counts: Optional[Iterable[Integer]] = None, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts gather(), and returns while it goes on."""
        frame = _frame(1)
        call, parts = self._by_parts(c.gather, c.gather_v, counts, frame)
        root = self._peer(root, call.name, frame)
        target = self._at_root(target, root, "target", call.name, frame)
        return self._start(call, _two(source, target), (*parts, root), timeout, frame)

    def start_scatter(self, source: Optional[Any], target: Any, root: Integer,
                      counts: Optional[Iterable[Integer]] = None, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts scatter(), and returns while it goes on."""
        frame = _frame(1)
        call, parts = self._by_parts(c.scatter, c.scatter_v, counts, frame)
        root = self._peer(root, call.name, frame)
        source = self._at_root(source, root, "source", call.name, frame)
        return self._start(call, _two(source, target), (*parts, root), timeout, frame)

    def start_reduce_scatter(self, source: Any, target: Any, op: ReduceOp = _SUM,
                             counts: Optional[Iterable[Integer]] = None, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts reduce_scatter(), and returns while it goes on."""
        frame = _frame(1)
        call, parts = self._by_parts(c.reduce_scatter, c.reduce_scatter_v, counts, frame)
        reduction = self._struct_of(op, call.name, frame)
        return self._start(call, _two(source, target), (*_scaled(parts, reduction), reduction), timeout, frame,
                           reduction.custom)

    def start_all_to_all(self, source: Any, target: Any, source_counts: Optional[Iterable[Integer]] = None,
                         target_counts: Optional[Iterable[Integer]] = None, *,
                         timeout: Optional[Seconds] = None) -> Work:
        """Starts all_to_all(), and returns while it goes on."""
        frame = _frame(1)
        call, parts = self._by_both(source_counts, target_counts, frame)
        return self._start(call, _two(source, target), parts, timeout, frame)

    def start_scan(self, source: Any, target: Any, op: ReduceOp = _SUM, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts scan(), and returns while it goes on."""
        frame = _frame(1)
        reduction = self._struct_of(op, "scan", frame)
        return self._start(c.scan, _two(source, target), (reduction,), timeout, frame, reduction.custom)

    def start_exscan(self, source: Any, target: Any, op: ReduceOp = _SUM, *, timeout: Optional[Seconds] = None) -> Work:
        """Starts exscan(), and returns while it goes on."""
        frame = _frame(1)
        reduction = self._struct_of(op, "exscan", frame)
        return self._start(c.exscan, _two(source, target), (reduction,), timeout, frame, reduction.custom)

    def _by_parts(self, equal: c.Call, uneven: c.Call, counts: Optional[Iterable[Integer]], frame: FrameType,
                  name: str = "counts") -> Tuple[c.Call, Tuple[Any, ...]]:
        """The call of the two that it is, and the counts among its arguments."""
        if counts is None:
            return equal, ()
        try:
            listed = list(counts)
        except TypeError:
            listed = []
        if len(listed) != self.size:
            raise self._here(MisuseError(f"{uneven.name}: {name} are one number of elements for each of the "
                                         f"{self.size} ranks, not {counts!r}", call=uneven.name), frame)
        return uneven, (self._counts([integer(count, 0, _COUNT_MAX, f"{name}[{at}] is a number of elements, 0 or more",
                                              uneven.name, frame, self.rank) for at, count in enumerate(listed)]),)

    def _by_both(self, source_counts: Optional[Iterable[Integer]],
                 target_counts: Optional[Iterable[Integer]],
                 frame: FrameType) -> Tuple[c.Call, Tuple[Any, ...]]:
        if (source_counts is None) != (target_counts is None):
            raise self._here(MisuseError("all_to_all_v: the counts of both buffers are given, or of none",
                                         call="all_to_all_v"), frame)
        call, of_source = self._by_parts(c.all_to_all, c.all_to_all_v, source_counts, frame, "source_counts")
        of_target = self._by_parts(c.all_to_all, c.all_to_all_v, target_counts, frame, "target_counts")[1]
        return call, of_source + of_target

    def _counts(self, counts: Iterable[int]) -> Any:
        return (ctypes.c_size_t * self.size)(*counts)

    def _struct_of(self, op: ReduceOp, call: str, frame: FrameType) -> c.Reduction:
        if isinstance(op, ReduceOp):
            return op._struct
        raise self._here(MisuseError(f"{call}: an operation is one of ReduceOp, not {op!r}", call=call), frame)


def _scaled(parts: Tuple[Any, ...], reduction: c.Reduction) -> Tuple[Any, ...]:
    """Counts of elements of the reduction's own, which the library has as bytes."""
    size = reduction.element_bytes
    return tuple(type(counts)(*(size * count for count in counts)) for counts in parts) if size else parts


def _two(source: Any, target: Any) -> Tuple[Tuple[Any, bool], Tuple[Any, bool]]:
    """Each buffer, and whether it is written."""
    return (source, False), (target, True)
