"""The reading end: next, latest, iteration, waiting, one thread at a time."""

import asyncio
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._runtime import hub
from cuframes_nb._wire.messages import Epoch
from tests.helpers.frames import check, fill, publish, publisher, until

# --- Attaching ------------------------------------------------------------------------------------


def test_a_stream_is_found_by_key_address_and_path():
    with publisher() as pub:
        publish(pub)
        for source in ("cam", "cuframes://cam", pub.info.path, Path(pub.info.path)):
            with cf.subscribe(source) as sub:
                check(sub.next(timeout=10))


def test_an_unknown_stream_lists_the_others(runtime_dir):
    with pytest.raises(cf.StreamNotFoundError, match="no other is there either") as caught:
        cf.subscribe("cam", timeout=0)
    assert str(runtime_dir) in str(caught.value)
    assert caught.value.code == "not-found"
    assert isinstance(caught.value, LookupError)
    with (
        publisher("cam1"),
        publisher("cam2"),
        pytest.raises(cf.StreamNotFoundError, match="the streams there are: cam1, cam2"),
    ):
        cf.subscribe("cam", timeout=0)
    with pytest.raises(cf.StreamNotFoundError, match="no publisher's socket at"):
        cf.subscribe(runtime_dir / "x.sock", timeout=0)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("a/b", cf.StreamNotFoundError),
        ("cuframes://a/b", cf.InvalidArgumentError),
        ("x/" * 60, cf.InvalidArgumentError),
        (Path("/" + "x" * 120), cf.InvalidArgumentError),
        ("", cf.InvalidArgumentError),
        (7, cf.InvalidArgumentError),
        ("gst:///tmp/x", (cf.UnsupportedError, cf.DeviceError, cf.StreamNotFoundError)),
    ],
)
def test_what_is_no_address_is_refused(source, error):
    with pytest.raises(error):
        cf.subscribe(source, timeout=0)


def test_another_program_s_socket_is_no_stream(runtime_dir):
    path = runtime_dir / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen()
        for source in (path, "other"):
            with pytest.raises(cf.StreamNotFoundError, match="another program's socket"):
                cf.subscribe(source, timeout=0)


def test_an_unknown_mode_is_refused():
    with pytest.raises(cf.InvalidArgumentError, match="'newest' or 'strict'"):
        cf.subscribe("cam", "all")


def test_writable_host_memory_is_refused():
    # lifetime.md, 9
    with publisher(), pytest.raises(cf.UnsupportedError, match="sealed against every writer"):
        cf.subscribe("cam", writable=True)


def test_subscribe_waits_for_a_stream_to_appear():
    found = []
    thread = threading.Thread(target=lambda: found.append(cf.subscribe("cam", timeout=60)))
    thread.start()
    time.sleep(0.05)
    with publisher() as pub:
        thread.join()
        publish(pub)
        with found[0] as sub:
            check(sub.next(timeout=10))


def test_names_are_cut_to_what_the_wire_holds():
    with publisher() as pub, cf.subscribe("cam", name="ä" * 100), cf.subscribe("cam"):
        long, default = (s.name for s in pub.info.subscribers)
        assert long == "ä" * 32
        assert default


# --- Frames ---------------------------------------------------------------------------------------


def test_next_gives_the_newest_and_each_frame_once():
    with publisher() as pub, cf.subscribe("cam") as sub:
        with pytest.raises(cf.FrameTimeout, match="no new frame of stream 'cam' came within 0 s"):
            sub.next(timeout=0)
        publish(pub, 3)
        assert sub.next(timeout=0).seq == 3
        with pytest.raises(cf.FrameTimeout) as caught:
            sub.next(timeout=0.01)
        assert caught.value.code == "timeout"
        assert isinstance(caught.value, TimeoutError)
        publish(pub, 2)
        assert sub.next(timeout=0).seq == 5
        assert sub.stats.received == 2
        assert sub.stats.skipped == 1


def test_next_is_woken():
    with publisher() as pub, cf.subscribe("cam") as sub:
        timer = threading.Timer(0.05, publish, [pub])
        timer.start()
        assert sub.next().seq == 1
        timer.join()


def test_a_frame_of_the_moment_in_which_it_was_taken_in_wakes_it(monkeypatch):
    send = hub._Peer.send

    def send_and_publish(peer, message, fds=None):
        send(peer, message, fds)
        if isinstance(message, Epoch):
            time.sleep(0.3)  # until it has looked for a frame, and waits
            publish(pub)

    with publisher() as pub:
        monkeypatch.setattr(hub._Peer, "send", send_and_publish)
        with cf.subscribe("cam") as sub:
            # A task looks again only when it is woken, and not when the time is over.
            check(asyncio.run(asyncio.wait_for(anext(aiter(sub)), 10)))


