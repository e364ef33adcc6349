"""libdlaunch.so by ctypes: the structures and functions of dlaunch/dlaunch.h that this package calls.

Nothing else in the package knows ctypes' types of them. The functions release Python's lock while they run.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import sys
from typing import Any, List, Optional, Sequence

from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

#: What `cmake --install` has installed, within the package: bin, lib, include.
PREFIX = pathlib.Path(__file__).parent / "installed"
#: This package's version, and that of the only library it calls: some structures have no size in them to tell by.
VERSION = "0.1.0"


class View(ctypes.Structure):
    """dl_view and dl_const_view, which have one form."""

    _fields_ = [("data", c_void_p), ("count", c_size_t), ("stride", ctypes.c_ssize_t), ("dtype", c_int32),
                ("place", c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("file", c_char_p), ("function", c_char_p), ("line", c_int32),
                ("tag", c_int32), ("timeout_ms", c_int64), ("cuda_stream", c_void_p), ("truncate_mean", c_int32),
                ("ordered_output", c_int32)]


class Reduction(ctypes.Structure):
    _fields_ = [("op", c_int32), ("order", c_int32), ("factor", c_double), ("name", c_char_p), ("fold", c_void_p),
                ("argument", c_void_p), ("element_bytes", c_size_t)]

    #: What the package knows of one with a function or elements of its own: a Custom.
    custom: Any = None


#: The function of such a one.
Fold = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t, c_int32)


class InitOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("timeout_ms", c_int64), ("rank", c_int32), ("world_size", c_int32),
                ("linger_ms", c_int64)]


class WorldInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("rank", c_int32), ("size", c_int32), ("local_rank", c_int32),
                ("local_size", c_int32), ("node_rank", c_int32), ("node_count", c_int32), ("epoch", c_uint64),
                ("attempt", c_int32), ("reserved", c_int32), ("job", c_char_p), ("hostname", c_char_p),
                ("master_addr", c_char_p), ("master_port", c_char_p), ("init_method", c_char_p)]


class Received(ctypes.Structure):
    _fields_ = [("source", c_int32), ("tag", c_int32), ("dtype", c_int32), ("reserved", c_int32), ("count", c_size_t)]


class Transfer(ctypes.Structure):
    _fields_ = [("out", View), ("in", View), ("peer", c_int32), ("tag", c_int32), ("is_send", c_int32),
                ("up_to", c_int32)]


class Bytes(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


def _load() -> ctypes.CDLL:
    # A look at what another thread does and the next assignment are one step only where Python has its lock.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError("dlaunch needs Python's global lock, and this Python runs without it: set PYTHON_GIL=1, or "
                          "start python with -X gil=1")
    path = os.environ.get("DLAUNCH_LIBRARY") or str(PREFIX / "lib" / "libdlaunch.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"dlaunch's library cannot be loaded: {error}; install the package again, or let "
                          "DLAUNCH_LIBRARY name a libdlaunch.so.0") from None
    of = getattr(library, "dl_version", None)
    if of is None:
        raise ImportError(f"{path} is no library of dlaunch: let DLAUNCH_LIBRARY name a libdlaunch.so.0")
    of.restype = c_char_p
    theirs = of().decode()
    if theirs != VERSION:
        raise ImportError(f"{path} is of dlaunch {theirs}, and this package of {VERSION}: install both from one build")
    return library


_library = _load()


def _function(name: str, *arguments: Any, result: Optional[Any] = c_int) -> Any:
    function = getattr(_library, name, None)
    if function is None:
        raise ImportError(f"{_library._name} has no {name}, though it says that it is of dlaunch {VERSION}, as this "
                          "package is: install both from one build")
    function.argtypes = arguments
    function.restype = result
    return function


_handle = c_void_p
_options = c_void_p  # The address of an Options, or None.
_out = c_void_p      # The address of a result.

status_text = _function("dl_status_text", c_int, result=c_char_p)
last_message = _function("dl_last_message", _handle, result=c_char_p)
version = _function("dl_version", result=c_char_p)

world_init = _function("dl_world_init", c_char_p, _options, _out)
world_from_env = _function("dl_world_from_env", _options, _out)
world_free = _function("dl_world_free", _handle, result=None)
world_abandon = _function("dl_world_abandon", _handle, result=None)
world_get_info = _function("dl_world_get_info", _handle, _out)
world_store = _function("dl_world_store", _handle, _out)

store_free = _function("dl_store_free", _handle, result=None)
store_set = _function("dl_store_set", _handle, c_char_p, c_char_p, c_size_t)
store_get = _function("dl_store_get", _handle, c_char_p, _out)
store_wait = _function("dl_store_wait", _handle, c_char_p, c_int64, _out)
store_add = _function("dl_store_add", _handle, c_char_p, c_int64, _out)
store_compare_set = _function("dl_store_compare_set", _handle, c_char_p, c_char_p, c_size_t, c_char_p, c_size_t, _out)
store_erase = _function("dl_store_erase", _handle, c_char_p, _out)
bytes_free = _function("dl_bytes_free", _out, result=None)

comm_create = _function("dl_comm_create", _handle, c_char_p, _out)
comm_free = _function("dl_comm_free", _handle, result=None)
comm_rank = _function("dl_comm_rank", _handle)
comm_size = _function("dl_comm_size", _handle)
comm_name = _function("dl_comm_name", _handle, result=c_char_p)
comm_set_timeout = _function("dl_comm_set_timeout", _handle, c_int64)
comm_timeout_ms = _function("dl_comm_timeout_ms", _handle, result=c_int64)
comm_prepare_device = _function("dl_comm_prepare_device", _handle, c_int32, _options)
comm_split = _function("dl_comm_split", _handle, c_int, c_int, _out, _options)
comm_group = _function("dl_comm_group", _handle, c_void_p, c_size_t, _out, _options)
comm_duplicate = _function("dl_comm_duplicate", _handle, _out, _options)
comm_agree = _function("dl_comm_agree", _handle, c_uint32, _out, _options)
comm_shrink = _function("dl_comm_shrink", _handle, _out, _options)
comm_abort = _function("dl_comm_abort", _handle)
comm_revoke = _function("dl_comm_revoke", _handle)
comm_descriptor = _function("dl_comm_descriptor", _handle, _out)


class Call:
    """A collective, in both its forms: blocking, and started, which has the work before the options."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name = name
        #: Of the parameters, which stand in the C API's order, the views.
        self.views = [at for at, kind in enumerate(arguments) if kind is View]
        self.blocking = _function(f"dl_{name}", _handle, *arguments, _options)
        self.started = _function(f"dl_start_{name}", _handle, *arguments, _out, _options)

    def arranged(self, views: Sequence[View], others: Sequence[Any]) -> List[Any]:
        """The parameters in their order."""
        parameters = list(others)
        for at, view in zip(self.views, views):
            parameters.insert(at, view)
        return parameters


