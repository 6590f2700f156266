"""Frames as they come out of the encoder: colours, cuts and sizes, decoded by another library."""

import contextlib
import functools
import importlib.util
import io
import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cuframes_nb as cf
from cuframes_nb import convert
from cuframes_nb._viewer import encoders, picture
from cuframes_nb._viewer.encoders import JpegEncoder
from cuframes_nb._viewer.images import as_pixels, device_of, on_host, shown_pixels
from cuframes_nb._viewer.picture import (
    Picture,
    Planes,
    Scaler,
    aligned,
    fitted,
    resized,
    rgb_pixels,
)
from cuframes_nb.sinks import png
from tests.helpers.compiling import needs_compiler
from tests.helpers.frames import publisher
from tests.helpers.jpeg_kernel import paint as run_kernel
from tests.helpers.pages import looking

COLORS = list(itertools.product(("bt601", "bt709", "bt2020"), ("limited", "full")))
FORMATS = ["nv12", "p010", "gray8", "rgb24", "rgba32"]
PALETTE = np.array(list(itertools.product((0, 85, 170, 255), repeat=3)), np.uint8).reshape(8, 8, 3)
SIDE = 512
PATCH = SIDE // 8


@pytest.fixture(params=["swscale", "NumPy"])
def scaler(request, monkeypatch):
    """Return a scaler with PyAV, and one without."""
    if request.param == "NumPy":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    made = Scaler()
    assert made.name == request.param
    return made


class Kernel:
    """Scales as frames on a GPU are scaled, by the same kernel, here on the CPU."""

    def __init__(self):
        self._scaler = Scaler(lambda _: True)

    def frame(self, *args):
        return self._paint(self._scaler.frame(*args))

    def pixels(self, pixels, size):
        return self._paint(self._scaler.pixels(np.ascontiguousarray(pixels), size))

    @staticmethod
    def _paint(made):
        assert isinstance(made, Picture)
        return Planes(*run_kernel(made.planes, made.format, made.color, made.crop, made.size))


@pytest.fixture(params=["swscale", "NumPy", "kernel"])
def any_scaler(request, monkeypatch):
    """Return the same, or one as it is used for frames on a GPU."""
    if request.param == "kernel":
        needs_compiler()
        return Kernel()
    if request.param == "NumPy":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    return Scaler()


@contextlib.contextmanager
def frame_of(fill, width, height, format_="nv12", color=("bt601", "full"), **options):
    """Yield a frame that ``fill(planes)`` has written, and its publisher."""
    matrix = "rgb" if format_ in {"rgb24", "rgba32"} else color[0]
    options |= {"width": width, "height": height, "format": format_}
    options["color"] = cf.ColorSpec(matrix, color[1])
    with publisher(**options) as pub, cf.subscribe("cam") as sub:
        with pub.acquire() as slot:
            fill(slot)
            pub.publish(slot)
        with sub.next(timeout=10) as frame:
            yield frame, pub


def noise(slot):
    """Fill a slot with pixels of which no two neighbours are alike."""
    for plane in slot.planes:
        values = np.random.default_rng(5).integers(0, 1024, plane.shape)
        plane[...] = values << 6 if plane.dtype == np.uint16 else values >> 2


def flat(slot, value=128):
    for plane in slot.planes:
        plane[...] = value << 8 if plane.dtype == np.uint16 else value


def encoded(drawn, quality=100):
    return JpegEncoder().encode(drawn, quality)


