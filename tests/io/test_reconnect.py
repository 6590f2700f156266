"""When the publisher goes: waiting for the next one, or saying so."""

import threading

import pytest

import cuframes_nb as cf
from cuframes_nb._api import connection as connection_module
from cuframes_nb._os.listener import Listener
from tests.helpers.frames import check, publish, publisher, until


@pytest.mark.parametrize("mode", ["newest", "strict"])
def test_a_subscriber_reconnects_by_itself(mode):
    # lifetime.md, 3
    with publisher() as pub:
        sub = cf.subscribe("cam", mode)
        publish(pub, 3)
        assert sub.latest().seq == 3
    with sub:
        for round_ in range(2, 12):
            with pytest.raises(
                cf.FrameTimeout, match=r"came within 0\.02 s: stream 'cam' was closed"
            ):
                sub.next(timeout=0.02)
            assert sub.latest() is None
            assert sub.info.state == "waiting"
            assert "waiting" in repr(sub)
            with publisher(width=2 * round_) as pub:
                publish(pub)
                with sub.next(timeout=10) as frame:
                    assert (frame.seq, frame.width) == (1, 2 * round_)
                    check(frame)
                assert sub.info.state == "live"
                assert sub.stats.connects == round_


def test_polling_reconnects_too():
    with publisher():
        sub = cf.subscribe("cam")
    with sub:
        with pytest.raises(cf.FrameTimeout):
            sub.next(timeout=0)
        with publisher() as pub:
            publish(pub)
            frames = []

            def look():
                try:
                    frames.append(sub.next(timeout=0))
                except cf.FrameTimeout:
                    return False
                return True

            until(look)
            check(frames.pop())
    with publisher():
        sub = cf.subscribe("cam")
    with sub, publisher() as pub:
        publish(pub)
        until(lambda: sub.latest() is not None)


def test_a_waiting_next_gets_the_next_publisher_s_frame():
    with publisher():
        sub = cf.subscribe("cam")
    got = []
    thread = threading.Thread(target=lambda: got.append(sub.next()))
    thread.start()
    until(lambda: sub._use() is not None)
    with sub, publisher() as pub:
        publish(pub)
        thread.join()
        check(got.pop())


def test_without_reconnect_the_end_is_told_and_stays():
    with publisher() as pub:
        sub = cf.subscribe("cam", reconnect=False)
    with sub, publisher():
        for take in (sub.next, sub.latest, sub.next):
            with pytest.raises(cf.PublisherGoneError, match="'cam' was closed") as caught:
                take()
        assert caught.value.code == "publisher-gone"
        assert isinstance(caught.value, ConnectionError)
        assert pub.closed


@pytest.mark.parametrize("mode", ["newest", "strict"])
@pytest.mark.parametrize("first", ["next", "latest", "nothing"])
def test_what_is_in_the_ring_is_read_before_the_end_is_told(mode, first):
    with publisher() as pub:
        sub = cf.subscribe("cam", mode, reconnect=False)
        publish(pub, 2)
    seen = []
    if first != "nothing":
        frame = sub.next() if first == "next" else sub.latest()
        check(frame)
        seen.append(frame.seq)
    for frame in sub:
        check(frame)
        seen.append(frame.seq)
    assert (
        seen
        == {
            ("newest", "next"): [2],
            ("newest", "latest"): [2],
            ("newest", "nothing"): [2],
            ("strict", "next"): [1, 2],
            ("strict", "latest"): [2],
            ("strict", "nothing"): [1, 2],
        }[mode, first]
    )
    with pytest.raises(cf.PublisherGoneError):
        sub.next()
    sub.close()


def test_iteration_goes_on_with_the_next_publisher():
    with publisher() as first:
        sub = cf.subscribe("cam")
        publish(first)
        frames = iter(sub)
        check(next(frames))
    with sub, publisher() as second:
        publish(second, 2)
        assert next(frames).seq == 2
        frames.close()


def test_frames_of_the_old_publisher_stay():
    # lifetime.md, 6
    with publisher() as pub:
        sub = cf.subscribe("cam")
        publish(pub, 5)
        old = sub.next(timeout=10)
    with sub, publisher() as pub:
        publish(pub, 6)
        new = sub.next(timeout=10)
        check(old)
        check(new)
        assert (old.seq, new.seq) == (5, 6)
        assert pub.stats.slots_leased == 1


def test_a_publisher_that_does_not_answer_is_away_only(monkeypatch):
    # The handshake's own patience is past this test's watchdog.
    with publisher():
        sub = cf.subscribe("cam")
    monkeypatch.setattr(connection_module, "_HANDSHAKE_SECONDS", 1000.0)
    with sub:
        silent = Listener("cam")
        try:
            for timeout in (0, 0.05, 0.3):
                with pytest.raises(cf.FrameTimeout, match="no new frame of stream 'cam' came"):
                    sub.next(timeout=timeout)
            assert sub.latest() is None
        finally:
            silent.close()
        with publisher() as pub:
            publish(pub)
            check(sub.next(timeout=10))


def test_a_publisher_that_never_answered_is_told_apart():
    silent = Listener("cam")
    try:
        with pytest.raises(cf.FrameTimeout, match="did not answer in time"):
            cf.subscribe("cam", timeout=0.05)
    finally:
        silent.close()


def test_a_dead_publisher_s_socket_is_not_found_and_taken_over(runtime_dir):
    # lifetime.md, 3
    dead = Listener("cam")
    dead._abandon()  # as its process's end would: the file stays
    assert list(runtime_dir.glob("*.sock")) == [dead.path]
    with pytest.raises(cf.StreamNotFoundError):
        cf.subscribe("cam", timeout=0.05)
    assert cf.list_streams() == []
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        check(sub.next(timeout=10))
    assert list(runtime_dir.glob("*.sock")) == []
