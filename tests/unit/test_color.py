"""What the numbers in a frame mean."""

import pytest

from cuframes_nb.color import (
    LUMA_WEIGHTS,
    MATRIX_CODES,
    PRIMARIES_CODES,
    RANGE_CODES,
    TRANSFER_CODES,
    UNSPECIFIED,
    ColorSpec,
)
from cuframes_nb.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("height", "matrix"), [(1, "bt601"), (576, "bt601"), (719, "bt601"), (720, "bt709")]
)
def test_untagged_video_is_assumed_by_its_height_and_says_so(height, matrix):
    color = ColorSpec.assume(height)
    assert (color.matrix, color.range, color.assumed) == (matrix, "limited", True)
    assert (color.primaries, color.transfer) == (None, None)


def test_frames_that_are_not_yuv_are_full_range_rgb():
    color = ColorSpec.assume(1080, yuv=False)
    assert (color.matrix, color.range, color.assumed) == ("rgb", "full", True)


def test_an_assumption_that_is_right_equals_the_fact():
    assert ColorSpec.assume(720) == ColorSpec("bt709", "limited")
    assert hash(ColorSpec.assume(720)) == hash(ColorSpec("bt709", "limited"))
    assert not ColorSpec().assumed


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"matrix": "bt470"}, "matrix 'bt470'.*bt709"),
        ({"range": "tv"}, "range 'tv'.*limited"),
        ({"primaries": "p3"}, "primaries 'p3'.*smpte432"),
        ({"transfer": "gamma"}, "transfer 'gamma'.*srgb"),
        ({"primaries": ""}, "primaries ''"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(fields, words):
    with pytest.raises(InvalidArgumentError, match=words):
        ColorSpec(**fields)


@pytest.mark.parametrize("matrix", MATRIX_CODES)
def test_luma_weights_are_those_of_the_standards(matrix):
    color = ColorSpec(matrix)
    if matrix == "rgb":
        with pytest.raises(InvalidArgumentError, match="no luma weights"):
            _ = color.luma_weights
    else:
        assert color.luma_weights == LUMA_WEIGHTS[matrix]


@pytest.mark.parametrize("table", [MATRIX_CODES, RANGE_CODES, PRIMARIES_CODES, TRANSFER_CODES])
def test_code_points_are_distinct_bytes(table):
    codes = list(table.values())
    assert len(set(codes)) == len(codes)
    assert all(0 <= code <= 255 for code in codes)
    assert UNSPECIFIED not in codes