def decoded(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def size_of(drawn):
    plane = drawn.y if isinstance(drawn, Planes) else drawn
    return (plane.shape[1], plane.shape[0])


def whole(frame):
    return (0, 0, frame.width, frame.height)


# --- Colours --------------------------------------------------------------------------------------


def paint(slot, format_, color):
    """Fill a slot with flat patches of every colour."""
    rgb = PALETTE.repeat(PATCH, 0).repeat(PATCH, 1)
    if format_ == "gray8":
        slot.y[...] = rgb[..., 0] // 2 + rgb[..., 1] // 4 + rgb[..., 2] // 8
    else:
        convert.from_rgb(rgb, slot.planes, format_, cf.ColorSpec(*color))


def insides(pixels):
    """Return of each of 8 x 8 patches a pixel of a block that no other patch reaches into."""
    step = len(pixels) // 8
    return pixels[step // 4 :: step, step // 4 :: step].astype(int)


@pytest.mark.parametrize("format_", FORMATS)
def test_colors_are_those_of_the_frame(any_scaler, format_):
    for color in [("rgb", "full")] if format_ in {"rgb24", "rgba32"} else COLORS:
        fill = functools.partial(paint, format_=format_, color=color)
        with frame_of(fill, SIDE, SIDE, format_, color) as (frame, _):
            wanted = insides(frame.rgb())
            for side, quality in itertools.product((SIDE, SIDE // 2), (80, 100)):
                drawn = any_scaler.frame(frame, whole(frame), (side, side))
                found = insides(decoded(encoded(drawn, quality)))
                assert abs(found - wanted).max() <= 3, (color, side, quality)


@pytest.mark.parametrize("made", ["rgb", "gray"])
def test_colors_of_what_process_made_are_kept(any_scaler, made):
    pixels = PALETTE.repeat(PATCH, 0).repeat(PATCH, 1)
    pixels = pixels if made == "rgb" else pixels[..., 1]
    wanted = insides(pixels if made == "rgb" else np.dstack([pixels] * 3))
    for side in (SIDE, SIDE // 2):
        found = insides(decoded(encoded(any_scaler.pixels(pixels, (side, side)))))
        assert abs(found - wanted).max() <= 3


def test_dark_and_bright_stay_what_they_are(any_scaler):
    for value, shown in [(16, 0), (128, 130), (235, 255), (0, 0), (255, 255)]:

        def fill(slot, value=value):
            slot.y[...], slot.uv[...] = value, 128

        for color in (("bt601", "limited"), ("bt709", "limited")):
            with frame_of(fill, 64, 64, color=color) as (frame, _):
                for size in ((64, 64), (32, 32)):
                    found = decoded(encoded(any_scaler.frame(frame, whole(frame), size)))
                    assert abs(found - shown).max() <= 3


# --- Cuts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["nv12", "gray8", "rgb24"])
def test_a_cut_shows_exactly_its_pixels(scaler, format_):
    for width, height in [(8, 6), (7, 5), (1, 1), (2, 2), (2, 1), (1, 5)]:
        check_cuts(scaler, format_, width, height)


def check_cuts(scaler, format_, width, height):
    with frame_of(noise, width, height, format_) as (frame, _):
        planes, rgb = frame.planes, frame.rgb()
        for x, y in np.ndindex(width, height):
            for w, h in np.ndindex(width + 1, height + 1):
                roi = aligned((x, y, w + 1, h + 1), width, height)
                left, top, columns, rows = roi
                drawn = scaler.frame(frame, roi, (columns, rows))
                if isinstance(drawn, Planes):
                    inside = np.s_[top : top + rows, left : left + columns]
                    half = np.s_[
                        top // 2 : (top + rows + 1) // 2, left // 2 : (left + columns + 1) // 2
                    ]
                    assert np.array_equal(drawn.y, planes[0][inside])
                    assert np.array_equal(np.dstack(drawn[1:]), planes[1][half])
                else:
                    assert np.array_equal(drawn, rgb[top : top + rows, left : left + columns])


def test_a_cut_of_a_checkerboard_shows_its_squares(any_scaler):
    for color in COLORS:
        check_squares(any_scaler, color)


def check_squares(scaler, color):
    def fill(slot):
        y, x = np.mgrid[:96, :128]
        slot.y[...] = 50 + 150 * ((x // 16 + y // 16) % 2)
        slot.uv[...] = 128

    with frame_of(fill, 128, 96, color=color) as (frame, _):
        rgb = frame.rgb().astype(int)
        for x, y in itertools.product((16, 31, 32, 45), repeat=2):
            roi = aligned((x, y, 33, 31), 128, 96)
            found = decoded(encoded(scaler.frame(frame, roi, roi[2:])))
            shown = rgb[roi[1] : roi[1] + roi[3], roi[0] : roi[0] + roi[2]]
            assert abs(found - shown).max() <= 12
            assert abs(found - shown).mean() <= 2


SIDES = st.integers(1, 70)
ROIS = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 99), st.integers(1, 99))


@given(roi=ROIS, width=SIDES, height=SIDES)
def test_what_is_shown_lies_in_the_frame_and_has_all_that_was_asked_for(roi, width, height):
    x, y, w, h = aligned(roi, width, height)
    assert x % 2 == y % 2 == 0
    assert 0 <= x < x + w <= width
    assert 0 <= y < y + h <= height
    assert x + w == width or w % 2 == 0
    assert y + h == height or h % 2 == 0
    if roi[0] < width and roi[1] < height:
        assert x <= roi[0]
        assert y <= roi[1]
        assert x + w >= min(roi[0] + roi[2], width)
        assert y + h >= min(roi[1] + roi[3], height)
        assert w <= roi[2] + 2
        assert h <= roi[3] + 2
    assert aligned((x, y, w, h), width, height) == (x, y, w, h)


def test_without_a_wish_all_is_shown():
    assert aligned(None, 7, 5) == (0, 0, 7, 5)


# --- Sizes ----------------------------------------------------------------------------------------


@given(
    source=st.tuples(st.integers(1, 9000), st.integers(1, 9000)),
    room=st.none() | st.tuples(st.integers(1, 9000), st.integers(1, 9000)),
    scale=st.floats(0.05, 1.0),
)
def test_a_picture_fits_and_is_never_larger_than_its_source(source, room, scale):
    size = fitted(source, room, scale)
    for side, most, space in zip(size, source, room or source, strict=True):
        assert 1 <= side <= most
        assert side <= max(2, space)
        assert side in {most, 1} or side % 2 == 0
    if scale == 1.0 and (room is None or (room[0] >= source[0] and room[1] >= source[1])):
        assert size == source
    factor = size[0] / source[0]
    if min(size) > 60:
        assert abs(size[1] / source[1] / factor - 1) < 0.05


def test_pictures_fill_their_room():
    assert fitted((1920, 1080), (960, 960), 1.0) == (960, 540)
    assert fitted((1920, 1080), (640, 360), 1.0) == (640, 360)
    assert fitted((1920, 1080), (640, 360), 0.5) == (320, 180)
    assert fitted((1920, 1080), (9999, 9999), 0.5) == (960, 540)
    assert fitted((640, 480), (100, 100), 1.0) == (100, 74)


SHAPES = [
    (64, 48), (1, 1), (2, 2), (3, 1), (1, 3), (2, 1), (1, 1000), (2, 999), (1000, 1), (4096, 2),
    (33, 17), (34, 17), (33, 18),
]  # fmt: skip


@pytest.mark.parametrize("format_", FORMATS)
def test_frames_of_any_shape_become_pictures(any_scaler, format_):
    for width, height in SHAPES:
        with frame_of(flat, width, height, format_) as (frame, _):
            wanted = frame.rgb()[0, 0].astype(int)
            for scale in (1.0, 0.5, 0.35, 0.1):
                size = fitted((width, height), None, scale)
                drawn = any_scaler.frame(frame, whole(frame), size)
                assert size_of(drawn) == size
                pixels = decoded(encoded(drawn, 90))
                assert pixels.shape == (size[1], size[0], 3)
                assert abs(pixels - wanted).max() <= 3


def test_pictures_of_any_shape_are_made_smaller(any_scaler):
    for width, height in SHAPES:
        for pixels in (
            np.full((height, width), 90, np.uint8),
            np.full((height, width, 3), (200, 90, 40), np.uint8),
        ):
            for scale in (1.0, 0.5, 0.1):
                size = fitted((width, height), None, scale)
                drawn = any_scaler.pixels(pixels, size)
                assert size_of(drawn) == size
                found = decoded(encoded(drawn))
                assert found.shape == (size[1], size[0], 3)
                assert abs(found - pixels[0, 0]).max() <= 3


def test_cut_out_pictures_are_made_smaller(any_scaler):
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[10:50, 20:60] = (10, 200, 90)
    found = decoded(encoded(any_scaler.pixels(pixels[10:50, 20:60], (20, 20))))
    assert abs(found - (10, 200, 90)).max() <= 3


def test_nothing_behind_an_odd_edge_is_seen():
    for width, height in itertools.product((1, 2, 15, 16, 17, 33), repeat=2):
        planes = []
        for side in ((height, width), *[(-(-height // 2), -(-width // 2))] * 2):
            around = np.full((side[0] + 3, side[1] + 3), 255, np.uint8)
            around[: side[0], : side[1]] = 128
            planes.append(around[: side[0], : side[1]])
        assert abs(decoded(encoded(Planes(*planes), 90)) - 128).max() <= 1


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24"])
def test_padding_between_rows_is_not_seen(any_scaler, format_):
    found = []
    for pitch in (None, 512, 800):

        def fill(slot, pitch=pitch):
            noise(slot)
            if pitch:
                for plane in slot.planes:
                    row = plane[0].nbytes
                    shape, strides = (len(plane) - 1, pitch - row), (pitch, 1)
                    first = plane.view(np.uint8).reshape(len(plane), -1)[0]
                    padding = np.lib.stride_tricks.as_strided(first, (len(plane), pitch), strides)
                    padding[:-1, row:] = np.full(shape, 255)

        with frame_of(fill, 66, 50, format_, pitch=pitch) as (frame, _):
            assert pitch is None or set(frame.pitches) == {pitch}
            sizes = ((66, 50), (32, 24))
            drawn = [any_scaler.frame(frame, whole(frame), size) for size in sizes]
            drawn.append(any_scaler.frame(frame, (10, 20, 12, 14), (12, 14)))
            found.append([encoded(each) for each in drawn])
    assert found[0] == found[1] == found[2]


def test_a_smaller_picture_is_the_mean_of_what_it_covers():
    pixels = np.indices((40, 40)).sum(0).astype(np.uint8) % 2 * 200
    assert abs(resized(pixels, (20, 20)).astype(int) - 100).max() <= 2
    assert resized(pixels, (40, 40)) is pixels
    assert resized(np.dstack([pixels] * 3), (2, 30)).shape == (30, 2, 3)


# --- The frame's memory ---------------------------------------------------------------------------


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("format_", ["nv12", "p010"])
def test_the_scaler_reads_the_frame_where_it_lies(monkeypatch, format_):
    sources, make = [], picture._video_frame
    monkeypatch.setattr(
        picture, "_video_frame", lambda *args: sources.append(make(*args)) or sources[-1]
    )
    with frame_of(noise, 64, 48, format_) as (frame, _):
        before = [plane.copy() for plane in frame.planes]
        Scaler().frame(frame, (0, 0, 64, 48), (32, 24))
        (source,) = sources
        assert [plane.buffer_ptr for plane in source.planes] == [address(p) for p in frame.planes]
        assert not any(plane.flags.writeable for plane in frame.planes)
        assert all(map(np.array_equal, before, frame.planes))
        del source
        sources.clear()


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_drawn_does_not_keep_the_frame_s_slot(scaler, format_):
    with frame_of(noise, 64, 48, format_) as (frame, pub):
        drawn = [
            scaler.frame(frame, roi, size)
            for roi, size in [
                ((0, 0, 64, 48), (64, 48)),
                ((0, 0, 64, 48), (32, 24)),
                ((2, 4, 20, 10), (20, 10)),
            ]
        ]
        kept = [encoded(each) for each in drawn]
        assert pub.stats.slots_leased == 1
        frame.release()
        assert pub.stats.slots_leased == 0
        for _ in range(2 * pub.stats.slots):  # other pixels wherever these were
            with pub.acquire() as slot:
                flat(slot)
                pub.publish(slot)
        assert [encoded(each) for each in drawn] == kept


# --- Lossless -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", FORMATS)
def test_png_has_the_pixels_of_rgb(format_):
    with frame_of(noise, 33, 21, format_) as (frame, _):
        rgb = frame.rgb()
        assert np.array_equal(decoded(png(rgb_pixels(frame, None, None))), rgb)
        assert np.array_equal(decoded(png(rgb_pixels(frame, (3, 5, 7, 9), None))), rgb[5:14, 3:10])
        assert rgb_pixels(frame, whole(frame), (11, 7)).shape == (7, 11, 3)


def test_gray_stays_gray():
    gray = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for data in (encoded(gray), png(gray)):
        with Image.open(io.BytesIO(data)) as image:
            assert image.mode == "L"
            assert abs(np.asarray(image).astype(int) - gray).max() <= 2


# --- Without PyAV ---------------------------------------------------------------------------------


def test_a_scaler_that_cannot_be_imported_is_done_without(monkeypatch):
    for name in ("av", "av.video.reformatter"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            assert Scaler().name == "NumPy"
    monkeypatch.setattr("av.VideoFrame", object)  # an old one, that takes no arrays
    assert Scaler().name == "NumPy"


# --- On a GPU, as far as that can be seen without one ---------------------------------------------


class Gpu:
    """Stands in for the encoder of a GPU: has the kernel painted on the CPU."""

    made = ()

    def __init__(self, ordinal):
        type(self).made += (self,)
        self.ordinal, self.closed, self.failing = ordinal, 0, False

    def encode(self, made, quality):
        if self.failing:
            raise cf.DeviceError("the GPU fell off the bus")
        painted = Planes(*run_kernel(made.planes, made.format, made.color, made.crop, made.size))
        return JpegEncoder().encode(painted, quality)

    def close(self):
        self.closed += 1


@pytest.fixture
def gpu(monkeypatch):
    """Let frames in host memory be taken for frames on a GPU."""
    needs_compiler()
    monkeypatch.setattr(Gpu, "made", ())
    monkeypatch.setattr(encoders, "PictureEncoder", Gpu)
    monkeypatch.setattr(cf.Frame, "device", property(lambda _: "cuda:3"))
    monkeypatch.setattr(encoders, "device_of", lambda _: "cuda:3")
    return Gpu


def gray_frame():
    return frame_of(flat, 64, 48)


def test_frames_of_a_gpu_are_encoded_there(gpu):
    encoder = JpegEncoder()
    scaler = Scaler(encoder.takes)
    with gray_frame() as (frame, _):
        for _ in range(3):
            drawn = scaler.frame(frame, whole(frame), (32, 24))
            assert isinstance(drawn, Picture)
            assert not drawn.is_queued
            assert abs(decoded(encoder.encode(drawn, 90)) - 128).max() <= 1
    (made,) = gpu.made
    assert made.ordinal == 3
    assert (encoder.name, scaler.name) == ("JPEG (nvJPEG)", "the GPU")
    encoder.rest()
    encoder.rest()
    assert made.closed == 1
    assert encoder.takes("cuda:3")
    assert len(gpu.made) == 2


def test_host_memory_is_encoded_by_the_cpu(gpu):
    encoder = JpegEncoder()
    assert not encoder.takes("cpu")
    assert gpu.made == ()
    scaler = Scaler(encoder.takes)
    assert isinstance(scaler.pixels(np.zeros((4, 4, 3), np.uint8), (4, 4)), np.ndarray)
    assert (encoder.name, scaler.name) == ("JPEG (libjpeg-turbo)", "swscale")


def test_without_nvjpeg_it_is_told_why(gpu, monkeypatch):
    asked = []

    def missing(ordinal):
        asked.append(ordinal)
        raise cf.UnsupportedError("nvJPEG is not installed: install it")

    monkeypatch.setattr(encoders, "PictureEncoder", missing)
    encoder = JpegEncoder()
    scaler = Scaler(encoder.takes)
    with gray_frame() as (frame, _):
        for _ in range(3):
            drawn = scaler.frame(frame, whole(frame), (64, 48))
            assert not isinstance(drawn, Picture)
            encoder.encode(drawn, 90)
    assert asked == [3]
    assert encoder.name == "JPEG (libjpeg-turbo; nvJPEG is not installed: install it)"
    assert scaler.name != "the GPU"


def test_a_gpu_that_fails_is_given_up(gpu):
    encoder = JpegEncoder()
    scaler = Scaler(encoder.takes)
    with gray_frame() as (frame, _):
        drawn = scaler.frame(frame, whole(frame), (64, 48))
        gpu.made[0].failing = True
        with pytest.raises(cf.DeviceError, match="bus"):
            encoder.encode(drawn, 90)
        assert gpu.made[0].closed == 1
        with pytest.raises(cf.UnsupportedError, match="bus"):
            encoder.encode(drawn, 90)
        assert not isinstance(scaler.frame(frame, whole(frame), (64, 48)), Picture)
    assert not encoder.takes("cuda:3")
    encoder.rest()
    assert gpu.made[0].closed == 1


def test_a_view_goes_on_when_the_gpu_fails(gpu, monkeypatch):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        for turn in range(1, 5):
            with pub.acquire() as slot:
                flat(slot, 100 + turn)
                pub.publish(slot)
            if turn == 3:
                gpu.made[0].failing = True
            shown = page.wait_for(turn)
            assert shown.mime == "image/jpeg"
        assert page.camera["error"] is None
        page.wait_for(4, still=True)  # at the latest with the next state
        encoder = page.viewer.do(lambda: None, wait=10) and page.viewer._encoder.name
        assert encoder == "JPEG (libjpeg-turbo; the GPU fell off the bus)"


def test_a_view_that_rests_gives_the_gpu_back(gpu):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        with pub.acquire() as slot:
            flat(slot)
            pub.publish(slot)
        page.wait_for(1)
        assert page.status["encoder"] == "JPEG (nvJPEG), scaled by the GPU"
        assert [made.closed for made in gpu.made] == [0]
    assert [made.closed for made in gpu.made] == [1]


def test_what_process_made_is_told_where_it_is():
    pixels = np.zeros((4, 6, 3), np.uint8)
    assert shown_pixels(pixels) is pixels
    assert device_of(pixels) == "cpu"
    assert on_host(pixels) is pixels
    assert np.array_equal(shown_pixels(pixels[:, ::2]), as_pixels(pixels[:, ::2]))
