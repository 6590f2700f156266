"""Where a picture lies in a result of another size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb.convert import Placement, placement_of
from cuframes_nb.errors import InvalidArgumentError

SIDES = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("size", "fit", "source", "target"),
    [
        ((640, 640), "letterbox", (0, 0, 1920, 1080), (0, 140, 640, 360)),
        ((640, 360), "letterbox", (0, 0, 1920, 1080), (0, 0, 640, 360)),
        ((100, 20), "letterbox", (0, 0, 1920, 1080), (32, 0, 36, 20)),
        ((640, 640), "cover", (420, 0, 1080, 1080), (0, 0, 640, 640)),
        ((1920, 108), "cover", (0, 486, 1920, 108), (0, 0, 1920, 108)),
        ((640, 640), "stretch", (0, 0, 1920, 1080), (0, 0, 640, 640)),
        (None, "letterbox", (0, 0, 1920, 1080), (0, 0, 1920, 1080)),
    ],
)
def test_a_full_hd_picture_lies_where_it_should(size, fit, source, target):
    found = placement_of(1920, 1080, None, size, fit)
    assert (found.source, found.target, found.size) == (source, target, size or (1920, 1080))


@given(SIDES, SIDES, SIDES, SIDES)
def test_a_letterbox_keeps_the_shape_and_touches_two_sides(width, height, columns, rows):
    found = placement_of(width, height, None, (columns, rows), "letterbox")
    left, top, inner_width, inner_height = found.target
    assert found.source == (0, 0, width, height)
    assert left >= 0
    assert left + inner_width <= columns
    assert 0 <= columns - inner_width - 2 * left <= 1
    assert top >= 0
    assert top + inner_height <= rows
    assert 0 <= rows - inner_height - 2 * top <= 1
    assert inner_width == columns or inner_height == rows
    scale = min(columns / width, rows / height)
    assert abs(inner_width - width * scale) <= max(0.5, 1 - width * scale) + 1e-6
    assert abs(inner_height - height * scale) <= max(0.5, 1 - height * scale) + 1e-6


@given(SIDES, SIDES, SIDES, SIDES)
def test_a_cover_takes_the_middle_of_the_frame(width, height, columns, rows):
    found = placement_of(width, height, None, (columns, rows), "cover")
    x, y, taken_width, taken_height = found.source
    assert found.target == (0, 0, columns, rows)
    assert taken_width == width or taken_height == height
    assert taken_width >= 1
    assert taken_height >= 1
    assert 0 <= width - taken_width - 2 * x <= 1
    assert 0 <= height - taken_height - 2 * y <= 1
    assert abs(taken_width * rows - taken_height * columns) <= max(columns, rows) / 2 + max(
        columns, rows
    ) * (min(taken_width, taken_height) == 1)


def test_points_are_mapped_back():
    found = placement_of(1920, 1080, (100, 50, 960, 540), (640, 640), "letterbox")
    assert found.to_frame(0, 140) == (100, 50)
    assert found.to_frame(640, 500) == (1060, 590)
    x, y = found.to_frame(np.array([0, 320]), np.array([140, 320]))
    np.testing.assert_allclose(x, [100, 580])
    np.testing.assert_allclose(y, [50, 320])


def test_a_picture_of_the_result_s_size_is_not_resized():
    assert not placement_of(64, 48, None, (64, 48), "letterbox").resized
    assert not placement_of(64, 48, None, (80, 48), "letterbox").resized
    assert placement_of(64, 48, None, (80, 48), "stretch").resized
    assert not placement_of(64, 48, None, (60, 48), "cover").resized


def test_lists_do_as_well_as_tuples():
    found = placement_of(64, 48, [0, 0, 32, 24], [16, 12], "stretch")
    assert found == Placement((0, 0, 32, 24), (0, 0, 16, 12), (16, 12))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, (4, 4), "fill"), "use one of letterbox, stretch, cover"),
        ((None, (4, 0), "cover"), "between 1 and 32768"),
        (([[0], 0, 1, 1], (4, 4), "cover"), "whole numbers"),
        (((0, 0, 65, 1), (4, 4), "cover"), "leaves the frame of 64x48"),
    ],
)
def test_wrong_arguments_say_what_to_use(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        placement_of(64, 48, *arguments)