_counts = c_void_p
barrier = Call("barrier")
broadcast = Call("broadcast", View, c_int)
reduce = Call("reduce", View, View, c_int, Reduction)
all_reduce = Call("all_reduce", View, Reduction)
all_reduce_into = Call("all_reduce_into", View, View, Reduction)
all_gather = Call("all_gather", View, View)
all_gather_v = Call("all_gather_v", View, View, _counts)
gather = Call("gather", View, View, c_int)
gather_v = Call("gather_v", View, View, _counts, c_int)
scatter = Call("scatter", View, View, c_int)
scatter_v = Call("scatter_v", View, View, _counts, c_int)
reduce_scatter = Call("reduce_scatter", View, View, Reduction)
reduce_scatter_v = Call("reduce_scatter_v", View, View, _counts, Reduction)
all_to_all = Call("all_to_all", View, View)
all_to_all_v = Call("all_to_all_v", View, _counts, View, _counts)
scan = Call("scan", View, View, Reduction)
exscan = Call("exscan", View, View, Reduction)

op_min_located = _function("dl_op_min_located", c_int32, c_int32, result=Reduction)
op_max_located = _function("dl_op_max_located", c_int32, c_int32, result=Reduction)
fold_failed = _function("dl_fold_failed", c_char_p, result=None)
reduce_local = _function("dl_reduce_local", View, View, Reduction)

send = _function("dl_send", _handle, View, c_int, _options)
ssend = _function("dl_ssend", _handle, View, c_int, _options)
recv = _function("dl_recv", _handle, View, c_int, _out, _options)
recv_up_to = _function("dl_recv_up_to", _handle, View, c_int, _out, _options)
sendrecv = _function("dl_sendrecv", _handle, View, c_int, View, c_int, _out, _options)
sendrecv_up_to = _function("dl_sendrecv_up_to", _handle, View, c_int, View, c_int, _out, _options)
isend = _function("dl_isend", _handle, View, c_int, _out, _options)
issend = _function("dl_issend", _handle, View, c_int, _out, _options)
irecv = _function("dl_irecv", _handle, View, c_int, _out, _options)
irecv_up_to = _function("dl_irecv_up_to", _handle, View, c_int, _out, _options)
probe = _function("dl_probe", _handle, c_int, _out, _options)
try_probe = _function("dl_try_probe", _handle, c_int, _out, _out, _options)
start_probe = _function("dl_start_probe", _handle, c_int, _out, _options)
batch = _function("dl_batch", _handle, c_void_p, c_size_t, _options)
start_batch = _function("dl_start_batch", _handle, c_void_p, c_size_t, _out, _options)
match = _function("dl_match", _handle, c_int, _out, _options)
try_match = _function("dl_try_match", _handle, c_int, _out, _out, _options)
message_what = _function("dl_message_what", _handle, _out)
recv_matched = _function("dl_recv_matched", _handle, _handle, View, _out, _options)
message_free = _function("dl_message_free", _handle, result=None)

work_wait = _function("dl_work_wait", _handle)
work_wait_for = _function("dl_work_wait_for", _handle, c_int64, _out)
work_test = _function("dl_work_test", _handle, _out)
work_done = _function("dl_work_done", _handle)
work_wait_any = _function("dl_work_wait_any", c_void_p, c_size_t, c_int64, _out)
work_wait_some = _function("dl_work_wait_some", c_void_p, c_size_t, c_int64, _out, _out)
work_test_any = _function("dl_work_test_any", c_void_p, c_size_t, _out)
work_cancel = _function("dl_work_cancel", _handle, _out)
work_order_before = _function("dl_work_order_before", _handle, c_void_p)
work_received = _function("dl_work_received", _handle, _out, _out)
work_free = _function("dl_work_free", _handle, result=None)
