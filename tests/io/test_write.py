"""`Publisher.write`: every kind of frame, and what fits none."""

import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers.frames import HEIGHT, WIDTH, check, publish, publisher, value

ROWS = HEIGHT * 3 // 2


def picture(shape, dtype="uint8", seed=1):
    return np.random.default_rng(seed).integers(0, 250, shape).astype(dtype)


class OnlyDLPack:
    """What another library's array looks like that has nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnlyInterface:
    def __init__(self, array):
        self._array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("wrap", [np.asarray, OnlyDLPack, OnlyInterface, np.asfortranarray])
def test_rows_of_planes(wrap):
    rows = picture((ROWS, WIDTH))
    with publisher() as pub, cf.subscribe("cam") as sub:
        assert pub.write(wrap(rows), pts_ns=5) == 1
        with sub.next(timeout=10) as frame:
            assert frame.pts_ns == 5
            assert (frame.array == rows).all()


def test_rows_with_a_pitch_of_their_own_and_read_only():
    wide = picture((ROWS, WIDTH + 17))
    wide.flags.writeable = False
    with publisher(pitch=100) as pub, cf.subscribe("cam") as sub:
        pub.write(wide[:, 3 : WIDTH + 3])
        with sub.next(timeout=10) as frame:
            assert (frame.array == wide[:, 3 : WIDTH + 3]).all()


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize(("width", "height"), [(WIDTH, HEIGHT), (33, 17)])
def test_planes_of_any_pitch(kind, width, height):
    luma = picture((height, width + 5))[:, :width]
    chroma = picture(((height + 1) // 2, (width + 1) // 2 + 9, 2))[:, 4:-5]
    with publisher(width=width, height=height) as pub, cf.subscribe("cam") as sub:
        pub.write(kind([luma, OnlyInterface(chroma)]))
        with sub.next(timeout=10) as frame:
            assert (frame.y == luma).all()
            assert (frame.uv == chroma).all()


@pytest.mark.parametrize(
    ("format_", "shape", "dtype"),
    [
        ("gray8", (HEIGHT, WIDTH), "uint8"),
        ("rgb24", (HEIGHT, WIDTH, 3), "uint8"),
        ("rgba32", (HEIGHT, WIDTH, 4), "uint8"),
        ("p010", (ROWS, WIDTH), "uint16"),
    ],
)
def test_a_format_s_own_arrays_are_copied_as_they_are(format_, shape, dtype):
    array = picture(shape, dtype)
    with publisher(format=format_) as pub, cf.subscribe("cam") as sub:
        pub.write(array)
        with sub.next(timeout=10) as frame:
            assert (frame.array == array).all()


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("format_", ["nv12", "p010"])
def test_rgb_is_converted_with_the_stream_s_colours(format_, channels):
    image = np.empty((HEIGHT, WIDTH, channels), np.uint8)
    image[...] = (200, 100, 50, 255)[:channels]
    with publisher(format=format_) as pub, cf.subscribe("cam") as sub:
        pub.write(image)
        with sub.next(timeout=10) as frame:
            assert np.abs(frame.rgb().astype(int) - image[..., :3]).max() <= 3


def test_a_frame_of_another_stream():
    with (
        publisher("a") as a,
        publisher("b", pitch=80) as b,
        cf.subscribe("a") as from_a,
        cf.subscribe("b") as from_b,
    ):
        publish(a, 4)
        with from_a.next(timeout=10) as frame:
            b.write(frame)
            b.write(frame.copy(), frame.pts_ns)
            with from_b.next(timeout=10) as copied:
                check(copied, 4)
                assert copied.pts_ns == frame.pts_ns


@pytest.mark.parametrize("source", ["nv12", "p010le", "yuv420p", "rgb24", "rgba", "gray"])
@pytest.mark.parametrize("target", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_a_video_frame(source, target):
    av = pytest.importorskip("av")
    width, height = 56, 34  # rows are padded; FFmpeg leaves columns out if not a multiple of 8
    video = av.VideoFrame.from_ndarray(np.full((height, width, 3), 128, np.uint8), "rgb24")
    with (
        publisher(width=width, height=height, format=target) as pub,
        cf.subscribe("cam") as sub,
    ):
        pub.write(video.reformat(format=source))
        with sub.next(timeout=10) as frame:
            assert np.abs(frame.rgb().astype(int) - 128).max() <= 6  # FFmpeg dithers


def test_a_video_frame_of_another_size_is_refused():
    av = pytest.importorskip("av")
    with publisher() as pub:
        with pytest.raises(cf.InvalidArgumentError, match="32x32 does not fit a stream of 64x48"):
            pub.write(av.VideoFrame(32, 32, "nv12"))
        assert publish(pub) == 1


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (picture((HEIGHT, WIDTH)), r"\(48, 64\) fits neither nv12 at 64x48"),
        (picture((ROWS, WIDTH), "uint16"), "components of uint8, not uint16"),
        (picture((ROWS, WIDTH), "float32"), "components of uint8, not float32"),
        (picture((HEIGHT, WIDTH, 3), "float32"), "components of uint8, not float32"),
        (picture((HEIGHT, WIDTH, 5)), "fits neither"),
        ([picture((HEIGHT, WIDTH))], "planes of shapes"),
        ([picture((HEIGHT, WIDTH))] * 2, "planes of shapes"),
        ([], "planes of shapes"),
        ([1, 2], "planes of shapes"),
        (object(), "object is no array"),
        (None, "NoneType is no array"),
        ("picture.png", "fits neither"),
        (7, "fits neither"),
    ],
)
def test_what_fits_nothing_is_refused_and_the_slot_comes_back(frame, says):
    with publisher(ring_size=2) as pub:
        for _ in range(3):
            with pytest.raises(cf.InvalidArgumentError, match=says):
                pub.write(frame)
        assert pub.stats.discarded == 3
        assert publish(pub, 5) == 5


def test_the_copy_is_made_at_once():
    rows = np.full((ROWS, WIDTH), value(1), np.uint8)
    with publisher() as pub, cf.subscribe("cam") as sub:
        pub.write(rows)
        rows[...] = 99
        with sub.next(timeout=10) as frame:
            assert (frame.array == 1).all()


def test_writing_waits_as_acquire_does():
    rows = picture((ROWS, WIDTH))
    with publisher(policy="strict-wait", ring_size=2) as pub, cf.subscribe("cam", "strict"):
        pub.write(rows)
        pub.write(rows)
        with pytest.raises(cf.FrameTimeout):
            pub.write(rows, timeout=0.02)
