"""A thread uses what its world made while another one ends that world, again and again: each is told, and none crashes.

One rank.
"""
import sys
import threading

import numpy as np

import dlaunch


def polls(world, works):
    while not works[0].done:
        pass


def makes(world, works):
    while True:
        world.communicator("another")


def splits(world, works):
    while True:
        world.comm.duplicate()


sys.setswitchinterval(1e-6)
for uses in (polls, makes, splits) * 300:
    world = dlaunch.init()
    works = [world.comm.irecv(np.zeros(1), 0, 7)]
    begun, told = threading.Event(), []

    def use():
        begun.set()
        try:
            uses(world, works)
        except dlaunch.Error as error:
            told.append(error)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    assert begun.wait(30)
    world.finalize()
    thread.join(30)
    assert not thread.is_alive(), uses
    assert told or uses is polls
print("rank 0 is done", flush=True)
