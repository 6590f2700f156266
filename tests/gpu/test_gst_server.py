"""Real pipelines that read streams of ours with ``cudaipcsrc``."""

import contextlib
import subprocess
import sys
import threading
import time

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.bridges import gst as bridge
from cuframes_nb.formats import PixelFormat
from tests.helpers.children import ROOT
from tests.helpers.frames import until
from tests.helpers.pipelines import launch, say


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "our.ipc"


@contextlib.contextmanager
def publishing(pub, draw, fps=60):
    """Call ``draw(slot)`` for frame after frame, on a thread, during a block."""
    stop = threading.Event()

    def run():
        while not stop.wait(1 / fps):
            with pub.acquire() as slot:
                draw(slot)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def numbered(slot):
    """Make every byte of a frame its number."""
    for plane in slot.planes:
        plane.fill(slot.seq & 0xFF)


def to_file(gst, path, file, count=-1):
    """Run a pipeline that writes what it reads into a file."""
    words = (
        f"cudaipcsrc address={path} num-buffers={count} ! cudadownload ! filesink location={file}"
    )
    return launch(gst, words)


def planes_in(raw, format_, width, height):
    """Return the planes of a frame as GStreamer's GPU memory has them: one pitch, rows to spare."""
    format_ = PixelFormat.parse(format_)
    shapes = format_.plane_shapes(width, height)
    # It allocates for an even height, and has the chroma right behind the luma all the same.
    even = format_.plane_shapes(width, height + height % 2 if len(shapes) > 1 else height)
    rows = raw.reshape(sum(shape[0] for shape in even), -1)
    planes = []
    for shape in shapes:
        block, rows = rows[: shape[0]], rows[shape[0] :]
        visible = block[:, : np.prod(shape[1:]) * format_.itemsize]
        planes.append(np.ascontiguousarray(visible).view(format_.dtype).reshape(shape))
    return planes


def values_in(raw, width, height):
    """Return which values the pixels of an NV12 frame have."""
    return set().union(
        *(np.unique(plane).tolist() for plane in planes_in(raw, "nv12", width, height))
    )


@pytest.mark.parametrize(
    ("format_", "width", "height"),
    [
        ("nv12", 642, 362),
        ("nv12", 641, 361),
        ("p010", 642, 362),
        ("rgb24", 641, 361),
        ("rgba32", 641, 361),
    ],
)
def test_a_pipeline_has_the_bytes(gst, tmp_path, path, format_, width, height):  # noqa: PLR0917
    with cf.Publisher("cam", width=width, height=height, format=format_, memory="cuda") as pub:
        with pub.acquire() as slot:
            shapes = [(plane.shape, plane.dtype) for plane in slot.planes]
        random = np.random.default_rng(1)
        wanted = [random.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]
                  for shape, dtype in shapes]  # fmt: skip
        on_gpu = [cp.asarray(plane) for plane in wanted]

        def draw(slot):
            for plane, pixels in zip(slot.planes, on_gpu, strict=True):
                plane[...] = pixels

        file = tmp_path / "raw"
        with publishing(pub, draw), bridge.serve(pub, path) as server:
            with to_file(gst, path, file, 4) as process:
                assert process.wait(30) == 0
            until(lambda: server.clients == 0)
        frames = np.fromfile(file, np.uint8).reshape(4, -1)
        say(f"{format_} {width}x{height}: {frames.shape[1]} bytes a frame")
        for frame in frames:
            for plane, pixels in zip(planes_in(frame, format_, width, height), wanted, strict=True):
                np.testing.assert_array_equal(plane, pixels)
        assert pub.stats.dropped == 0


