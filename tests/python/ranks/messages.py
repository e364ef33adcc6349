"""Messages between two ranks."""
import numpy as np

import dlaunch

with dlaunch.init() as world:
    comm = world.comm
    peer = 1 - comm.rank
    mine = np.full(4, comm.rank, np.int32)
    theirs = np.zeros(4, np.int32)

    if comm.rank == 0:
        comm.send(mine, peer, tag=3)
        comm.send(mine, peer, synchronous=True)
        comm.isend(mine, peer, tag=5).wait()
    else:
        assert comm.probe(tag=3) == dlaunch.Received(0, 3, dlaunch.DType.I32, 4)
        assert comm.recv(theirs, 0, 3).elements == 4
        longer = np.zeros(9, np.int32)
        assert comm.recv(longer, 0, 0, up_to=True).elements == 4
        work = comm.irecv(theirs, tag=5)
        work.wait()
        assert work.received == dlaunch.Received(0, 5, dlaunch.DType.I32, 4)
        assert comm.try_probe() is None
    comm.barrier()

    assert comm.sendrecv(mine, peer, theirs, peer, 9).source == peer
    assert (theirs == peer).all()

    work = comm.irecv(theirs, peer, 11)
    assert not work.test() and not work.done and work.cancel()
    try:
        work.wait()
    except dlaunch.AbortedError as error:
        assert "messages.py:" in str(error), error
    else:
        raise AssertionError("a receive that was taken back has received")
    comm.barrier()
    print(f"rank {comm.rank} is done")
