"""dlaunch.run() with functions of this file: what they return, what they raise, and how they die."""
import os
import pathlib
import signal
import sys
import threading

import dlaunch


def ranks_of(word):
    with dlaunch.init() as world:
        return word, world.comm.all_gather_object(world.rank)


class Parcel:
    """What this file defines travels both ways."""

    def __init__(self, content):
        self.content = content


class OfItsOwn(Exception):
    pass


def doubled(parcel):
    if parcel.content is None:
        raise OfItsOwn("nothing in it")
    return Parcel(2 * parcel.content)


def says(word):
    with dlaunch.init() as world:
        world.comm.barrier()
        print(f"rank {world.rank} says {word}", flush=True)


def raises(rank):
    with dlaunch.init() as world:
        if world.rank == rank:
            raise KeyError("of its own")
        world.comm.barrier()


def dies():
    with dlaunch.init() as world:
        world.comm.barrier()
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        world.comm.barrier()


def waits():
    print(f"pid {os.getpid()}", flush=True)
    with dlaunch.init() as world:
        world.comm.barrier()
        signal.pause()


def reads():
    return sys.stdin.read()


def exits(rank):
    if int(os.environ["RANK"]) == rank:
        sys.exit(0)


def raises_then_dies():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise KeyError("of the first attempt")
    os.kill(os.getpid(), signal.SIGKILL)


def own_rank():
    return os.environ["RANK"]


class OnRanksAlone:
    def __reduce__(self):
        return own_rank, ()


def returns(what):
    return what()


def starts_a_job():
    return dlaunch.run(says, "that", nproc=1)


def failure(function, *args, nproc=2, options=()):
    try:
        dlaunch.run(function, *args, nproc=nproc, options=["--quiet", "--failure-grace", "60s", *options])
    except dlaunch.RunError as error:
        return error
    raise AssertionError("it went well")


if __name__ == "__main__" and sys.argv[1:] == ["waits"]:
    dlaunch.run(waits, nproc=2)
elif __name__ == "__main__" and sys.argv[1:] == ["forks"]:
    threading.Thread(target=lambda: dlaunch.run(waits, nproc=2)).start()
    sys.stdin.readline()
    # The child has all that this process has, the other end of the launcher's input, too.
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.pause()
    print(f"pid {child}", flush=True)
elif __name__ == "__main__":
    assert dlaunch.run(ranks_of, "x", nproc=3) == [("x", [0, 1, 2])] * 3
    assert dlaunch.run(says, "this", nproc=2) == [None, None]
    assert [parcel.content for parcel in dlaunch.run(doubled, Parcel(4), nproc=2)] == [8, 8]
    assert isinstance(failure(doubled, Parcel(None), nproc=1).__cause__, OfItsOwn)
    # A module's function needs nothing of this file.
    assert dlaunch.run(os.path.basename, "a/b", nproc=1) == ["b"]

    assert dlaunch.run(reads, nproc=2) == ["", ""]

    error = failure(raises, 1)
    assert error.rank == 1 and error.exit_code == 1, error
    assert "KeyError: 'of its own'" in str(error) and "in raises" in str(error), error
    assert isinstance(error.__cause__, KeyError) and isinstance(error.errors[0], dlaunch.PeerLostError), error.errors

    error = failure(dies)
    assert error.rank == 1 and error.exit_code == 137 and "killed by SIGKILL" in str(error), error
    assert isinstance(error.errors[0], dlaunch.PeerLostError), error.errors

    error = failure(exits, 1)
    assert error.rank == 1 and "rank 1 exited before its function returned" in str(error), error
    assert isinstance(error.__cause__, SystemExit), error.errors

    error = failure(raises_then_dies, nproc=1, options=["--max-restarts", "1"])
    assert "killed by SIGKILL" in str(error) and "first attempt" not in str(error) and not error.errors, error

    error = failure(signal.pause, nproc=1, options=["--deadline", "1"])
    assert error.rank is None and error.exit_code == 75 and "deadline" in str(error), error

    error = failure(returns, OnRanksAlone)
    assert str(error) == "run: what rank 0 returned, of type OnRanksAlone, cannot be unpickled: KeyError: 'RANK'"
    assert error.rank == 0 and isinstance(error.__cause__, KeyError), vars(error)
    error = failure(returns, threading.Lock, nproc=1)
    assert "what the function returned, of type lock, cannot be pickled: " in str(error), error

    sys.path.append(pathlib.Path("/"))
    assert dlaunch.run(starts_a_job, nproc=1) == [[None]]

    sys.modules["cloudpickle"] = None  # It would take the first one.
    for said, wrong in {"lambda": lambda: dlaunch.run(lambda: None, nproc=1),
                        "cannot call None": lambda: dlaunch.run(None, nproc=1),
                        "1 or more, not 0": lambda: dlaunch.run(says, nproc=0),
                        "1 or more, not '2'": lambda: dlaunch.run(says, nproc="2"),
                        "argument 2, of type TextIOWrapper": lambda: dlaunch.run(print, 1, sys.stdout, nproc=1),
                        "not '--quiet'": lambda: dlaunch.run(says, nproc=1, options="--quiet"),
                        "['--nope'] are refused: unknown option --nope": lambda: dlaunch.run(says, nproc=1,
                                                                                              options=["--nope"]),
                        "--result": lambda: dlaunch.run(says, nproc=1, options=["--result", "file"])}.items():
        try:
            wrong()
        except dlaunch.MisuseError as misuse:
            assert str(misuse).startswith("run: ") and said in str(misuse), misuse
        else:
            raise AssertionError(f"it was taken: {said}")
    print("all is as it should be")
