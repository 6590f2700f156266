"""The test pattern: its number, its colours, any format and size."""

import itertools
from datetime import datetime, time, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.sources import Pattern, pattern, play, read_stamp
from cuframes_nb.sources._digits import ROWS, bitmaps, draw
from cuframes_nb.sources._pattern_kernel import LONGEST
from tests.helpers.compiling import needs_compiler
from tests.helpers.pattern_kernel import as_on_gpu, fake_cupy, rooms_and_planes

FORMATS = ["nv12", "p010", "gray8", "rgb24", "rgba32"]


def shown(source, number):
    """Return one frame of the pattern as a subscriber gets it."""
    with (
        source.publisher("pattern", memory="host") as publisher,
        cf.subscribe("pattern") as subscriber,
    ):
        with publisher.acquire() as slot:
            source.write(slot, number)
        with subscriber.next(timeout=5) as frame:
            return frame.copy()


@pytest.mark.parametrize("format_", FORMATS)
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
    source = Pattern(320, 240)
    a, b = (shown(source, number).y.astype(int) for number in (3, 9))
    assert np.abs(a[32:] - b[32:]).max() > 100


def test_the_box_is_white_all_over():
    # Its chroma lies below its luma, in a frame of one row, too.
    for height in (1, 2, 3, 240):
        frame = shown(Pattern(321, height), 9)
        lit = frame.y[0::2, 0::2] == 235
        assert lit.any()
        assert (frame.uv[lit] == 128).all()


def test_it_plays_as_many_frames_as_asked():
    source = Pattern(64, 48, fps=1000, frames=5)
    with source.publisher("pattern", memory="host") as publisher:
        assert play(source, publisher) == 5
        assert publisher.stats.published == 5


def test_it_stops_when_told():
    source = Pattern(64, 48, fps=0.1)
    with source.publisher("pattern", memory="host") as publisher:
        answers = iter([False, False, False, True])
        assert play(source, publisher, stop=lambda: next(answers)) == 1


def test_it_stops_while_it_waits_for_a_strict_subscriber():
    source = Pattern(64, 48, fps=1000)
    asked = itertools.count()
    with (
        source.publisher("pattern", memory="host", policy="strict-wait") as publisher,
        cf.subscribe("pattern", mode="strict"),  # which takes nothing
    ):
        published = play(source, publisher, fast=True, stop=lambda: next(asked) > 9)
        assert 1 <= published <= publisher.info.slots


def test_a_full_ring_drops_and_goes_on():
    source = Pattern(64, 48, fps=1000, frames=5)
    with source.publisher("pattern", memory="host", ring_size=2) as publisher:
        held = [publisher.acquire(), publisher.acquire()]
        assert play(source, publisher, fast=True) == 0
        assert publisher.stats.dropped == 5
        del held


def test_a_rate_of_zero_is_refused():
    with pytest.raises(InvalidArgumentError, match="positive rate"):
        Pattern(fps=0)


@pytest.mark.parametrize("format_", FORMATS)
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


# --- On a GPU -------------------------------------------------------------------------------------


def drawn(source, number, padding, xp):
    """Return all bytes of the rooms that planes lie in, after a frame was drawn."""
    rooms, planes = rooms_and_planes(source, padding)
    if xp is not np:
        planes = [as_on_gpu(plane) for plane in planes]
    source.write(SimpleNamespace(planes=planes, xp=xp), number)
    return rooms


@pytest.fixture
def compiled(monkeypatch):
    """Return what passes for CuPy, and have the clock stand still."""
    needs_compiler()
    monkeypatch.setattr(pattern, "_caption", lambda number: f"{number:08d} 12:34:56.789")
    return fake_cupy(monkeypatch)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("width", "height"),
    [(1280, 720), (177, 145), (640, 31), (33, 21), (33, 1), (16, 2), (2, 300), (1, 1)],
)
@pytest.mark.parametrize("caption", [False, True])
def test_the_kernel_draws_the_same_bytes(format_, width, height, caption, compiled):
    source = Pattern(width, height, format=format_, caption=caption)
    for number, padding in ((0, 0), (77, 6), (0x1_C0FF_EE05, 130)):
        expected = drawn(source, number, padding, np)
        found = drawn(source, number, padding, compiled)
        for there, here in zip(found, expected, strict=True):
            assert (there == here).all(), f"{(there != here).sum()} bytes of frame {number} differ"


def test_colours_are_drawn_as_asked_for(compiled):
    source = Pattern(177, 145, color=cf.ColorSpec("bt2020", "full"), caption=True)
    expected, found = (drawn(source, 5, 0, xp)[0] for xp in (np, compiled))
    assert (found == expected).all()
    assert found.max() == 255


def test_a_character_is_a_number():
    for character in "0123456789:. ":
        (number,) = bitmaps(character)
        cells = [number >> at & 1 for at in range(draw(character, 1).size)]
        assert (np.reshape(cells, (ROWS, -1)) == draw(character, 1)).all()
        assert not number >> len(cells)


def test_there_is_room_for_the_captions_of_a_billion_years():
    assert len(pattern._caption(10**18)) <= LONGEST
