"""The stop button: an interrupt between any two steps leaves nothing taken."""

import random
import signal
import time

import pytest

import cuframes_nb as cf
from tests.helpers.children import child

pytestmark = [pytest.mark.process, pytest.mark.alone]


def go_on(pub, sub):
    try:
        with pub.acquire() as slot:
            slot.y[:] = slot.seq & 0xFF
    except cf.RingFullError:
        pass  # what an interrupted reader left is put right when it reads on
    frame = sub.latest()
    if frame is not None:
        assert (frame.y == frame.seq & 0xFF).all()
        frame.release()


def interrupted_at_random(link, seconds):
    """Publish and read in one thread, with an interrupt every millisecond or so."""

    def interrupt(number, frame):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.002))
        while frame is not None:
            if frame.f_code is go_on.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    pub = cf.Publisher("cam1", width=64, height=48, memory="host")
    sub = cf.subscribe("cam1")
    end = time.monotonic() + seconds
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    came = 0
    going = True
    while going:
        try:
            while time.monotonic() < end:
                go_on(pub, sub)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            going = False
        except KeyboardInterrupt:
            came += 1
    for _ in range(20):  # all goes on as if nothing had happened
        with pub.acquire() as slot:
            slot.y[:] = slot.seq & 0xFF
        sub.next(timeout=5).release()
    slots = [pub.acquire() for _ in range(pub.stats.slots - 1)]
    link.say("ended", came=came, leased=pub.stats.slots_leased, held=sub.stats.leases)
    del slots
    sub.close()
    pub.close()


def test_interrupts_at_random_moments_leave_no_slot_taken():
    # lifetime.md, 6
    with child(interrupted_at_random, 5.0, seconds=60) as c:
        ended = c.expect("ended", seconds=60)
    assert ended["came"] > 100
    assert (ended["leased"], ended["held"]) == (0, 0)


def interrupted_while_it_waits(link, times):
    """Wait for a slot again and again, each time until an interrupt."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    with (
        cf.Publisher("cam1", width=64, height=48, memory="host", policy="strict-wait") as pub,
        cf.subscribe("cam1", "strict") as sub,
    ):
        for _ in range(pub.stats.slots):
            with pub.acquire():
                pass
        signal.signal(signal.SIGALRM, interrupt)
        came = 0
        for _ in range(times):
            # About when it wakes to look again.
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0008, 0.0013))
            try:
                pub.acquire(timeout=30)
            except KeyboardInterrupt:
                came += 1
        sub.next(timeout=5).release()
        pub.discard(pub.acquire(timeout=5))
        link.say("ended", came=came)


def test_a_publisher_that_waits_can_be_interrupted_at_any_moment():
    with child(interrupted_while_it_waits, 3000, seconds=60) as c:
        assert c.expect("ended", seconds=60)["came"] == 3000