def test_latest_does_not_wait_and_gives_a_frame_again():
    with publisher() as pub, cf.subscribe("cam") as sub:
        assert sub.latest() is None
        publish(pub, 2)
        first, second = sub.latest(), sub.latest()
        assert first.seq == second.seq == 2
        assert sub.stats.leases == pub.stats.slots_leased == 1  # two leases, one slot
        first.release()
        check(second)
        assert pub.stats.slots_leased == 1
        second.release()
        assert pub.stats.slots_leased == 0
        with pytest.raises(cf.FrameTimeout):
            sub.next(timeout=0)  # latest has shown it


def test_a_subscriber_that_comes_late_gets_the_newest_frame():
    with publisher() as pub:
        publish(pub, 7)
        with cf.subscribe("cam") as newest, cf.subscribe("cam", "strict") as strict:
            assert newest.next(timeout=0).seq == strict.next(timeout=0).seq == 7


def test_iteration_releases_the_frame_before():
    with publisher(ring_size=2) as pub, cf.subscribe("cam") as sub:
        seen = []
        publish(pub)
        for frame in sub:
            check(frame)
            if seen:
                assert seen[-1].released
            assert pub.stats.slots_leased == 1
            seen.append(frame)
            if len(seen) == 20:
                break
            publish(pub)
        assert [frame.seq for frame in seen] == list(range(1, 21))


def test_use_after_close_is_refused_and_close_is_idempotent():
    # lifetime.md, 10
    with publisher() as pub:
        sub = cf.subscribe("cam")
        publish(pub)
        frame = sub.next(timeout=10)
        sub.close()
        sub.close()
        assert sub.closed
        for use in (sub.next, sub.latest, lambda: next(iter(sub))):
            with pytest.raises(cf.ClosedError, match="'cam' was closed"):
                use()
        assert sub.info.state == "closed"
        assert sub.info.published == 1
        assert sub.stats.leases == sub.stats.epoch == 0
        check(frame)
        assert pub.stats.slots_leased == 1
        frame.release()
        assert pub.stats.slots_leased == 0
        until(lambda: pub.stats.subscribers == 0)


def test_two_threads_may_not_wait_at_once():
    with publisher() as pub, cf.subscribe("cam") as sub:
        got = []
        thread = threading.Thread(target=lambda: got.append(sub.next()))
        thread.start()
        until(lambda: sub._use() is not None)
        for use in (sub.next, sub.latest):
            with pytest.raises(cf.InUseError, match="subscribe once more") as caught:
                use()
        assert caught.value.code == "in-use"
        publish(pub)
        thread.join()
        assert got[0].seq == 1


@pytest.mark.parametrize("waiting", ["for a frame", "for the publisher"])
def test_close_wakes_a_thread_that_waits(waiting):
    # lifetime.md, 10
    with publisher() as pub:
        sub = cf.subscribe("cam")
        if waiting == "for the publisher":
            pub.close()
        caught = []

        def wait():
            try:
                sub.next()
            except cf.ClosedError as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: sub._use() is not None)
        time.sleep(0.02)
        sub.close()
        thread.join()
        assert "was closed" in str(caught[0])
        if waiting == "for a frame":
            until(lambda: pub.stats.subscribers == 0)


def test_close_while_another_thread_reads_is_safe():
    # lifetime.md, 10
    with publisher() as pub:
        for _ in range(100):
            sub = cf.subscribe("cam")
            started = threading.Event()

            def read(sub=sub, started=started):
                try:
                    while True:
                        sub.latest()
                        _ = sub.info, sub.stats
                        started.set()
                except cf.ClosedError:
                    pass

            thread = threading.Thread(target=read)
            thread.start()
            publish(pub)
            started.wait()
            sub.close()
            thread.join()
        assert pub.stats.slots_leased == 0


def test_info_may_be_read_while_epochs_change():
    # lifetime.md, 10
    with publisher() as pub, cf.subscribe("cam") as sub:
        stop = threading.Event()
        facts = []

        def look():
            while not stop.is_set():
                facts.append((sub.info.epoch, sub.stats.epoch))

        thread = threading.Thread(target=look)
        thread.start()
        for width in range(2, 82, 2):
            pub.reconfigure(width=width)
            publish(pub)
            assert sub.next(timeout=10).width == width
        stop.set()
        thread.join()
        assert facts


def test_stats_count():
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub, 4)
        frame = sub.next(timeout=10)
        stats = sub.stats
        assert stats == cf.SubscriberStats(1, 0, 0, 1, 1, 1, 2)
        assert stats.lease_limit == 2
        frame.release()


# --- What is not asked for each frame -------------------------------------------------------------


