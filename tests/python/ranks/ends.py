"""The world's end while other threads are in calls, and while what was started goes on. Two ranks; says `ends` how."""
import sys
import threading
import time

import numpy as np

import dlaunch

how = sys.argv[1]
LARGE = 3 << 20
told = []


def expect(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        told.append(error)
    else:
        raise AssertionError(f"{call} has returned")


def waits_in(call, *arguments, kind=dlaunch.AbortedError, **options):
    thread = threading.Thread(target=expect, args=(kind, call, *arguments), **options)
    thread.start()
    return thread


world = dlaunch.init()
comm, peer = world.comm, 1 - world.rank
own = [world.communicator(f"thread's own {number}") for number in range(4)]
late = world.communicator("late")
started = own[1].irecv(np.zeros(1), peer, 5)
threads = [waits_in(own[0].recv, np.zeros(1), peer, 5, daemon=True),
           waits_in(started.wait, daemon=True),
           waits_in(dlaunch.wait_all, [own[2].irecv(np.zeros(1), peer, 5)], daemon=True)]
waits_in(world.store.wait, f"never of {world.rank}", kind=dlaunch.Error, daemon=True)
time.sleep(0.2)

# A second thread in one communicator is told, and does no harm; it may abort.
expect(dlaunch.MisuseError, own[0].barrier)
assert "is for one thread at a time, and another one is in recv [ends.py:" in str(told[0]), told
expect(dlaunch.MisuseError, started.wait)
waits_in(own[3].recv, np.zeros(1), peer, 5).join(0.2)
if how == "freed":
    own[3].free()
else:
    own[3].abort()
comm.barrier()

# It is dropped, and arrives all the same.
if world.rank == 0:
    comm.isend(np.ones(LARGE), peer, 7)
    late.start_broadcast(np.ones(LARGE), 0)
else:
    time.sleep(0.5)
    got = np.zeros(LARGE)
    comm.recv(got, peer, 7)
    late.broadcast(got, 0)
    assert got.sum() == LARGE
print(f"rank {world.rank} is done", flush=True)
if how == "finalized":
    world.finalize()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(told) == 6, told
