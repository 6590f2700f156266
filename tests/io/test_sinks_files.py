"""Snapshots: exact, whole or not there at all."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.sinks import jpeg, png, write_whole

NOISE = np.random.default_rng(12)


@pytest.fixture
def format_():
    return "nv12"


every_format = pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])


@pytest.fixture
def pub(format_):
    with cf.Publisher("cam", width=66, height=50, format=format_, memory="host") as publisher:
        with publisher.acquire() as slot:
            for plane in slot.planes:
                plane[...] = NOISE.integers(0, 256, plane.shape)
        yield publisher
        assert publisher.stats.slots_leased == 0


def png_rows(data):
    """Decode a PNG of this package's with nothing but the standard library."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, bits, kind = struct.unpack(">IIBB", data[16:26])
    assert bits == 8
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    lines = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8)
    lines = lines.reshape(height, -1)
    assert (lines[:, 0] == 2).all()
    components = {0: 1, 2: 3, 6: 4}[kind]
    return np.cumsum(lines[:, 1:], 0, dtype=np.uint8).reshape(height, width, components)


@every_format
def test_png_is_frame_rgb(pub, tmp_path):
    path = cf.snapshot("cam", tmp_path / "a.png")
    assert path == tmp_path / "a.png"
    with cf.subscribe("cam") as sub, sub.next(5) as frame:
        assert np.array_equal(png_rows(path.read_bytes()), frame.rgb())
        image = pytest.importorskip("PIL.Image").open(path)
        assert np.array_equal(np.asarray(image), frame.rgb())


@every_format
def test_npy_is_frame_array(pub, tmp_path):
    with cf.subscribe("cam") as sub, sub.next(5) as frame:
        assert cf.snapshot(frame, tmp_path / "a.npy") == tmp_path / "a.npy"
        assert not frame.released
        assert np.array_equal(np.load(tmp_path / "a.npy"), frame.array)


@every_format
def test_raw_planes_have_no_padding(pub, tmp_path, format_):
    if not format_.startswith(("nv", "p0", "gray")):
        with pytest.raises(cf.InvalidArgumentError, match="no YUV planes"):
            cf.snapshot("cam", tmp_path / "a.yuv")
        return
    cf.snapshot("cam", tmp_path / "a.yuv")
    with cf.subscribe("cam") as sub, sub.next(5) as frame:
        planes = b"".join(plane.tobytes() for plane in frame.planes)
    assert (tmp_path / "a.yuv").read_bytes() == planes
    if format_ == "nv12":
        assert cf.snapshot("cam", tmp_path / "a.nv12").read_bytes() == planes
    else:
        with pytest.raises(cf.InvalidArgumentError, match="no NV12"):
            cf.snapshot("cam", tmp_path / "a.nv12")


def test_jpeg_is_close(pub, tmp_path):
    image = pytest.importorskip("PIL.Image")
    with pub.acquire() as slot:
        slot.y[:], slot.uv[:] = 90, 140
    shown = np.asarray(image.open(cf.snapshot("cam", str(tmp_path / "a.JPG"))))
    with cf.subscribe("cam") as sub, sub.next(5) as frame:
        assert shown.shape == (50, 66, 3)
        assert np.abs(shown.astype(int) - frame.rgb()).max() <= 3


def test_jpeg_has_two_libraries_to_choose_from(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    rgb = np.full((20, 30, 3), (200, 100, 50), np.uint8)
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    shown = np.asarray(image.open(io.BytesIO(jpeg(rgb))))
    assert np.abs(shown.astype(int) - rgb).max() <= 3
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(cf.UnsupportedError, match="pip install pillow"):
        jpeg(rgb)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (5, 7, 4), (1, 1, 3)])
def test_png_of_every_kind(shape):
    pixels = NOISE.integers(0, 256, shape, np.uint8)
    assert np.array_equal(png_rows(png(pixels)).reshape(shape), pixels)
    assert png(np.flip(pixels, 1)) == png(np.flip(pixels, 1).copy())


def test_a_subscriber_stays_its_owners(pub, tmp_path):
    with cf.subscribe("cam") as sub:
        for _ in range(2):  # the newest, seen before or not
            cf.snapshot(sub, tmp_path / "a.png")
        assert not sub.closed
        assert sub.stats.leases == 0


def test_what_cannot_be_is_refused_and_leaves_nothing(pub, tmp_path):
    for path, words in [
        (tmp_path / "a.gif", r"must end in one of .png, .jpg"),
        (tmp_path / "a", "must end in one of"),
        (None, "named by a path"),
    ]:
        with pytest.raises(cf.InvalidArgumentError, match=words):
            cf.snapshot("cam", path)
    with pytest.raises(cf.InvalidArgumentError, match="a stream is named by"):
        cf.snapshot(7, tmp_path / "a.png")
    with pytest.raises(cf.StreamNotFoundError):
        cf.snapshot("nobody", tmp_path / "a.png", timeout=0)
    with pytest.raises(FileNotFoundError) as caught:
        cf.snapshot("cam", tmp_path / "none" / "a.png")
    assert caught.value.filename == str(tmp_path / "none" / "a.png")
    with (
        cf.Publisher("silent", width=64, height=48, memory="host"),
        pytest.raises(cf.FrameTimeout),
    ):
        cf.snapshot("silent", tmp_path / "a.png", timeout=0.1)
    assert list(tmp_path.iterdir()) == []


def test_an_odd_width_is_no_array(tmp_path):
    with cf.Publisher("odd", width=67, height=51, memory="host") as pub:
        pub.acquire().__exit__(None, None, None)
        with pytest.raises(cf.UnsupportedError):
            cf.snapshot("odd", tmp_path / "a.npy")
        assert len(cf.snapshot("odd", tmp_path / "a.nv12").read_bytes()) == 67 * 51 + 34 * 26 * 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.nv12"]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.bin"
    assert write_whole(path, lambda file: file.write(b"old")) == path

    def fail(file):
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught:
        write_whole(path, fail)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    write_whole(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode
