"""The user's buffers and readers in other processes: slow, stopped, killed."""

import contextlib
import itertools
import random
import signal
import threading
import time

import pytest

import cuframes_nb as cf
from tests.helpers import lent, programs
from tests.helpers.children import child
from tests.helpers.frames import until

pytestmark = pytest.mark.process


def lend_until_told(link, key):
    """Publish from buffers until told to stop."""
    stop = programs._told(link)
    pool = lent.pool(4)
    with lent.lend(pool.buffers, key) as pub:
        link.say("ready")
        for seq in itertools.count(1):
            if stop.wait(0.001):
                break
            with contextlib.suppress(cf.FrameTimeout):
                number = pub.wait_free(timeout=1)
                lent.fill(pool.buffers[number], seq)
                pub.publish_buffer(number)
        link.say("done", **pub.stats._asdict())


def test_a_reader_that_is_killed_frees_its_buffer():
    # lifetime.md, 3
    pool = lent.pool(4)
    with lent.lend(pool.buffers) as pub:
        lent.publish(pub, 2)
        with child(programs.hold, "cam") as reader:
            assert reader.expect("holds")["seq"] == 1
            lent.publish(pub, 0)
            for end in (signal.SIGSTOP, signal.SIGCONT):
                reader.signal(end)
                with pytest.raises(cf.FrameTimeout):
                    pub.wait_free(2, timeout=0.05)
                with pytest.raises(cf.InUseError):
                    pub.publish_buffer(2)
            freed = []
            waiter = threading.Thread(target=lambda: freed.append(pub.wait_free(2, timeout=30)))
            waiter.start()
            reader.kill()
            waiter.join(30)
            assert freed == [2]


def test_a_stopped_reader_delays_nobody_but_those_who_want_its_buffer():
    # lifetime.md, 2
    pool = lent.pool(4)
    with lent.lend(pool.buffers) as pub, child(programs.hold, "cam") as reader:
        lent.publish(pub, 2)
        reader.expect("holds")
        reader.signal(signal.SIGSTOP)
        seen = set()
        for _ in range(200):
            number = pub.wait_free(timeout=20)
            seen.add(number)
            lent.fill(pool.buffers[number], pub.stats.published + 1)
            pub.publish_buffer(number)
        assert seen == {0, 1, 3}
        reader.signal(signal.SIGCONT)
        reader.send("look")
        assert reader.expect("sees")["wrong"] == ""


def test_readers_of_other_processes_see_no_torn_frame():
    # lifetime.md, 1
    pool = lent.pool(5)
    with lent.lend(pool.buffers) as pub, contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(child(programs.read, "cam", mode=mode, hold=hold, least=50))
            for mode, hold in (("newest", 0.0), ("newest", 0.003), ("strict", 0.0))
        ]
        doomed = stack.enter_context(child(programs.read, "cam", hold=0.01))
        for reader in (*readers, doomed):
            reader.expect("ready")
        until(lambda: pub.stats.subscribers == 4)
        for seq in itertools.count(1):
            number = pub.wait_free(timeout=20)
            lent.fill(pool.buffers[number], seq)
            assert pub.publish_buffer(number) == seq
            if seq == 300:
                doomed.kill()
            if seq == 2000:
                break
        for reader in readers:
            reader.send("stop")
        stop = threading.Event()

        def go_on():
            while not stop.wait(0.002):
                lent.publish(pub)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for reader in readers:
                said = reader.expect("done")
                assert said["torn"] == []
                assert said["count"] >= 50
        finally:
            stop.set()
            thread.join(20)


def test_frames_outlive_a_publisher_that_is_killed():
    # lifetime.md, 3 and 6
    with child(lend_until_told, "cam") as publisher:
        publisher.expect("ready")
        with cf.subscribe("cam", reconnect=False) as sub:
            frame = sub.next(timeout=20)
            publisher.kill()
            assert programs.frames.wrong(frame.planes, frame.seq) == ""
            with pytest.raises(cf.PublisherGoneError):
                while True:
                    sub.next(timeout=20).release()
            assert programs.frames.wrong(frame.planes, frame.seq) == ""
            frame.release()
            del frame
    with lent.lend(lent.pool().buffers) as again:  # the name is free
        assert lent.publish(again) == 1


def test_a_process_that_ends_with_buffers_on_loan_ends():
    with child(leave_on_loan) as publisher:
        publisher.expect("ready")
        with cf.subscribe("cam", reconnect=False) as sub:
            frame = sub.next(timeout=20)
            publisher.send("go")
            publisher.stop()
            assert programs.frames.wrong(frame.planes, frame.seq) == ""
            frame.release()
            del frame


def go_on(pub, pool, sub):
    number = pub.wait_free(timeout=1)
    seq = pub._ring.next_seq
    lent.fill(pool.buffers[number], seq)
    assert pub.publish_buffer(number) == seq
    if seq % 7 == 0:
        assert set(pub.free_buffers()) <= set(range(4))
        with pub.acquire(), contextlib.suppress(cf.RingFullError):
            pass
    frame = sub.latest()
    if frame is not None:
        frame.release()


def interrupted_at_random(link, seconds):
    """Publish and read in one thread, with an interrupt every millisecond or so."""

    def interrupt(number, frame):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.002))
        while frame is not None:
            if frame.f_code is go_on.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    pool = lent.pool(4)
    pub = lent.lend(pool.buffers, "cam")
    sub = cf.subscribe("cam")
    end = time.monotonic() + seconds
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    came = 0
    while time.monotonic() < end:
        try:
            go_on(pub, pool, sub)
        except cf.RingFullError:
            pass  # what an interrupted reader left is put right when it reads on
        except KeyboardInterrupt:
            came += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in (*range(4), *[None] * 20):  # all goes on as if nothing had happened
        lent.publish(pub, number)
        with sub.next(timeout=5) as frame:
            programs.frames.check(frame)
    sub.close()
    link.say("ended", came=came, leased=pub.stats.slots_leased, free=pub.free_buffers())
    pub.close()


@pytest.mark.alone
def test_interrupts_at_random_moments_leave_no_buffer_taken():
    # lifetime.md, 6
    with child(interrupted_at_random, 4.0, seconds=60) as c:
        ended = c.expect("ended")
    assert ended["came"] > 50
    assert ended["leased"] == 0
    assert len(ended["free"]) == 3


def leave_on_loan(link):
    """End without closing anything, while a frame is read."""
    pool = lent.pool(3)
    pub = lent.lend(pool.buffers)
    lent.publish(pub)
    link.say("ready")
    link.hear("go")
    assert pub.stats.slots_leased == 1
