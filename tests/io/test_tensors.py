"""Frames of a stream as inputs of networks: one, or several in one array."""

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.convert.reference import picture_reference


@pytest.fixture
def frames():
    """One frame each of two cameras of different sizes and formats, of random content."""
    rng = np.random.default_rng(1)
    with (
        cf.Publisher("wide", width=64, height=36, memory="host") as wide,
        cf.Publisher("deep", width=48, height=33, format="p010", memory="host") as deep,
    ):
        for pub in (wide, deep):
            with pub.acquire() as slot:
                for plane in slot.planes:
                    plane[...] = rng.integers(0, 2 ** (8 * plane.itemsize), plane.shape)
        with (
            cf.subscribe("wide") as one,
            cf.subscribe("deep") as two,
            one.next(10) as first,
            two.next(10) as second,
        ):
            yield first, second


def expected(frame, placement, **options):
    return picture_reference(frame.planes, frame.format, frame.color, placement, **options)


def test_a_tensor_is_what_a_network_takes(frames):
    for frame in frames:
        found = frame.tensor((32, 32), dtype="float32")
        assert found.shape == (1, 3, 32, 32)
        wanted = expected(frame, frame.placement((32, 32)), fill=114)
        np.testing.assert_allclose(found[0].transpose(1, 2, 0), wanted, atol=1e-5)
    default = frames[0].tensor()
    assert (default.shape, default.dtype) == ((1, 3, 640, 640), np.float16)


def test_options_of_a_tensor(frames):
    frame = frames[0]
    found = frame.tensor(
        (20, 10),
        fit="cover",
        layout="hwc",
        dtype="float32",
        mean=(0.4, 0.5, 0.6),
        std=0.25,
        channels="bgr",
        crop=(3, 5, 40, 29),
        interpolation="area",
        siting="center",
    )
    wanted = expected(
        frame,
        frame.placement((20, 10), fit="cover", crop=(3, 5, 40, 29)),
        mean=(0.4, 0.5, 0.6),
        std=(0.25,) * 3,
        channels="bgr",
        interpolation="area",
        siting="center",
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert frame.tensor(None, channels="gray", layout="chw").shape == (1, 36, 64)


def test_options_of_rgb(frames):
    frame = frames[0]
    assert (frame.rgb(channels="bgr") == frame.rgb()[..., ::-1]).all()
    found = frame.rgb(size=(9, 7), interpolation="nearest", dtype="float32")
    wanted = expected(frame, frame.placement((9, 7), fit="stretch"), interpolation="nearest")
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(cf.InvalidArgumentError, match="use one of hwc, chw"):
        frame.rgb(layout="nchw")


def test_cameras_are_stacked(frames):
    found = cf.stack(frames, (40, 40), dtype="float32")
    assert found.shape == (2, 3, 40, 40)
    for frame, part in zip(frames, found, strict=True):
        np.testing.assert_array_equal(part, frame.tensor((40, 40), dtype="float32")[0])


def test_one_frame_gives_several_crops(frames):
    crops = [(0, 0, 16, 16), None, (5, 6, 20, 30)]
    found = cf.stack([frames[0]] * 3, (24, 24), layout="nhwc", crop=crops, fit="cover")
    for crop, part in zip(crops, found, strict=True):
        single = frames[0].tensor((24, 24), layout="nhwc", crop=crop, fit="cover")
        np.testing.assert_array_equal(part, single[0])
    same = cf.stack(frames, (24, 24), crop=(1, 2, 30, 20))
    np.testing.assert_array_equal(same[1], frames[1].tensor((24, 24), crop=(1, 2, 30, 20))[0])


def test_results_are_written_where_they_shall_be(frames):
    out = np.full((2, 3, 24, 24), 7, np.float16)
    assert cf.stack(frames, (24, 24), out=out, stream=object()) is out  # no streams on a host
    np.testing.assert_array_equal(out, cf.stack(frames, (24, 24)))
    one = np.full((1, 3, 24, 24), 7, np.float16)
    assert frames[0].tensor((24, 24), out=one) is one


def test_a_result_is_no_view_of_the_frame(frames):
    before = cf.stack(frames, None, crop=(0, 0, 20, 20), dtype="uint8")
    copied = before.copy()
    for frame in frames:
        frame.release()
    np.testing.assert_array_equal(before, copied)
    with pytest.raises(cf.ClosedError):
        frames[0].tensor()
    with pytest.raises(cf.ClosedError):
        cf.stack(frames)


def test_points_are_mapped_back_to_the_frame(frames):
    placement = frames[0].placement((128, 128), crop=(8, 4, 32, 18))
    assert isinstance(placement, cf.Placement)
    assert placement.target == (0, 28, 128, 72)
    assert placement.to_frame(0, 28) == (8, 4)
    assert placement.to_frame(128, 100) == (40, 22)


@pytest.mark.parametrize(
    ("frames_of", "options", "message"),
    [
        (lambda _: [], {}, "one or more frames"),
        (lambda frames: [frames[0], "frame"], {}, "one or more frames"),
        (list, {"layout": "chw"}, "use one of nhwc, nchw"),
        (list, {"size": None}, "say which size="),
        (list, {"crop": [(0, 0, 1, 1)]}, "1 crops were given for 2 frames"),
        (list, {"crop": (0, 0, 64, 36)}, "leaves the frame of 48x33"),
        (list, {"crop": 5}, "whole numbers"),
    ],
)
def test_wrong_arguments_say_what_to_use(frames, frames_of, options, message):
    with pytest.raises(cf.InvalidArgumentError, match=message):
        cf.stack(frames_of(frames), **options)
