"""Who looks decides how large pictures are, and which are made."""

import pytest

from cuframes_nb._viewer.audience import Audience
from cuframes_nb._viewer.messages import Hello, Histogram, Size, Solo

ONE, OTHER = "one" * 6, "other" * 4


@pytest.fixture
def counted():
    return {ONE, OTHER}


@pytest.fixture
def audience(counted):
    return Audience(lambda view: view in counted)


def test_nobody_is_there_before_hello(audience):
    for message in (Size(ONE, 1, 2), Solo(ONE, 0), Histogram(ONE, 0, on=True)):
        audience.hear(message)
    assert len(audience) == 0
    assert ONE not in audience
    assert audience.room is None
    assert not audience.as_text
    assert not audience.wants_histogram(0)


def test_the_largest_that_counts_decides_the_room(audience, counted):
    audience.hear(Hello(ONE, 64, 48))
    audience.hear(Hello(OTHER, 32, 400))
    assert audience.room == (64, 400)
    counted.discard(OTHER)
    assert audience.room == (64, 48)
    audience.hear(Size(ONE, 10, 12))
    assert audience.room == (10, 12)
    counted.clear()
    assert audience.room is None


def test_who_said_hello_first_is_the_eldest(audience):
    audience.hear(Hello(ONE, 1, 1))
    audience.hear(Hello(OTHER, 1, 1))
    audience.hear(Hello(ONE, 2, 2))
    assert audience.eldest == ONE
    audience.forget(ONE)
    audience.forget(ONE)
    assert audience.eldest == OTHER


def test_one_that_needs_text_is_enough(audience):
    audience.hear(Hello(ONE, 1, 1, b64=True))
    audience.hear(Hello(OTHER, 1, 1))
    assert audience.as_text
    audience.hear(Hello(ONE, 1, 1))
    assert not audience.as_text


def test_a_camera_is_seen_unless_all_show_others_alone(audience, counted):
    assert audience.sees(7)
    audience.hear(Hello(ONE, 1, 1))
    audience.hear(Solo(ONE, 2))
    assert audience.sees(2)
    assert not audience.sees(0)
    audience.hear(Hello(ONE, 1, 1))  # still there
    assert not audience.sees(0)
    audience.hear(Hello(OTHER, 1, 1))
    assert audience.sees(0)
    counted.discard(OTHER)
    assert not audience.sees(0)
    audience.hear(Solo(ONE, None))
    assert audience.sees(0)


def test_histograms_end_with_who_asked(audience, counted):
    audience.hear(Hello(ONE, 1, 1))
    audience.hear(Histogram(ONE, 1, on=True))
    assert audience.wants_histogram(1)
    assert not audience.wants_histogram(0)
    counted.discard(ONE)
    assert not audience.wants_histogram(1)
    counted.add(ONE)
    audience.hear(Histogram(ONE, 1, on=False))
    assert not audience.wants_histogram(1)
    audience.hear(Histogram(ONE, 1, on=True))
    audience.forget(ONE)
    assert not audience.wants_histogram(1)