@pytest.mark.parametrize("mode", ["newest", "strict"])
def test_while_new_frames_come_the_publisher_is_not_asked_for_news(mode, monkeypatch):
    with publisher() as pub, cf.subscribe("cam", mode) as sub:
        asked = []
        session = sub._connection.session
        follow = session.follow
        monkeypatch.setattr(session, "follow", lambda: asked.append(1) or follow())
        for take in (sub.latest, sub.next, sub.latest, sub.next):
            publish(pub)
            with take() as frame:
                check(frame)
        assert not asked
        sub.latest().release()  # seen before: there may be news that matter more
        assert asked


def test_news_come_first_once_the_epoch_is_not_the_newest():
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub, 2)
        pub.reconfigure(width=32)
        publish(pub)
        with sub.latest() as frame:  # not frame 2, though it was not seen either
            assert (frame.seq, frame.width) == (3, 32)


def test_latest_of_a_strict_reader_passes_over_what_is_older():
    with publisher(policy="strict-wait", ring_size=8) as pub, cf.subscribe("cam", "strict") as sub:
        publish(pub, 3)
        assert sub.latest().seq == 3
        publish(pub, 2)
        assert [sub.next(timeout=10).seq for _ in range(2)] == [4, 5]
        assert sub.stats.skipped == 0  # 3 was the first that it ever took
        publish(pub, 3)
        assert sub.latest().seq == 8
        assert sub.stats.skipped == 2


def announce(pub):
    """Publish as a GPU does that has not come so far; return what completes the frame."""
    ring = pub._ring
    slot, complete = pub.acquire(), ring._completion.complete
    fill(slot)
    ring._completion.complete = lambda *_: None
    seq = pub.publish(slot)
    ring._completion.complete = complete
    return lambda: complete(slot._index, seq, None)


@pytest.mark.parametrize("spin_us", [0, 3000])
@pytest.mark.parametrize("seconds", [0.0, 0.00005, 0.002, 0.05])
def test_a_frame_is_waited_for_from_its_wake_up_until_it_is_complete(spin_us, seconds):
    with publisher() as pub, cf.subscribe("cam", spin_us=spin_us) as sub:
        got = []
        for seq in range(1, 6):
            thread = threading.Thread(target=lambda: got.append(sub.next(timeout=10)))
            thread.start()
            until(lambda: sub._use() is not None)
            time.sleep(0.005)
            complete = announce(pub)
            time.sleep(seconds)
            assert not got
            complete()
            thread.join()
            frame = got.pop()
            assert frame.seq == seq
            check(frame)
            frame.release()


# --- Looking out for the next frame ---------------------------------------------------------------


def test_a_subscriber_that_spins_gets_every_frame_of_a_rhythm():
    with publisher() as pub, cf.subscribe("cam", spin_us=3000) as sub:
        for seq in range(1, 30):
            timer = threading.Timer(0.01, publish, (pub,))
            timer.start()
            with sub.next(timeout=10) as frame:
                assert frame.seq == seq
                check(frame)
            timer.join()


def test_spinning_ends_with_the_time_that_was_given():
    with publisher() as pub, cf.subscribe("cam", spin_us=100_000) as sub:
        for _ in range(3):
            publish(pub)
            time.sleep(0.01)
            sub.next(timeout=10).release()
        for timeout in (0, 0.001, 0.3):
            with pytest.raises(cf.FrameTimeout):
                sub.next(timeout=timeout)


def test_a_goodbye_is_heard_while_spinning():
    with publisher() as pub, cf.subscribe("cam", spin_us=100_000, reconnect=False) as sub:
        for _ in range(3):
            publish(pub)
            time.sleep(0.05)
            sub.next(timeout=10).release()
        timer = threading.Timer(0.01, pub.close)
        timer.start()
        with pytest.raises(cf.PublisherGoneError, match="was closed"):
            sub.next(timeout=10)
        timer.join()


@pytest.mark.parametrize("spin_us", [-1, 100_001, "5", None, float("nan")])
def test_a_wrong_spin_is_refused(spin_us):
    with publisher(), pytest.raises(cf.InvalidArgumentError, match="spin_us"):
        cf.subscribe("cam", spin_us=spin_us)


# --- Wrong arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize("trusted", [5, "root", [1.5], [None]])
def test_trusted_users_that_are_no_numbers_are_refused(trusted):
    with publisher(), pytest.raises(cf.InvalidArgumentError, match="trusted_uids"):
        cf.subscribe("cam", trusted_uids=trusted)


def test_a_device_for_host_memory_is_refused():
    with publisher(), pytest.raises(cf.InvalidArgumentError, match="which has no device"):
        cf.subscribe("cam", device=0)


def test_a_frame_is_not_taken_for_an_array():
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with (
            sub.next(timeout=10) as frame,
            pytest.raises(TypeError, match=r"frame\.y"),
        ):
            np.asarray(frame)
