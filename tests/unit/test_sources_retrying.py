"""When a camera is tried again, what time its frames were taken at, and what of it may be told."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.sources._addresses import redacted, scheme_of, with_credentials
from cuframes_nb.sources._retrying import Backoff, LiveClock

MS = 1_000_000
SECOND = 1000 * MS


def test_it_waits_twice_as_long_from_failure_to_failure():
    backoff = Backoff()
    assert [backoff.next() for _ in range(8)] == [0.5, 1, 2, 4, 8, 15, 15, 15]
    backoff.reset()
    assert backoff.next() == 0.5


def test_the_frame_that_came_fastest_says_how_the_clocks_differ():
    clock = LiveClock()
    apart = 7_000 * SECOND
    late = [30, 5, 80, 2, 300, 9]
    pts = [clock.map(i * 40 * MS, apart + (i * 40 + ms) * MS) for i, ms in enumerate(late)]
    assert pts[0] == apart + 30 * MS  # nothing is known yet
    assert pts[3] == apart + (120 + 2) * MS
    assert pts[4] == apart + (160 + 2) * MS  # held up, and its time is the right one
    assert pts[5] - pts[4] == 40 * MS


def test_a_camera_whose_clock_goes_wrong_is_followed():
    clock = LiveClock()
    fast = 1.0002  # a second in 83 minutes
    for number in range(25 * 600):
        now = number * 40 * MS
        pts = clock.map(int(now * fast), now + 5 * MS)
        assert now - 5 * MS <= pts <= now + 5 * MS


def test_a_camera_whose_clock_goes_slow_is_followed_within_two_windows():
    clock = LiveClock()
    for number in range(25 * 600):
        now = number * 40 * MS
        pts = clock.map(int(now * 0.9998), now + 5 * MS)
        assert now + 2 * MS <= pts <= now + 5 * MS


@pytest.mark.parametrize("jump", [-3600 * SECOND, 3600 * SECOND])
def test_a_clock_that_is_set_is_followed_at_once(jump):
    clock = LiveClock()
    clock.map(5000 * SECOND, 10 * SECOND)
    assert clock.map(5000 * SECOND + jump, 11 * SECOND) == 11 * SECOND


def test_a_frame_without_a_time_was_taken_when_it_arrived():
    clock = LiveClock()
    assert clock.map(None, 50) == 50
    assert clock.map(5 * SECOND, 60) == 60
    assert clock.map(5 * SECOND + 40, 200) == 100
    assert clock.map(None, 210) == 210


@given(
    st.lists(
        st.tuples(st.integers(-100 * SECOND, 100 * SECOND), st.integers(1, 100 * SECOND)),
        min_size=1, max_size=60,
    )
)  # fmt: skip
def test_times_rise_and_are_never_after_the_frame_arrived(steps):
    clock = LiveClock()
    at = now = before = 0
    for step, passed in steps:
        at, now = at + step, now + passed
        pts = clock.map(at, now)
        assert before < pts <= now
        before = pts


# --- Addresses ------------------------------------------------------------------------------------

ADDRESSES = {
    "rtsp://me:s3cret@10.0.0.5:554/live?token=s3cret": "rtsp://10.0.0.5:554/live?...",
    "rtsp://me:s3c/ret@host/a": "rtsp://...",
    "http://me@host/s": "http://host/s",
    "rtsp://[::1]:8554/cam": "rtsp://[::1]:8554/cam",
    "rtsp://me:s3cret@[broken/cam": "rtsp://...",
    "film.mp4": "film.mp4",
    "a film: part 1@2.mp4": "a film: part 1@2.mp4",
    "/dev/video0": "/dev/video0",
}


@pytest.mark.parametrize(("where", "shown"), ADDRESSES.items())
def test_an_address_is_shown_without_what_is_secret(where, shown):
    assert redacted(where) == shown


def test_schemes():
    assert [scheme_of(a) for a in ("RTSP://a", "a.mp4", "/a://b", "", "1://a")] == [
        "rtsp", "", "", "", "",
    ]  # fmt: skip


def test_credentials_are_put_into_an_address():
    assert with_credentials("rtsp://old@h:1/p", "me", "a:/@b") == "rtsp://me:a%3A%2F%40b@h:1/p"
    for where in ("film.mp4", "rtsp:///p"):
        with pytest.raises(InvalidArgumentError, match="no host"):
            with_credentials(where, "me", "x")


def test_all_of_a_long_password_goes():
    for length in itertools.chain(range(1, 5), [500]):
        assert redacted(f"rtsp://u:{'x' * length}@h/p") == "rtsp://h/p"
