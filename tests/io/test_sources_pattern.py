"""The test pattern: its number, its colours, any format and size."""

import itertools
from datetime import datetime, time, timedelta

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.sources import Pattern, play, read_stamp
from cuframes_nb.sources._digits import draw


def shown(pattern, number):
    """Return one frame of the pattern as a subscriber gets it."""
    with (
        pattern.publisher("pattern", memory="host") as publisher,
        cf.subscribe("pattern") as subscriber,
    ):
        with publisher.acquire() as slot:
            pattern.write(slot, number)
        with subscriber.next(timeout=5) as frame:
            return frame.copy()


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (321, 243), (33, 9), (2, 2), (1, 1)])
def test_the_number_is_in_the_frame(format_, width, height):
    frame = shown(Pattern(width, height, format=format_), 0xC0FFEE05)
    assert read_stamp(frame.planes[0]) == 0xC0FFEE05 & ((1 << min(32, width)) - 1)


def test_the_number_is_in_the_rgb_image_too():
    assert read_stamp(shown(Pattern(640, 480), 12345).rgb()) == 12345


def test_the_bars_have_their_colours():
    rgb = shown(Pattern(1280, 720), 0).rgb()
    assert np.abs(rgb[700, 80::160].astype(int) - np.array(
        [(191, 191, 191), (191, 191, 0), (0, 191, 191), (0, 191, 0),
         (191, 0, 191), (191, 0, 0), (0, 0, 191), (16, 16, 16)]
    )).max() <= 2  # fmt: skip


def test_the_box_moves():
    pattern = Pattern(320, 240)
    a, b = (shown(pattern, number).y.astype(int) for number in (3, 9))
    assert np.abs(a[32:] - b[32:]).max() > 100


def test_it_plays_as_many_frames_as_asked():
    pattern = Pattern(64, 48, fps=1000, frames=5)
    with pattern.publisher("pattern", memory="host") as publisher:
        assert play(pattern, publisher) == 5
        assert publisher.stats.published == 5


def test_it_stops_when_told():
    pattern = Pattern(64, 48, fps=0.1)
    with pattern.publisher("pattern", memory="host") as publisher:
        answers = iter([False, False, False, True])
        assert play(pattern, publisher, stop=lambda: next(answers)) == 1


def test_it_stops_while_it_waits_for_a_strict_subscriber():
    pattern = Pattern(64, 48, fps=1000)
    asked = itertools.count()
    with (
        pattern.publisher("pattern", memory="host", policy="strict-wait") as publisher,
        cf.subscribe("pattern", mode="strict"),  # which takes nothing
    ):
        published = play(pattern, publisher, fast=True, stop=lambda: next(asked) > 9)
        assert 1 <= published <= publisher.info.slots


def test_a_full_ring_drops_and_goes_on():
    pattern = Pattern(64, 48, fps=1000, frames=5)
    with pattern.publisher("pattern", memory="host", ring_size=2) as publisher:
        held = [publisher.acquire(), publisher.acquire()]
        assert play(pattern, publisher, fast=True) == 0
        assert publisher.stats.dropped == 5
        del held


def test_a_rate_of_zero_is_refused():
    with pytest.raises(InvalidArgumentError, match="positive rate"):
        Pattern(fps=0)


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (321, 43), (33, 9), (1, 1)])
def test_a_caption_leaves_the_number_as_it_is(format_, width, height):
    frame = shown(Pattern(width, height, format=format_, caption=True), 77)
    assert read_stamp(frame.planes[0]) == 77 & ((1 << min(32, width)) - 1)


def test_a_caption_says_number_and_time():
    started = datetime.now()  # noqa: DTZ005  the wall's clock
    rgb = shown(Pattern(1280, 720, caption=True), 1234).rgb()
    ended = datetime.now()  # noqa: DTZ005
    scale = 3
    cells = rgb[16 + scale // 2 : 16 + 9 * scale : scale, scale // 2 :: scale, 0] > 128
    glyphs = {glyph: draw(glyph, 1)[:, 1:].tobytes() for glyph in "0123456789:. "}
    text = "".join(
        next(
            g for g, pixels in glyphs.items() if pixels == cells[:, 6 * i + 1 : 6 * i + 6].tobytes()
        )
        for i in range(21)
    )
    number, clock = text.split()
    assert number == "00001234"
    said = datetime.combine(started, time.fromisoformat(clock))
    assert started - timedelta(milliseconds=1) <= said <= ended or ended.date() != started.date()
