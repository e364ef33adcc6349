"""Messages between two ranks."""
import os
import selectors

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

    # Messages of unknown length, and whatever else is under way, waited for together.
    probe, number = comm.start_probe(peer, 20), comm.irecv(theirs, peer, 21)
    assert dlaunch.test_any([probe, None, number]) is None
    assert dlaunch.wait_some([probe, None, number], 0.001) == []
    comm.barrier()
    comm.send(np.arange(7 + comm.rank, dtype=np.float64), peer, 20)
    assert dlaunch.wait_any([None, probe], 60) == 1
    assert dlaunch.wait_some([probe, number], 60) == [0]
    assert probe.received == dlaunch.Received(peer, 20, dlaunch.DType.F64, 7 + peer)
    message = comm.match(peer, 20)
    assert comm.try_match(peer, 20) is None and comm.try_probe(peer, 20) is None
    del message  # It goes back to its place.
    message = comm.try_match(peer)
    assert message.what == probe.received
    try:
        comm.recv_matched(message, np.zeros(3))
    except dlaunch.MisuseError as error:
        assert "the buffer has room for 3 of f64" in str(error) and "messages.py:" in str(error), error
    else:
        raise AssertionError("three elements took more")
    longer = np.full(20, -1.0)
    assert comm.recv_matched(message, longer) == probe.received
    assert (longer[:7 + peer] == np.arange(7 + peer)).all() and (longer[7 + peer:] == -1).all()
    try:
        comm.recv_matched(message, longer)
    except dlaunch.MisuseError as error:
        assert "received already" in str(error), error
    else:
        raise AssertionError("a message was received twice")
    comm.barrier()  # Each has looked before the other goes on.
    comm.send(mine, peer, 21)
    assert dlaunch.wait_some([None, number], 60) == [1]
    assert dlaunch.wait_some([probe, number], 60) == [0, 1] and dlaunch.test_any([None, number]) == 1

    # A batch: none of its messages blocks another, and a wrong one lets none begin.
    Transfer = dlaunch.Transfer
    large, other = np.full(3 << 20, comm.rank, np.int8), np.zeros(3 << 20, np.int8)
    try:
        comm.batch([Transfer.send(large, peer), Transfer.recv(other, 2)])
    except dlaunch.MisuseError as error:
        assert "there is no rank 2" in str(error) and "messages.py:" in str(error), error
    else:
        raise AssertionError("there is no rank 2")
    comm.barrier()
    assert comm.try_probe() is None
    comm.barrier()
    comm.batch([Transfer.send(large, peer, 4), Transfer.recv(other, peer, 4)])
    assert (other == peer).all()
    works = comm.start_batch([Transfer.recv(other, peer, 6), Transfer.recv(theirs, peer, 5),
                              Transfer.send(mine, peer, 5), Transfer.send(large, peer, 6)])
    dlaunch.wait_all(works)
    assert works[1].received == dlaunch.Received(peer, 5, dlaunch.DType.I32, 4) and works[2].received is None
    assert comm.start_batch([]) == []
    longer = np.zeros(9, np.int32)
    assert comm.sendrecv(mine, peer, longer, peer, 8, up_to=True).elements == 4
    works = comm.start_batch([Transfer.recv(longer, peer, 8, up_to=True), Transfer.send(mine, peer, 8)])
    dlaunch.wait_all(works)
    assert works[0].received.elements == 4 and (longer[:4] == theirs).all()

    # A loop of the program's own.
    with selectors.DefaultSelector() as selector:
        selector.register(comm.descriptor(), selectors.EVENT_READ)
        work = comm.irecv(theirs, peer, 30)
        if comm.rank == 0:
            comm.send(mine, peer, 30)
        while not work.test():
            assert selector.select(60)
            try:
                while os.read(comm.descriptor(), 8):
                    pass
            except BlockingIOError:
                pass
        if comm.rank == 1:
            comm.send(mine, peer, 30)
    assert (theirs == peer).all()
    comm.barrier()
    print(f"rank {comm.rank} is done")