def test_frames_are_whole_in_several_pipelines_at_once(gst, path, tmp_path):
    # lifetime.md, 1 and 2
    with (
        cf.Publisher("cam", width=1280, height=720, memory="cuda", fps=60) as pub,
        publishing(pub, numbered),
        bridge.serve("cam", path),
    ):
        files = [tmp_path / "one", tmp_path / "two"]
        with to_file(gst, path, files[0], 60) as one, to_file(gst, path, files[1], 60) as two:
            until(lambda: pub.stats.subscribers == 2)
            names = {reader.name for reader in pub.info.subscribers}
            assert (one.wait(30), two.wait(30)) == (0, 0)
        assert pub.stats.dropped == 0
    assert names == {"gst:gst-launch-1.0"}
    for file in files:
        numbers = []
        for frame in np.fromfile(file, np.uint8).reshape(60, -1):
            (number,) = values_in(frame, 1280, 720)  # else it was written meanwhile
            numbers.append(number)
        steps = np.diff(numbers) % 256
        say(f"{file.name}: steps {dict(zip(*np.unique(steps, return_counts=True), strict=True))}")
        assert (steps > 0).all()


def test_pipelines_end_with_the_stream_and_follow_its_size(gst, path, tmp_path):
    file = tmp_path / "raw"
    with bridge_of_cuda(path) as (pub, server), to_file(gst, path, file) as process:
        with publishing(pub, numbered):
            until(lambda: pub.stats.subscribers == 1)
            time.sleep(0.5)
        pub.reconfigure(width=320, height=180)
        with publishing(pub, numbered):
            time.sleep(0.5)
        pub.close()
        begun = time.monotonic()
        assert process.wait(10) == 0
        say(f"ended {time.monotonic() - begun:.2f} s after the stream")
        until(lambda: server.clients == 0)
    raw = np.fromfile(file, np.uint8)
    # Of both sizes at once it is known where the first frame begins and where the last one ends.
    small = 512 * 180 * 3 // 2  # rows are padded to 512 bytes
    large = 1024 * 360 * 3 // 2
    assert len(raw) % small == 0
    assert len(values_in(raw[:large], 640, 360)) == 1
    assert len(values_in(raw[-small:], 320, 180)) == 1


@contextlib.contextmanager
def bridge_of_cuda(path):
    """Publish and serve a stream."""
    with (
        cf.Publisher("cam", width=640, height=360, memory="cuda") as pub,
        bridge.serve(pub, path) as server,
    ):
        yield pub, server


def test_a_killed_pipeline_gives_back_its_frames(gst, path, tmp_path):
    # lifetime.md, 3
    with bridge_of_cuda(path) as (pub, server), publishing(pub, numbered):
        for _ in range(2):
            with to_file(gst, path, tmp_path / "raw") as process:
                until(lambda: pub.stats.subscribers == 1)
                process.kill()
            until(lambda: pub.stats.subscribers == 0)
            until(lambda: server.clients == 0)
        assert pub.stats.slots_leased == 0


def test_our_own_client_reads_our_own_server(path):
    with (
        bridge_of_cuda(path) as (pub, _),
        publishing(pub, numbered),
        cf.subscribe(f"gst://{path}", timeout=10) as sub,
    ):
        for _ in range(30):
            with sub.next(5) as frame:
                planes = [int(plane.min()) for plane in frame.planes]
                assert planes == [int(plane.max()) for plane in frame.planes] == planes[:1] * 2


def test_the_command_line_serves(gst, path, tmp_path):
    words = ["publish", "cam", "pattern", "--memory", "cuda", "--gst", str(path), "--seconds", "20"]
    command = [sys.executable, "-m", "cuframes_nb.cli", *words]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as publisher:
        try:
            until(path.exists)
            file = tmp_path / "raw"
            with to_file(gst, path, file, 5) as process:
                assert process.wait(20) == 0
            for frame in np.fromfile(file, np.uint8).reshape(5, -1):
                assert len(values_in(frame, 1280, 720)) > 5
        finally:
            publisher.terminate()
            _, errors = publisher.communicate(timeout=20)
    assert f"cudaipcsrc address={path}" in errors
    assert not path.exists()
