"""Leases: their limit, and that they come back from wherever the last reference goes."""

import gc
import random
import threading
import weakref

import pytest

import cuframes_nb as cf
from tests.helpers.frames import check, publish, publisher, until, wrong


@pytest.mark.parametrize("ring_size", [2, 3, 4, 8, 64])
def test_one_subscriber_may_hold_two_slots_fewer_than_there_are(ring_size):
    limit = max(1, ring_size - 2)
    with publisher(ring_size=ring_size) as pub, cf.subscribe("cam") as sub:
        held = []
        for _ in range(limit):
            publish(pub)
            held.append(sub.next(timeout=10))
        assert pub.stats.slots_leased == sub.stats.leases == sub.stats.lease_limit == limit
        publish(pub)
        for take in (sub.latest, lambda: sub.next(timeout=10)):
            with pytest.raises(cf.LeaseLimitError, match=f"holds {limit} frames") as caught:
                take()
        assert caught.value.code == "lease-limit"
        assert "frame.copy()" in str(caught.value)
        if ring_size > 2:
            publish(pub)  # the publisher goes on
        held.pop().release()
        check(sub.next(timeout=10))
        for frame in held:
            check(frame)


def test_the_newest_frame_may_be_taken_again_at_the_limit():
    with publisher(ring_size=3) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        frames = [sub.latest() for _ in range(10)]
        assert sub.stats.leases == 1
        frames.clear()
        assert pub.stats.slots_leased == 0


def test_the_limit_is_each_subscriber_s_own():
    # lifetime.md, 2
    with publisher(ring_size=4) as pub, cf.subscribe("cam") as a, cf.subscribe("cam") as b:
        publish(pub)
        first = a.next(timeout=10), b.next(timeout=10)
        assert pub.stats.slots_leased == 1
        assert [s.holds for s in pub.info.subscribers] == [1, 1]
        publish(pub)
        second = a.next(timeout=10), b.next(timeout=10)
        assert pub.stats.slots_leased == 2
        for frame in (*first, *second):
            check(frame)


def test_frames_are_dropped_on_many_threads_while_one_takes():
    # lifetime.md, 1 and 6
    with publisher(ring_size=16) as pub, cf.subscribe("cam") as sub:
        handed, bad = [], []
        more, done = threading.Condition(), threading.Event()

        def drop():
            while True:
                with more:
                    while not handed and not done.is_set():
                        more.wait()
                    if not handed:
                        return
                    seq, planes = handed.pop(random.randrange(len(handed)))
                if text := wrong(planes, seq):
                    bad.append(text)
                del planes

        threads = [threading.Thread(target=drop) for _ in range(6)]
        for thread in threads:
            thread.start()
        taken = 0
        for _ in range(2000):
            try:
                publish(pub)
                frame = sub.next(timeout=10)
            except (cf.RingFullError, cf.LeaseLimitError):
                continue
            taken += 1
            with more:
                handed.append((frame.seq, frame.planes))
                del frame
                more.notify()
        with more:
            done.set()
            more.notify_all()
        for thread in threads:
            thread.join()
        assert bad == []
        assert taken > 100
        assert pub.stats.slots_leased == 0


def test_frames_in_garbage_cycles_come_back():
    # lifetime.md, 6
    with publisher(ring_size=4) as pub, cf.subscribe("cam") as sub:
        for _ in range(50):
            publish(pub)
            frame = sub.next(timeout=10)
            cycle = {"frame": frame, "y": frame.y}
            cycle["self"] = cycle
            del frame, cycle
            gc.collect()
            assert pub.stats.slots_leased == 0


@pytest.mark.parametrize("first", ["cycle", "close"])
def test_a_cycle_with_everything_in_it_ends_quietly(first):
    # lifetime.md, 10
    with publisher() as pub:
        publish(pub)
        sub = cf.subscribe("cam")
        frame = sub.next(timeout=10)
        cycle = [sub, frame, frame.y, iter(sub)]
        cycle.append(cycle)
        if first == "close":
            sub.close()
        del sub, frame, cycle
        gc.collect()
        assert pub.stats.slots_leased == 0
        until(lambda: pub.stats.subscribers == 0)


def test_a_finalizer_may_take_and_give_back():
    # lifetime.md, 6
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        other = [sub.latest()]

        class Node:
            pass

        node = Node()
        node.frame = sub.latest()
        weakref.finalize(node, other.clear)
        del node
        assert other == []
        assert pub.stats.slots_leased == 0


def test_collecting_inside_a_take_gives_back():
    # lifetime.md, 6
    with publisher(ring_size=4) as pub, cf.subscribe("cam") as sub:
        before = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for _ in range(300):
                publish(pub)
                frame = sub.next(timeout=10)
                cycle = [frame]
                cycle.append(cycle)
                del frame, cycle
        except cf.LeaseLimitError:
            pytest.fail("a lease was left behind")
        finally:
            gc.set_threshold(*before)
        gc.collect()
        assert pub.stats.slots_leased == 0


def test_an_error_that_is_kept_keeps_no_frame_of_ours():
    # lifetime.md, 6
    with publisher() as pub, cf.subscribe("cam", reconnect=False) as sub:
        publish(pub)
        gc.disable()
        try:
            frame = sub.next(timeout=10)
            with pytest.raises(cf.FrameTimeout):
                sub.next(timeout=0)
            held = weakref.ref(frame)
            del frame
            assert held() is None
            assert pub.stats.slots_leased == 0
        finally:
            gc.enable()
