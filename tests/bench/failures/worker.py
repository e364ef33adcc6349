"""A worker without any library that fails in the way it is told: worker.py HOW MARK. The file MARK gets the time."""

import os
import signal
import sys
import time

NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def main():
    how, mark = sys.argv[1:]
    rank = int(next(os.environ[name] for name in NAMES if name in os.environ))
    print("up", flush=True)
    open(f"{mark}.up.{rank}", "w").close()
    if how == "all_sleep" or rank != 1:
        time.sleep(1000)
    time.sleep(1)
    with open(mark, "w") as file:
        file.write(repr(time.time()))
    if how == "exit":
        print("shard 7 is empty", file=sys.stderr)
        sys.exit(3)
    if how == "raise":
        raise ValueError("no data")
    if how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "memory":
        blocks = []
        while True:
            blocks.append(b"x" * (8 << 20))


main()
