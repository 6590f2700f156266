"""Pictures of frames on the GPU, for a view: everything but the encoder and the page."""

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._viewer import messages
from cuframes_nb._viewer.answers import histogram_of, pixel_of
from cuframes_nb._viewer.camera import Camera
from cuframes_nb._viewer.images import as_pixels
from cuframes_nb._viewer.picture import Scaler

SIZE = (640, 360)
VIEW = "v" * 16


@pytest.fixture
def rows():
    return np.random.default_rng(3).integers(16, 235, (540, 640), np.uint8)


@pytest.fixture
def frame(rows):
    with cf.Publisher("cam1", width=640, height=360, memory="cuda") as pub:
        pub.write(rows)
        with cf.subscribe("cam1") as sub, sub.next(5) as frame:
            yield frame


def test_a_picture_is_that_of_frame_rgb(frame):
    exact = cp.asnumpy(frame.rgb())
    drawn = Scaler().frame(frame, (0, 0, *SIZE), SIZE)
    assert isinstance(drawn, np.ndarray)
    assert (drawn == exact).all()
    part = Scaler().frame(frame, (100, 40, 200, 100), (200, 100))
    assert (part == exact[40:140, 100:300]).all()
    assert Scaler().frame(frame, (0, 0, *SIZE), (320, 180)).shape == (180, 320, 3)


def test_a_pixel_and_a_histogram_are_told(frame, rows):
    answer = pixel_of(frame, messages.Probe(VIEW, 0, 101, 43, 1))
    assert answer["yuv"] == [rows[43, 101], rows[360 + 21, 100], rows[360 + 21, 101]]
    assert answer["rgb"] == cp.asnumpy(frame.rgb())[43, 101].tolist()
    counts = histogram_of(frame, 0)
    assert counts["y"] == np.bincount(rows[:360:2, ::2].ravel(), minlength=256).tolist()


@pytest.mark.foreign_fds("torch opens the device when it is first used")
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_what_process_returns_may_be_on_the_gpu(library):
    host = np.random.default_rng(4).integers(0, 256, (36, 64, 3), np.uint8)
    device = cp.asarray(host)
    if library == "torch":
        device = pytest.importorskip("torch").from_dlpack(device)
    assert (as_pixels(device) == host).all()
    ramp = cp.linspace(0, 1, 256, dtype=cp.float32).reshape(16, 16)
    assert as_pixels(cf.Heatmap(ramp, "gray", (0, 1))).shape == (16, 16, 3)


def test_a_camera_processes_and_overlays_on_the_gpu():
    def edges(frame):
        y = frame.y.astype(cp.int16)  # as wide as the frame: the picture's size is what is shown
        return cp.abs(cp.diff(y, axis=1, append=y[:, -1:])).astype(cp.uint8)

    def boxes(frame):
        return cp.array([[1, 2, 3, 4]]), cf.Mask(frame.y > 128)

    with cf.Publisher("cam1", width=640, height=360, memory="cuda") as pub:
        camera = Camera("cam1", "cam1", edges, boxes)
        with pub.acquire() as slot:
            slot.y[:] = cp.arange(640, dtype=cp.uint8)
            slot.uv[:] = 128
        frame = camera.take(5)
        shot = camera.draw(frame, Scaler(), (320, 180), 1.0)
        camera.show(frame)
        assert [shape["kind"] for shape in shot.shapes] == ["box", "mask"]
        assert shot.size == (320, 180)
        assert camera.status()["memory"] == "cuda-vmm"
        assert camera.status()["error"] is None
        camera.rest()
        del frame, shot
        assert pub.stats.slots_leased == 0
