"""Which frame a subscriber takes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._core.reading import (
    completion_waits,
    lease_limit,
    newest_complete,
    oldest_after,
    unfinished_after,
)

DISCARDED = (1 << 63) + 5


@st.composite
def rings(draw):
    """Draw what a control block may show: frames in any slots, complete or not, and none."""
    count = draw(st.integers(1, 8))
    frames = draw(st.lists(st.integers(1, 40), min_size=count, max_size=count, unique=True))
    seqs = [draw(st.sampled_from([seq, 0])) for seq in frames]
    done = [draw(st.sampled_from([seq, seq, 0, DISCARDED])) for seq in seqs]
    return seqs, done, draw(st.integers(0, 45))


@pytest.mark.parametrize(
    ("seqs", "done", "after", "expected"),
    [
        ([0, 0], [0, 0], 0, (None, None, False)),  # before the first frame
        ([3, 2], [3, 2], 0, ((0, 3), (1, 2), False)),
        ([3, 2], [3, 2], 2, ((0, 3), (0, 3), False)),
        ([3, 2], [3, 2], 3, (None, None, False)),  # seen already
        ([3, 4], [3, 0], 0, ((0, 3), (0, 3), True)),  # the newest is still being written
        ([3, 4], [3, 0], 3, (None, None, True)),
        ([3, 4], [1, 4], 0, ((1, 4), None, True)),  # a later one is complete first
        ([0, 4], [DISCARDED, 4], 0, ((1, 4), (1, 4), False)),  # one was given back
        ([0, 0], [7, 6], 0, (None, None, False)),  # withdrawn, being written
    ],
)
def test_what_is_taken(seqs, done, after, expected):
    looks = (newest_complete, oldest_after, unfinished_after)
    assert tuple(look(seqs, done, after) for look in looks) == expected


@given(rings())
def test_the_newest_is_the_greatest_of_the_complete(ring):
    seqs, done, after = ring
    complete = [seq for seq, word in zip(seqs, done, strict=True) if seq == word and seq > after]
    found = newest_complete(seqs, done, after)
    assert found == ((seqs.index(max(complete)), max(complete)) if complete else None)


@given(rings())
def test_no_frame_is_overtaken(ring):
    seqs, done, after = ring
    newer = [seq for seq in seqs if seq > after]
    found = oldest_after(seqs, done, after)
    if found is not None:
        slot, seq = found
        assert seqs[slot] == done[slot] == seq == min(newer)
    else:
        assert not newer or unfinished_after(seqs, done, after)


@given(rings())
def test_what_is_unfinished_is_newer_and_not_complete(ring):
    seqs, done, after = ring
    expected = any(s > after and s != d for s, d in zip(seqs, done, strict=True))
    assert unfinished_after(seqs, done, after) is expected


@pytest.mark.parametrize(("slots", "limit"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 62)])
def test_a_subscriber_leaves_two_slots(slots, limit):
    assert lease_limit(slots) == limit


def test_waits_begin_with_none_and_stay_short():
    waits = list(itertools.islice(completion_waits(), 200))
    assert waits[0] == 0.0
    assert waits == sorted(waits)
    assert 0 < waits[-1] <= 0.001
