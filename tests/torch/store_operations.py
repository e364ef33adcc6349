"""Every operation that this torch's TCPStore offers, one by one, checked.

Run it with two or more ranks. Each rank works under a prefix of its own, and then the ranks work
together. Ends by checking that no operation of this version was left out.
"""

import datetime
import os
import threading

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
HOST = os.environ["MASTER_ADDR"]
PORT = int(os.environ["MASTER_PORT"])
LONG = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(milliseconds=200)
OFFERED = {name for name in dir(dist.TCPStore) if not name.startswith("_")}

exercised = set()


def connect():
    # Debian's torch 2 was built without libuv, and its clients have to say that they know.
    old = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
    return dist.TCPStore(HOST, PORT, None, False, LONG, wait_for_workers=False, **old)


def operations(*names):
    """Marks a check with the operations that it exercises."""

    def mark(check):
        check.operations = names
        return check

    return mark


def run(check, *arguments):
    check(*arguments)
    exercised.update(check.operations)


def fails(kinds, call, *arguments):
    try:
        call(*arguments)
    except kinds:
        return True
    return False


def missing(store, key):
    """Whether a key is absent, in a way that torch 1.13 knows as well: it creates it."""
    return store.compare_set(key, "no such value", "x") == b"no such value"


def meet(store, name):
    """All ranks have come to this place."""
    if store.add("meet/" + name, 1) == WORLD:
        store.set("meet/" + name + "/all", "yes")
    store.wait(["meet/" + name + "/all"])


@operations("host", "port", "timeout", "set_timeout")
def properties(store):
    assert (store.host, store.port) == (HOST, PORT)
    assert store.timeout == LONG, store.timeout
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    store.set_timeout(LONG)


@operations("set", "get")
def values(store):
    store.set("key", "value")
    assert store.get("key") == b"value"
    store.set("key", "another")
    assert store.get("key") == b"another"
    store.set("empty", "")
    assert store.get("empty") == b""
    store.set("text", "grüße \x00 世界")
    assert store.get("text").decode() == "grüße \x00 世界"
    large = "x" * (4 << 20)
    store.set("large", large)
    assert store.get("large") == large.encode()
    for number in range(500):
        store.set("many/%d" % number, str(number))
    for number in range(499, -1, -1):
        assert store.get("many/%d" % number) == str(number).encode()


@operations("add")
def counters(store):
    assert store.add("counter", 1) == 1
    assert store.add("counter", 41) == 42
    assert store.add("counter", -50) == -8
    assert store.add("counter", 0) == -8
    assert store.get("counter") == b"-8"
    store.set("counter", "1000000000000")
    assert store.add("counter", 1) == 1000000000001


@operations("compare_set")
def comparing(store):
    assert store.compare_set("compared", "unknown", "first") == b"unknown"
    assert missing(store, "compared")
    assert store.compare_set("compared", "", "first") == b"first"
    assert store.compare_set("compared", "other", "second") == b"first"
    assert store.compare_set("compared", "first", "second") == b"second"
    assert store.get("compared") == b"second"


@operations("delete_key")
def deleting(store):
    store.set("deleted", "x")
    assert store.delete_key("deleted")
    assert not store.delete_key("deleted")
    assert missing(store, "deleted")


@operations("wait")
def waiting(store):
    store.set("here", "x")
    store.wait(["here"])
    store.wait(["here", "key"], LONG)
    errors = (RuntimeError,)
    assert fails(errors, store.wait, ["never"], SHORT)
    # The connection is as good as before: the next answers belong to the next questions.
    assert store.get("here") == b"x"
    assert store.add("after", 5) == 5
    store.set_timeout(SHORT)
    assert fails(errors, store.get, "never")
    store.set_timeout(LONG)
    assert store.get("here") == b"x"

    # Somebody else's set ends a wait, for all of several keys.
    def set_both():
        other = connect()
        mine = dist.PrefixStore("rank%d" % RANK, other)
        mine.set("late/1", "x")
        mine.add("late/2", 1)

    setter = threading.Thread(target=set_both)
    setter.start()
    store.wait(["late/1", "late/2"], LONG)
    setter.join()
    # What nobody waits for any more comes without harm.
    store.set("never", "now")
    assert store.get("never") == b"now"


@operations("check")
def checking(store):
    store.set("checked", "x")
    assert store.check(["checked"])
    assert store.check(["checked", "key"])
    assert not store.check(["checked", "unchecked"])
    assert store.check([])


