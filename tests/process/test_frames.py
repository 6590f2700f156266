"""Frames among processes that are fast, slow, stopped or killed: none is torn, no slot is lost."""

import contextlib
import os
import random
import signal
import threading

import pytest

import cuframes_nb as cf
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import check, fill, publish, publisher, until
from tests.helpers.leaks import open_fds

pytestmark = pytest.mark.process


def publish_until(pub, done):
    """Publish as fast as it goes; return how many frames found no slot."""
    dropped = 0
    while not done.is_set():
        try:
            publish(pub)
        except cf.RingFullError:
            dropped += 1
    return dropped


@contextlib.contextmanager
def awaiting(process, kind, seconds=100):
    """Wait for a child's message on a thread; give an event and a dictionary of its fields."""
    done, fields = threading.Event(), {}

    def wait():
        try:
            fields.update(process.expect(kind, seconds=seconds))
        except (AssertionError, TimeoutError) as error:
            fields["error"] = str(error)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    yield done, fields
    thread.join()


def all_slots_come_back(pub):
    """Assert that no reader is left, and that every slot but the newest can be written."""
    until(lambda: pub.stats.subscribers == 0)
    assert pub.stats.slots_leased == 0
    slots = [pub.acquire() for _ in range(pub.stats.slots - 1)]
    for slot in slots:
        pub.discard(slot)


def storm(kills, seed, ring_size=8):
    with publisher(ring_size=ring_size, width=256, height=128) as pub:
        publish(pub)
        before = len(open_fds())
        with (
            child(programs.read, "cam", seconds=60) as fast,
            child(programs.read, "cam", hold=0.01, seconds=60) as slow,
            child(programs.hold, "cam", seconds=60) as stopped,
            child(programs.kill_subscribers, "cam", kills=kills, seed=seed, seconds=60) as deaths,
        ):
            fast.expect("ready")
            slow.expect("ready")
            held = stopped.expect("holds")["seq"]
            stopped.signal(signal.SIGSTOP)
            with awaiting(deaths, "done", seconds=110) as (done, result):
                publish_until(pub, done)
            assert "error" not in result, result["error"]
            stopped.signal(signal.SIGCONT)
            stopped.send("look")
            assert stopped.expect("sees")["wrong"] == ""
            counts = {}
            for name, process in (("fast", fast), ("slow", slow)):
                process.send("stop")
                with awaiting(process, "done") as (done, counts[name]):
                    publish_until(pub, done)
                assert counts[name]["torn"] == []
                assert counts[name]["count"] > 0
        assert (result["torn"], result["failed"]) == (0, 0)
        assert result["seen"] > 0
        assert held < pub.stats.published
        all_slots_come_back(pub)
        until(lambda: len(open_fds()) <= before)


def test_nothing_is_torn_and_nothing_is_lost_among_a_hundred_deaths():
    # lifetime.md, 1, 2 and 3
    storm(kills=120, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ring_size", [3, 8, 64])
def test_nothing_is_torn_and_nothing_is_lost_among_thousands(ring_size):
    # lifetime.md, 1, 2 and 3
    for round_ in range(8):
        storm(kills=300, seed=random.randrange(10**6) + round_, ring_size=ring_size)


def test_a_stopped_reader_delays_nobody():
    # lifetime.md, 2
    with publisher(ring_size=4) as pub, cf.subscribe("cam") as other:
        publish(pub)
        with child(programs.hold, "cam") as stopped:
            assert stopped.expect("holds")["seq"] == 1
            stopped.signal(signal.SIGSTOP)
            for expected in range(2, 5002):
                assert publish(pub) == expected
                if expected % 100 == 0:
                    check(other.next(timeout=30))
            assert pub.stats.dropped == 0
            assert pub.stats.slots_leased == 1
            stopped.signal(signal.SIGCONT)
            stopped.send("look")
            assert stopped.expect("sees")["wrong"] == ""
        all_slots_come_back(pub)


def test_stopped_readers_that_hold_all_slots_cost_frames_and_no_time():
    # lifetime.md, 2
    with publisher(ring_size=3) as pub, contextlib.ExitStack() as stack:
        stopped = []
        for _ in range(3):
            publish(pub)
            process = stack.enter_context(child(programs.hold, "cam"))
            process.expect("holds")
            process.signal(signal.SIGSTOP)
            stopped.append(process)
        for _ in range(1000):
            with pytest.raises(cf.RingFullError):
                pub.acquire()
        assert pub.stats.dropped == 1000
        for process in stopped:
            process.kill()
        until(lambda: pub.stats.subscribers == 0)
        assert publish(pub, 10) == 13


def test_a_killed_reader_s_slot_is_free_at_once():
    # lifetime.md, 3
    with publisher() as pub:
        publish(pub)
        with child(programs.hold, "cam") as reader:
            reader.expect("holds")
            assert pub.stats.slots_leased == 1
            reader.kill()
            assert pub.stats.slots_leased == 0
            until(lambda: pub.stats.subscribers == 0)


@pytest.mark.parametrize("reader_mode", ["newest", "strict"])
def test_a_stopped_publisher_is_waited_for(reader_mode):
    with child(programs.publish_until_told, "cam") as pub:
        pub.expect("ready")
        with cf.subscribe("cam", reader_mode) as sub:
            check(sub.next(timeout=30))
            pub.signal(signal.SIGSTOP)
            with pytest.raises(cf.FrameTimeout):
                while True:
                    check(sub.next(timeout=0.1))
            pub.signal(signal.SIGCONT)
            check(sub.next(timeout=30))
        pub.send("stop")
        assert pub.expect("done")["slots_leased"] == 0


@pytest.mark.parametrize("step", ["acquired", "locked", "written", "unlocked"])
def test_a_publisher_killed_at_any_step_shows_no_half_frame(step):
    # lifetime.md, 1 and 3
    with child(die_in_publish, "cam", step) as pub:
        pub.expect("ready")
        with cf.subscribe("cam") as sub:
            with sub.next(timeout=30) as frame:
                assert frame.seq == 3
                check(frame)
            pub.send("die")
            with pytest.raises(cf.FrameTimeout, match="away"):
                while True:
                    check(sub.next(timeout=0.3))
            pub.kill()
            with publisher() as new:
                publish(new)
                with sub.next(timeout=30) as frame:
                    assert frame.seq == 1
                    check(frame)


def die_in_publish(link, key, step):
    pub = publisher(key)
    publish(pub, 3)
    link.say("ready")
    link.hear("die")

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    control = pub._ring.control
    if step == "acquired":
        pub._ring.control = Dying(control, "withdraw", die)
        pub.acquire()
    slot = pub.acquire()
    fill(slot, 77)  # not the number that it will have
    if step == "locked":
        pub._ring.control = Dying(control, "write_record", die)
    if step == "written":
        pub._ring._locks[slot._index] = Dying(None, "release", die)
    if step == "unlocked":
        fill(slot)
        pub._ring.control = Dying(control, "announce", die)
    pub.publish(slot)


class Dying:
    """An object that ends the process when one of its methods is called."""

    def __init__(self, real, name, die):
        self._real, self._name, self._die = real, name, die

    def __getattr__(self, name):
        return self._die if name == self._name else getattr(self._real, name)
