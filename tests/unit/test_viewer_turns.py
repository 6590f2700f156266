"""Turns are short while somebody needs it, and afterwards as long as they were."""

import sys

import pytest

from cuframes_nb._viewer.turns import short_turns


@pytest.fixture(autouse=True)
def turns():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before)


def now():
    return round(sys.getswitchinterval(), 6)


def test_they_are_short_until_the_last_has_ended():
    first, second = short_turns(), short_turns()
    with first:
        assert now() == 0.001
        second.__enter__()
    assert now() == 0.001
    second.__exit__(None, None, None)
    assert now() == 0.005


def test_they_are_put_back_when_something_is_raised():
    with pytest.raises(ZeroDivisionError), short_turns():
        1 / 0  # noqa: B018
    assert now() == 0.005


def test_shorter_ones_stay():
    sys.setswitchinterval(0.0002)
    with short_turns():
        assert now() == 0.0002
    assert now() == 0.0002


def test_what_somebody_else_sets_meanwhile_stays():
    with short_turns():
        sys.setswitchinterval(0.02)
    assert now() == 0.02
    with short_turns():
        assert now() == 0.001
    assert now() == 0.02