@operations("append")
def appending(store):
    store.append("appended", "ab")
    store.append("appended", "cd")
    assert store.get("appended") == b"abcd"


@operations("multi_set", "multi_get", "has_extended_api")
def several(store):
    assert store.has_extended_api()
    keys = ["several/%d" % number for number in range(300)]
    store.multi_set(keys, [key.upper() for key in keys])
    assert store.multi_get(keys) == [key.upper().encode() for key in keys]
    assert store.multi_get([]) == []


@operations("queue_push", "queue_pop", "queue_len")
def queues(store):
    assert store.queue_len("queue") == 0
    store.queue_push("queue", "one")
    store.queue_push("queue", "two")
    assert store.queue_len("queue") == 2
    assert store.check(["queue"])
    assert store.queue_pop("queue") == b"one"
    assert store.queue_pop("queue", False) == b"two"
    assert fails((RuntimeError,), store.queue_pop, "queue", False)
    assert not store.check(["queue"])


@operations("clone")
def cloning(store):
    clone = store.clone()
    store.set("cloned", "x")
    assert clone.get("cloned") == b"x"


@operations("num_keys", "delete_key")
def counting(store):
    """Ranks take turns, so that the numbers are known; list_keys where there is one."""
    for rank in range(WORLD):
        meet(store, "turn%d" % rank)
        if rank == RANK:
            before = store.num_keys()
            store.set("counted", "x")
            assert store.num_keys() == before + 1
            if "list_keys" in OFFERED:
                listed = store.list_keys()
                assert len(listed) == before + 1 and "counted" in listed, listed
                assert all(key.startswith(("rank", "meet/", "counted", "init/")) for key in listed)
                exercised.add("list_keys")
            assert store.delete_key("counted")
            assert store.num_keys() == before
            store.set("meet/turned%d" % rank, "yes")
        store.wait(["meet/turned%d" % rank])  # The others create nothing meanwhile.


@operations("wait", "add")
def together(store):
    """A wait in one process, the set in another."""
    for turn in range(20):
        if turn % WORLD == RANK:
            store.set("together/%d" % turn, str(RANK))
        assert store.get("together/%d" % turn) == str(turn % WORLD).encode()
    total = store.add("together/sum", RANK)
    assert 0 <= total <= WORLD * (WORLD - 1) // 2
    meet(store, "summed")
    assert store.add("together/sum", 0) == WORLD * (WORLD - 1) // 2


@operations("barrier")
def barriers(store):
    for turn in range(20):
        store.add("barrier/arrived/%d" % turn, 1)
        store.barrier("barrier/%d" % turn, WORLD)
        assert store.add("barrier/arrived/%d" % turn, 0) == WORLD
    assert fails((RuntimeError,), store.barrier, "barrier/alone%d" % RANK, 2, SHORT)
    assert store.add("barrier/after%d" % RANK, 1) == 1


def take_work(store):
    """PyTorch's client waits until something is there, and asks for it then: another rank may be faster."""
    while True:
        try:
            return int(store.queue_pop("work"))
        except dist.QueueEmptyError:
            continue


@operations("queue_push", "queue_pop")
def work_queue(store):
    """Rank 0 hands out work, the others take it."""
    if RANK == 0:
        for item in range(10 * (WORLD - 1)):
            store.queue_push("work", str(item))
    else:
        taken = [take_work(store) for _ in range(10)]
        assert taken == sorted(taken)
    meet(store, "worked")
    assert store.queue_len("work") == 0


def non_numbers():
    """Adding to text has no answer but the end of the connection, and of no other."""
    victim, witness = connect(), connect()
    key = "rank%d/text" % RANK
    victim.set(key, "text")
    assert fails((RuntimeError,), victim.add, key, 1)
    assert witness.get(key) == b"text"


def main():
    store = connect()
    mine = dist.PrefixStore("rank%d" % RANK, store)
    run(properties, store)
    for check in (values, counters, comparing, deleting, waiting):
        run(check, mine)
    for check in (counting, together):
        run(check, store)
    for place, later in ((mine, (checking, appending, several, queues, cloning)),
                         (store, (barriers, work_queue))):
        for check in later:
            if OFFERED.issuperset(check.operations):
                run(check, place)
    non_numbers()

    # Which server is used inside of torch is no operation.
    left_out = OFFERED - exercised - {"libuvBackend"}
    assert not left_out, "not exercised: %s" % sorted(left_out)
    meet(store, "end")
    print("rank %d of %d: %d operations of torch %s are right"
          % (RANK, WORLD, len(OFFERED), torch.__version__), flush=True)


main()
