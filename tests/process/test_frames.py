"""Frames among processes that are fast, slow, stopped or killed: none is torn, no slot is lost."""

import contextlib
import random
import signal
import threading
import time

import pytest

import cuframes_nb as cf
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import check, fill, publish, publisher, until
from tests.helpers.leaks import open_fds

pytestmark = [pytest.mark.process, pytest.mark.alone]


def publish_until(pub, done):
    """Publish as fast as it goes; return how many frames found no slot."""
    dropped = 0
    while not done.is_set():
        try:
            publish(pub)
        except cf.RingFullError:
            dropped += 1
        time.sleep(0.0002)  # so that the publisher's own thread can take readers in
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


def storm(kills, seed, ring_size=16):
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
        assert result["seen"] > kills, result
        assert pub.stats.published > held
        all_slots_come_back(pub)
        until(lambda: len(open_fds()) <= before)


def test_nothing_is_torn_and_nothing_is_lost_among_a_hundred_deaths():
    # lifetime.md, 1, 2 and 3
    storm(kills=120, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ring_size", [4, 8, 64])
def test_nothing_is_torn_and_nothing_is_lost_among_thousands(ring_size):
    # lifetime.md, 1, 2 and 3
    for _ in range(8):
        storm(kills=300, seed=random.randrange(10**6), ring_size=ring_size)


def test_a_stopped_reader_delays_nobody():
    # lifetime.md, 2
    with publisher(ring_size=4) as pub:
        publish(pub)
        with cf.subscribe("cam") as other, child(programs.hold, "cam") as stopped:
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


@pytest.mark.parametrize("step", ["acquire", "record", "unlock", "announce"])
def test_a_publisher_killed_at_any_step_shows_no_half_frame(step):
    # lifetime.md, 1 and 3
    with child(stop_in_publish, "cam", step) as pub:
        pub.expect("ready")
        with cf.subscribe("cam") as sub:
            with sub.next(timeout=30) as frame:
                assert frame.seq == 3
                check(frame)
            pub.send("go")
            pub.expect(step)
            pub.kill()
            with pytest.raises(cf.FrameTimeout, match="ended without a word"):
                while True:
                    check(sub.next(timeout=0.1))
            with publisher() as new:
                publish(new)
                with sub.next(timeout=30) as frame:
                    assert frame.seq == 1
                    check(frame)


def stop_in_publish(link, key, step):
    """Publish three frames, and stay for ever at one step of the fourth."""
    pub = publisher(key)
    publish(pub, 3)
    link.say("ready")
    link.hear("go")

    def stay(*_):
        link.say(step)
        signal.pause()

    ring = pub._ring
    if step == "acquire":
        ring.control = Staying(ring.control, "withdraw", stay)
    slot = pub.acquire()
    fill(slot, 77)  # not the number that it would have
    if step == "record":
        ring.control = Staying(ring.control, "write_record", stay)
    elif step == "unlock":
        ring._locks[slot._index] = Staying(None, "release", stay)
    else:
        ring.control = Staying(ring.control, "announce", stay)
    pub.publish(slot)


class Staying:
    """An object of which one method never returns."""

    def __init__(self, real, name, stay):
        self._real, self._name, self._stay = real, name, stay

    def __getattr__(self, name):
        return self._stay if name == self._name else getattr(self._real, name)
