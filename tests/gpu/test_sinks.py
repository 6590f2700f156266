"""Films and pictures of frames on the GPU."""

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers import frames

av = pytest.importorskip("av")


@pytest.fixture
def rows():
    return np.random.default_rng(3).integers(16, 235, (540, 640), np.uint8)


@pytest.fixture
def pub():
    with cf.Publisher("cam1", width=640, height=360, memory="cuda") as publisher:
        yield publisher
        frames.until(lambda: publisher.stats.slots_leased == 0)


@pytest.mark.parametrize("format_", ["nv12", "p010", "rgb24"])
def test_ffv1_keeps_every_value(tmp_path, format_):
    path = tmp_path / "a.mkv"
    with cf.Publisher("cam1", width=640, height=360, memory="cuda", format=format_) as pub:
        sent = []
        with cf.Recording("cam1", path, codec="ffv1") as recording:
            for count in range(1, 4):
                with pub.acquire() as slot:
                    for plane in slot.planes:
                        values = cp.random.randint(0, 256, plane.shape).astype(plane.dtype)
                        plane[...] = values << (8 * (plane.itemsize - 1))
                    sent.append(slot.planes[0].get())
                frames.until(lambda count=count: recording.info.frames == count)
        frames.until(lambda: pub.stats.slots_leased == 0)
    with av.open(str(path)) as container:
        for frame, luma in zip(container.decode(video=0), sent, strict=True):
            item = luma.itemsize
            wide = 4 if format_ == "rgb24" else 1
            plane = np.frombuffer(frame.planes[0], f"<u{item}").reshape(360, -1)
            got = plane[:, : 640 * wide].reshape(360, 640, *((4,) if wide > 1 else ()))
            want = luma >> 6 if item == 2 else luma
            assert np.array_equal(got[..., 2::-1] if wide > 1 else got, want)


def test_auto_encodes_on_the_gpu_or_says_by_what_it_did(tmp_path, pub, rows):
    with cf.Recording("cam1", tmp_path / "a.mp4", frames=3) as recording:
        for count in range(1, 4):
            pub.write(rows)
            frames.until(lambda count=count: recording.info.frames == count)
        info = recording.stop()
    assert info.encoder in {"h264_nvenc", "libx264"}
    with av.open(str(tmp_path / "a.mp4")) as container:
        assert len(list(container.decode(video=0))) == 3


def test_snapshots(tmp_path, pub, rows):
    pub.write(rows)
    assert (np.load(cf.snapshot("cam1", tmp_path / "a.npy")) == rows).all()
    assert cf.snapshot("cam1", tmp_path / "a.nv12").read_bytes() == rows.tobytes()
    with cf.subscribe("cam1") as sub, sub.next(5) as frame:
        exact = cp.asnumpy(frame.rgb())
    image = pytest.importorskip("PIL.Image").open(cf.snapshot("cam1", tmp_path / "a.png"))
    assert (np.asarray(image) == exact).all()
