"""Each frame in order."""

import threading
import time

import pytest

import cuframes_nb as cf
from tests.helpers.frames import check, fill, publish, publisher, until


def test_every_frame_comes_in_order():
    with publisher(policy="strict-wait") as pub, cf.subscribe("cam", "strict") as sub:

        def work():
            for _ in range(500):
                slot = pub.acquire(timeout=60)
                fill(slot)
                pub.publish(slot)

        thread = threading.Thread(target=work)
        thread.start()
        for expected in range(1, 501):
            with sub.next(timeout=60) as frame:
                assert frame.seq == expected
                check(frame)
        thread.join()
        assert sub.stats.skipped == pub.stats.dropped == 0


def test_every_strict_reader_gets_every_frame_and_epochs_lose_none():
    with (
        publisher(policy="strict-wait") as pub,
        cf.subscribe("cam", "strict") as a,
        cf.subscribe("cam", "strict") as b,
        cf.subscribe("cam") as newest,
    ):
        seen = {"a": [], "b": []}

        def read(name, sub, pause):
            for _ in range(200):
                with sub.next(timeout=60) as frame:
                    check(frame)
                    seen[name].append(frame.seq)
                time.sleep(pause)

        threads = [
            threading.Thread(target=read, args=("a", a, 0)),
            threading.Thread(target=read, args=("b", b, 0.0005)),
        ]
        for thread in threads:
            thread.start()
        for number in range(200):
            if number % 20 == 19:
                pub.reconfigure(width=16 + number)
            slot = pub.acquire(timeout=60)
            fill(slot)
            pub.publish(slot)
        for thread in threads:
            thread.join()
        assert seen == {"a": list(range(1, 201)), "b": list(range(1, 201))}
        # It was dropped for not reading its epochs; it connects again, and has the newest frame.
        while newest.next(timeout=10).seq < 200:
            pass


def test_a_strict_reader_that_stops_makes_acquire_time_out():
    with publisher(policy="strict-wait", ring_size=3) as pub:
        sub = cf.subscribe("cam", "strict", name="slow")
        for _ in range(3):
            pub.publish(pub.acquire(timeout=10))
        with pytest.raises(cf.FrameTimeout, match="a subscriber with mode='strict' is too slow"):
            pub.acquire(timeout=0.02)
        with pytest.raises(cf.FrameTimeout):
            pub.acquire(timeout=0)
        assert pub.stats.dropped == 0
        with sub.next(timeout=10) as frame:
            assert frame.seq == 1
            with pytest.raises(cf.FrameTimeout):  # passed, but still being read
                pub.acquire(timeout=0.02)
        pub.publish(pub.acquire(timeout=10))
        timer = threading.Timer(0.02, sub.close)
        timer.start()
        for _ in range(10):  # nobody is waited for any more
            pub.publish(pub.acquire(timeout=60))
        timer.join()


def test_newest_readers_are_not_waited_for_unless_they_read():
    with publisher(policy="strict-wait", ring_size=3) as pub, cf.subscribe("cam") as sub:
        for _ in range(10):
            pub.publish(pub.acquire(timeout=10))
        with sub.next(timeout=10):
            for _ in range(10):
                pub.publish(pub.acquire(timeout=10))


def test_acquire_may_wait_for_ever_and_close_ends_that():
    pub = publisher(policy="strict-wait", ring_size=2)
    with pub, cf.subscribe("cam", "strict"):
        publish(pub, 2)
        caught = []

        def wait():
            try:
                pub.acquire()
            except cf.ClosedError as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.02)
        pub.close()
        thread.join()
        assert caught


def test_with_drop_oldest_what_is_missed_is_counted():
    with publisher(ring_size=4) as pub, cf.subscribe("cam", "strict") as sub:
        publish(pub)
        assert sub.next(timeout=10).seq == 1
        publish(pub, 10)
        seqs = [sub.next(timeout=10).seq for _ in range(3)]
        assert seqs[0] >= 8
        assert seqs == list(range(seqs[0], seqs[0] + 3))
        assert sub.stats.skipped == seqs[0] - 2


def test_a_frame_is_not_overlooked_while_the_numbers_are_read():
    with publisher(policy="strict-wait") as pub, cf.subscribe("cam", "strict") as sub:
        publish(pub)
        sub.next(timeout=10).release()
        real = sub._connection.session.epoch.control

        class Slow:
            """Reads some of the numbers, is stopped for a while, and reads the rest; once."""

            slow = True

            def __getattr__(self, name):
                return getattr(real, name)

            def seqs(self):
                before = real.seqs()
                if not self.slow:
                    return before
                self.slow = False
                publish(pub, 3)
                after = real.seqs()
                return [b if a == 2 else a for a, b in zip(after, before, strict=True)]

        sub._connection.session.epoch.control = Slow()
        assert [sub.next(timeout=10).seq for _ in range(3)] == [2, 3, 4]


def test_a_reader_that_comes_late_starts_at_the_newest():
    with publisher(policy="strict-wait") as pub:
        publish(pub, 9)
        with cf.subscribe("cam", "strict") as sub:
            publish(pub, 2)
            assert [sub.next(timeout=10).seq for _ in range(3)] == [9, 10, 11]
            assert sub.stats.skipped == 0


@pytest.mark.parametrize("policy", ["drop-oldest", "strict-wait"])
def test_what_is_passed_is_reported_only_to_a_publisher_that_waits(policy, monkeypatch):
    with publisher(policy=policy) as pub, cf.subscribe("cam", "strict") as sub:
        reported = []
        monkeypatch.setattr(sub._connection.session, "report_passed", reported.append)
        publish(pub, 3)
        assert [sub.next(timeout=10).seq for _ in range(2)] == [1, 2]
        assert reported == ([1, 2] if policy == "strict-wait" else [])


def test_the_publisher_learns_what_is_passed():
    with publisher(policy="strict-wait", ring_size=2) as pub, cf.subscribe("cam", "strict") as sub:
        assert pub._hub.passed() == 0
        publish(pub)
        sub.next(timeout=10).release()
        until(lambda: pub._hub.passed() == 1)
    assert pub._hub.passed() is None


def test_a_publisher_that_closes_right_away_is_read_to_its_end():
    # It closes with reports unread, so the kernel tells of a reset before the goodbye.
    for _ in range(50):
        with publisher(ring_size=8) as pub:
            sub = cf.subscribe("cam", "strict", reconnect=False)
            seen = []
            thread = threading.Thread(
                target=lambda sub=sub, seen=seen: seen.extend(frame.seq for frame in sub)
            )
            thread.start()
            publish(pub, 6)
        thread.join()
        sub.close()
        assert seen == [1, 2, 3, 4, 5, 6]


def test_a_goodbye_behind_unread_reports_is_a_goodbye():
    with publisher() as pub, cf.subscribe("cam", "strict", reconnect=False) as sub:
        pub._hub._read = lambda _: None  # its thread reads nothing any more
        publish(pub, 2)
        for _ in range(2):
            sub.next(timeout=10).release()
        pub.reconfigure(width=32)
        publish(pub)
        pub.close()
        assert [(frame.seq, frame.width) for frame in sub] == [(3, 32)]
