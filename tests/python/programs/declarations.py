"""What the package declares of the C API, a line each: a function and its parameters, or a C expression and its value,
with ~ for its blanks."""
import ctypes
import re

import dlaunch
from dlaunch import _library, errors

STRUCTS = {"View": "dl_view", "Options": "dl_options", "Reduction": "dl_reduction", "InitOptions": "dl_init_options",
           "WorldInfo": "dl_world_info", "Received": "dl_received", "Transfer": "dl_transfer", "Bytes": "dl_bytes"}


def declared(function):
    print("function", function.__name__, len(function.argtypes))


for name, value in vars(_library).items():
    if isinstance(value, _library.Call):
        declared(value.blocking)
        declared(value.started)
    elif isinstance(value, ctypes._CFuncPtr):
        declared(value)
    elif isinstance(value, type) and issubclass(value, ctypes.Structure):
        struct = STRUCTS[name]
        print("value", f"sizeof({struct})", ctypes.sizeof(value))
        for field, kind in value._fields_:
            print("value", f"offsetof({struct},~{field})", getattr(value, field).offset)
            print("value", f"sizeof((({struct}*)0)->{field})", ctypes.sizeof(kind))
for dtype in dlaunch.DType:
    print("value", f"DL_{dtype.name}", int(dtype))
for name, op in vars(dlaunch.ReduceOp).items():
    if isinstance(op, dlaunch.ReduceOp):
        print("value", f"DL_{name}", op._struct.op)
print("value", "DL_PREMUL_SUM", dlaunch.ReduceOp.premul_sum(2)._struct.op)
print("value", "DL_ORDER_CANONICAL", dlaunch.ReduceOp.SUM.canonical()._struct.order)
print("value", "DL_ORDER_ANY", dlaunch.ReduceOp.SUM.any_order()._struct.order)
for status, kind in errors.KINDS.items():
    words = re.findall("[A-Z][a-z]+", kind.__name__.removesuffix("Error"))
    print("value", "DL_" + "_".join(words).upper(), status)
print("value", "DL_ANY_SOURCE", dlaunch.ANY_SOURCE)
print("value", "DL_ANY_TAG", dlaunch.ANY_TAG)
