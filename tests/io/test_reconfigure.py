"""New epochs: subscribers follow, old frames stay, numbers and counts go on."""

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._runtime import ring as ring_module
from tests.helpers.frames import check, publish, publisher, until


@pytest.mark.parametrize("mode", ["newest", "strict"])
def test_subscribers_follow(mode):
    with publisher() as pub, cf.subscribe("cam", mode) as sub:
        publish(pub)
        check(sub.next(timeout=10))
        for epoch, change in enumerate(
            [
                {"width": 33, "height": 17},
                {"format": "p010"},
                {"format": "rgb24", "color": cf.ColorSpec("rgb", "full")},
                {"ring_size": 9, "fps": 5.0},
            ],
            start=2,
        ):
            pub.reconfigure(**change)
            publish(pub)
            with sub.next(timeout=10) as frame:
                check(frame)
                assert frame.seq == epoch
                assert (frame.width, frame.height) == (pub.layout.width, pub.layout.height)
                assert frame.format == pub.layout.format
            assert sub.stats.epoch == pub.stats.epoch == epoch
        assert (sub.info.slots, sub.info.fps, sub.stats.connects) == (9, 5.0, 1)
        assert pub.stats.published == sub.stats.received == 5


def test_what_is_not_given_stays_except_the_pitch():
    with publisher(pitch=100, fps=3.0, ring_size=5) as pub:
        pub.reconfigure(height=20)
        assert (pub.layout.width, pub.layout.height, pub.info.fps) == (64, 20, 3.0)
        assert pub.info.pitches == (256, 256)
        pub.reconfigure(pitch=(70, 80))
        assert pub.info.pitches == (70, 80)
        assert pub.info.slots == 5


@pytest.mark.parametrize("change", [{"width": 0}, {"format": "x"}, {"ring_size": 1}, {"pitch": 3}])
def test_a_wrong_value_changes_nothing(change):
    with publisher() as pub, cf.subscribe("cam") as sub:
        with pytest.raises(cf.InvalidArgumentError):
            pub.reconfigure(**change)
        publish(pub)
        check(sub.next(timeout=10))
        assert pub.stats.epoch == 1
        pub.reconfigure(width=32)
        assert (pub.layout.width, pub.layout.height) == (32, 48)


def test_no_memory_changes_nothing(monkeypatch):
    def no_memory(*_):
        raise OSError(12, "no memory")

    with publisher() as pub, cf.subscribe("cam") as sub:
        with monkeypatch.context() as patch:
            patch.setattr(ring_module, "create_sealed", no_memory)
            with pytest.raises(OSError, match="no memory"):
                pub.reconfigure(width=32)
        publish(pub)
        check(sub.next(timeout=10))
        assert pub.layout.width == 64


def test_frames_of_every_epoch_stay_valid():
    # lifetime.md, 1 and 6
    with publisher(ring_size=2) as pub, cf.subscribe("cam") as sub:
        kept = []
        for width in range(2, 42, 2):
            pub.reconfigure(width=width)
            publish(pub)
            kept.append(sub.next(timeout=10))  # the limit is one of each epoch
        publish(pub, 1)
        for number, frame in enumerate(kept, start=1):
            assert frame.y.shape == (48, 2 * number)
            check(frame, number)


def test_a_newest_reader_skips_epochs_and_a_strict_one_does_not():
    with publisher() as pub, cf.subscribe("cam") as newest, cf.subscribe("cam", "strict") as strict:
        publish(pub, 2)
        for width in (32, 16, 8):
            pub.reconfigure(width=width)
            publish(pub, 2)
        seen = [(f.seq, f.width) for f in (strict.next(timeout=10) for _ in range(8))]
        assert seen == [(1, 64), (2, 64), (3, 32), (4, 32), (5, 16), (6, 16), (7, 8), (8, 8)]
        assert strict.stats.skipped == 0
        frame = newest.next(timeout=10)
        assert (frame.seq, frame.width) == (8, 8)
        check(frame)


def test_a_strict_reader_gets_the_last_frames_of_an_epoch_that_ends_meanwhile(monkeypatch):
    with publisher(policy="strict-wait") as pub, cf.subscribe("cam", "strict") as sub:
        session = sub._connection.session
        follow = session.follow

        def publisher_is_faster():
            monkeypatch.setattr(session, "follow", follow)
            publish(pub, 2)
            pub.reconfigure(width=32)
            publish(pub)
            follow()

        monkeypatch.setattr(session, "follow", publisher_is_faster)
        assert [sub.next(timeout=10).seq for _ in range(3)] == [1, 2, 3]


def test_latest_waits_for_the_new_epoch_s_first_frame():
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        pub.reconfigure(width=32)
        assert sub.latest() is None
        publish(pub)
        assert sub.latest().width == 32


def test_a_subscriber_that_never_reads_is_left_behind_and_comes_back():
    # lifetime.md, 2
    with publisher() as pub, cf.subscribe("cam") as idle, cf.subscribe("cam") as other:
        for width in range(1, 601):
            pub.reconfigure(width=width)
            publish(pub)
            assert other.next(timeout=10).width == width
        until(lambda: pub.stats.subscribers == 1)  # its socket was full
        widths = []
        while widths[-1:] != [600]:
            widths.append(idle.next(timeout=10).width)  # first the newest that it was told of
        assert len(widths) <= 2
        assert idle.stats.connects == 2


def test_a_slot_s_old_pixels_are_there_when_it_is_acquired_again():
    with publisher(ring_size=2) as pub:
        publish(pub, 3)
        slot = pub.acquire()
        assert np.unique(slot.y) == [2]
