"""When each frame is shown, as numbers."""

import threading

from cuframes_nb.sinks.belt import Belt
from cuframes_nb.sinks.timeline import Timeline

MS = 1_000_000
SECOND = 1000 * MS
NOW = 500 * SECOND


def placed(times, *, ticks=1000, started=NOW, anew=()):
    """Place frames of ``(pts, published)`` in milliseconds from `NOW`."""
    line = Timeline(ticks, started)
    return line, [
        line.place(NOW + pts * MS, NOW + published * MS, anew=index in anew)
        for index, (pts, published) in enumerate(times)
    ]


def test_distances_are_those_of_the_frames():
    line, at = placed([(5, 9), (25, 26), (26, 80), (1026, 1100)])
    assert at == [0, 20, 21, 1021]
    assert (line.retimed, line.seconds) == (0, 1.021)


def test_rounding_does_not_add_up():
    _, at = placed([(n * 33, n * 33) for n in range(301)], ticks=90_000)
    assert at == [n * 33 * 90 for n in range(301)]


def test_frames_of_the_same_moment_follow_each_other():
    line, at = placed([(0, 0), (40, 40), (40, 41), (20, 42), (41, 43), (80, 80)])
    assert at == [0, 40, 41, 42, 43, 80]
    assert line.retimed == 3


def test_another_publishers_clock_goes_on_where_publishing_does():
    _, at = placed([(0, 2), (40, 42), (-90_000, 5042), (-89_960, 5082)], anew={2})
    assert at == [0, 40, 5040, 5080]
    _, at = placed([(0, 2), (40, 42), (990_000, 5042), (990_040, 5082)], anew={2})
    assert at == [0, 40, 5040, 5080]


def test_a_leap_back_is_a_new_clock():
    _, at = placed([(0, 2), (5000, 5002), (0, 5042), (40, 5082)])
    assert at == [0, 5000, 5040, 5080]


def test_a_frame_from_before_is_shown_from_the_beginning():
    _, at = placed([(-9000, -9000), (300, 300)])
    assert at == [0, 300]
    _, at = placed([(-900, -900), (300, 300)])  # of the moment
    assert at == [0, 1200]


def test_a_belt_is_bounded_by_bytes_and_ends():
    belt = Belt(10)
    assert belt.put("larger than all of it", 50)
    waiting = threading.Thread(target=belt.put, args=("second", 1))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    assert belt.get() == "larger than all of it"
    waiting.join(30)
    belt.close()
    assert not belt.put("late", 1)
    assert belt.get() == "second"
    assert belt.get() is None


def test_a_belt_that_is_emptied_lets_go_of_who_waits():
    belt = Belt(10)
    belt.put("first", 10)
    said = []
    waiting = threading.Thread(target=lambda: said.append(belt.put("second", 10)))
    waiting.start()
    belt.close(empty=True)
    waiting.join(30)
    assert said == [False]
    assert belt.get() is None
