"""How much longer a 4-byte all_reduce takes from Python than from C: both in one process, by turns.

    dlaunch --nproc_per_node 2 tests/python/latency.py

Takes NumPy and a C compiler. Prints the best and the median of many turns.
"""
import ctypes
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np

import dlaunch

CALLS = 500
TURNS = 200


def c_library(folder):
    library = pathlib.Path(folder) / "latency.so"
    prefix = dlaunch.PREFIX
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", pathlib.Path(__file__).with_suffix(".c"), f"-I{prefix}/include",
                    f"-L{prefix}/lib", "-ldlaunch", f"-Wl,-rpath,{prefix}/lib", "-o", library], check=True)
    function = ctypes.CDLL(str(library)).seconds_of_calls
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_double
    return function


def python_seconds(comm, value):
    begin = time.perf_counter()
    for _ in range(CALLS):
        comm.all_reduce(value, dlaunch.ReduceOp.MAX)
    return time.perf_counter() - begin


with tempfile.TemporaryDirectory() as folder, dlaunch.init() as world:
    comm = world.comm
    from_c = c_library(folder)
    value = np.ones(1, np.float32)
    took = {"C": [], "Python": []}
    for turn in range(TURNS):
        took["C"].append(from_c(comm._handle, CALLS) / CALLS * 1e6)
        took["Python"].append(python_seconds(comm, value) / CALLS * 1e6)
    if comm.rank == 0:
        for name, values in took.items():
            print(f"{name:7} best {min(values):6.2f} us   median {statistics.median(values):6.2f} us")
        print(f"{'more':7} best {min(took['Python']) - min(took['C']):6.2f} us   "
              f"median {statistics.median(took['Python']) - statistics.median(took['C']):6.2f} us")
