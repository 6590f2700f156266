"""Real pipelines that end in ``cudaipcsink``, read on the GPU.

GStreamer comes as a folder of programs and libraries, packed: ``.gst/gstreamer-cuda.tar.xz`` in the
checkout, or the file that ``$CUFRAMES_GST`` names. Without it the tests are skipped.
"""

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._runtime.session import was_farewell
from tests.helpers.children import ROOT, child
from tests.helpers.frames import until
from tests.helpers.gpu import Latch
from tests.helpers.leaks import open_fds

pytestmark = pytest.mark.foreign_fds("the driver opens what it needs when it first opens a handle")

MODES = ["mmap", "legacy"]
WIDTH, HEIGHT = 1920, 1080
PACKED = Path(os.environ.get("CUFRAMES_GST", ROOT / ".gst" / "gstreamer-cuda.tar.xz"))

# Black and white in turn: a frame is one value, so one that was written meanwhile shows.
SOURCE = (
    "videotestsrc pattern={pattern} num-buffers={count} ! "
    "video/x-raw,format={format},width={width},height={height},framerate={fps}/1"
)


@pytest.fixture(scope="module")
def gst(tmp_path_factory):
    """Return how GStreamer's programs are started."""
    if not PACKED.is_file():
        pytest.skip(f"no GStreamer at {PACKED}")
    folder = tmp_path_factory.mktemp("gst")
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    program = folder / "gstreamer" / "gst"
    env = {**os.environ, "GST_STATE": str(folder / "state")}
    tried = subprocess.run(
        [program, "gst-inspect-1.0", "cudaipcsink"],
        capture_output=True,
        check=False,
        env=env,
        text=True,
        timeout=60,
    )
    if tried.returncode:
        pytest.skip(f"GStreamer cannot share GPU memory here: {tried.stdout}{tried.stderr}"[-400:])
    return [str(program), "gst-launch-1.0", "-q", "-e"], env


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "gst.ipc"


def source(pattern="blink", *, count=-1, format_="NV12", width=WIDTH, height=HEIGHT, fps=60):
    return SOURCE.format(
        pattern=pattern, count=count, format=format_, width=width, height=height, fps=fps
    )


@contextlib.contextmanager
def pipeline(gst, path, mode="mmap", *, head=None, tail=""):
    """Run a pipeline; it is ended, at the latest, with the block."""
    launch, env = gst
    words = f"{head or source()} ! cudaupload ! cudaipcsink address={path} ipc-mode={mode} {tail}"
    with subprocess.Popen([*launch, *words.split()], env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def say(text):
    """Tell a figure; shown with ``-rP`` or ``-s``."""
    sys.stderr.write(f"{text}\n")


def subscribe(path, mode="newest", **options):
    return cf.subscribe(f"gst://{path}", mode, timeout=20, **options)


def one_value(frame):
    """Return what all of a frame's luma is, None if it is not all the same."""
    low, high = int(frame.y.min()), int(frame.y.max())
    return low if low == high else None


@pytest.mark.parametrize("mode", MODES)
def test_frames_are_cupy_arrays_on_the_pipeline_s_memory(gst, path, mode):
    with pipeline(gst, path, mode), subscribe(path) as sub:
        info = sub.info
        assert info.memory == f"gst ({mode})"
        assert info.device == cf.devices()[0].uuid
        assert (info.width, info.height, info.format, info.fps) == (WIDTH, HEIGHT, "nv12", 60.0)
        say(f"{mode}: {info.memory_reason}; pitches {info.pitches}")
        values = set()
        for _ in range(20):
            with sub.next(5) as frame:
                assert isinstance(frame.y, cp.ndarray)
                assert (frame.y.shape, frame.uv.shape) == ((1080, 1920), (540, 960, 2))
                assert frame.device == "cuda:0"
                values.add(one_value(frame))
                assert 127 <= int(frame.uv.min()) <= int(frame.uv.max()) <= 128
                assert frame.rgb().shape == (1080, 1920, 3)
        assert values <= {16, 235}
        assert len(values) == 2


@pytest.mark.parametrize("mode", MODES)
def test_sixty_frames_a_second_arrive_young_and_with_few_mappings(gst, path, mode, monkeypatch):
    from cuframes_nb.bridges.gst import gpu as gpu_module

    maps = []
    make = gpu_module._GpuMemory.__init__

    def counted(self, *arguments):
        maps.append(self)
        make(self, *arguments)

    monkeypatch.setattr(gpu_module._GpuMemory, "__init__", counted)
    with pipeline(gst, path, mode), subscribe(path, "strict") as sub:
        for _ in range(30):
            sub.next(5).release()
        begun, cpu, ages = time.monotonic(), time.process_time(), []
        for _ in range(150):
            with sub.next(5) as frame:
                ages.append(frame.age_ns / 1e6)
        seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
        say(
            f"{mode}: {150 / seconds:.1f} frames/s, age p50 {np.median(ages):.2f} ms, p99 "
            f"{np.percentile(ages, 99):.2f} ms, {len(maps)} mappings, {cpu / 150 * 1e6:.0f} us CPU "
            f"a frame; {sub.info.memory_reason}"
        )
        assert 150 / seconds > 55
        assert np.median(ages) < 5
        if "anew" not in sub.info.memory_reason:  # a container that forbids kcmp(2)
            assert len(maps) <= 16
        maps.clear()


@pytest.mark.parametrize("mode", MODES)
def test_a_frame_with_queued_work_is_not_given_back(gst, path, mode):
    # lifetime.md, 1: tested with a kernel that holds the stream.
    stream = cp.cuda.Stream(non_blocking=True)
    with pipeline(gst, path, mode), subscribe(path) as sub:
        with sub.next(5) as frame:  # a kernel's first use loads it, which waits for the whole GPU
            one_value(frame)
        sub.next(5).release()
        frame = sub.next(5)
        latch = Latch(stream)
        with stream:
            low, high = frame.y.min(), frame.y.max()
            frame.release()
        del frame
        gc.collect()
        begun = sub.info.published
        until(lambda: sub.info.published > begun + 30)  # longer than a pool is
        assert sub.stats.leases == 1
        latch.open()
        until(lambda: sub.stats.leases == 0)
        assert int(low) == int(high) in {16, 235}


@pytest.mark.parametrize("mode", MODES)
def test_arrays_hold_frames_and_none_is_torn(gst, path, mode):
    # lifetime.md, 1 and 6
    with pipeline(gst, path, mode), subscribe(path) as sub:
        arrays = [sub.next(5).y for _ in range(6)]
        values = [int(y.min()) for y in arrays]
        begun = sub.info.published
        until(lambda: sub.info.published > begun + 40)
        assert sub.stats.leases == 6
        assert [(int(y.min()), int(y.max())) for y in arrays] == [(v, v) for v in values]
        del arrays
        until(lambda: sub.stats.leases == 0)


@pytest.mark.parametrize("mode", MODES)
def test_caps_change_on_the_way(gst, path, mode):
    head = (
        f"concat name=c {{}} {source('white', count=90)} ! c. "
        f"{source('blink', width=640, height=360)} ! c."
    )
    launch, env = gst
    sink = f"! cudaupload ! cudaipcsink address={path} ipc-mode={mode}"
    words = head.format(sink).split()
    with subprocess.Popen([*launch, *words], env=env) as process:
        try:
            with subscribe(path) as sub:
                old = sub.next(5)
                assert (old.width, old.height) == (WIDTH, HEIGHT)
                until(lambda: sub.info.width == 640)
                with sub.next(5) as frame:
                    assert frame.y.shape == (360, 640)
                    assert one_value(frame) in {16, 235}
                assert sub.stats.epoch == 2
                assert one_value(old) == 235
                del old
        finally:
            process.kill()


@pytest.mark.parametrize("mode", MODES)
def test_a_pipeline_ends_though_a_frame_is_held(gst, path, mode):
    with pipeline(gst, path, mode) as process, subscribe(path, reconnect=False) as sub:
        frame = sub.next(5)
        value = one_value(frame)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        say(f"{mode}: ended after {time.monotonic() - begun:.2f} s")
        if mode == "mmap":
            assert one_value(frame) == value
        else:
            with pytest.raises(cf.PublisherGoneError, match="ipc-mode=mmap"):
                frame.y  # noqa: B018
        with pytest.raises(cf.PublisherGoneError) as caught:
            for _ in itertools.count():
                sub.next(5).release()
        assert was_farewell(caught.value)


def test_a_pipeline_that_is_killed_leaves_mapped_frames_and_comes_back(gst, path):
    # lifetime.md, 3
    with pipeline(gst, path) as process, subscribe(path) as sub:
        frame = sub.next(5)
        value = one_value(frame)
        process.kill()
        process.wait(10)
        until(lambda: sub.info.state == "waiting")
        assert one_value(frame) == value
        path.unlink()
        with pipeline(gst, path):
            until(lambda: sub.stats.connects == 2)
            with sub.next(5) as again:
                assert one_value(again) in {16, 235}
        assert one_value(frame) == value
        del frame


def keep_legacy(link, path):
    """Hold an array over a killed pipeline, and read it: what the driver does then is not said."""
    with subscribe(Path(path)) as sub:
        y = sub.next(5).y
        link.say("holds", value=int(y.min()))
        until(lambda: sub.info.state == "waiting")
        try:
            low, high = int(y.min()), int(y.max())
            link.say("read", text=f"{low}..{high}")
        except Exception as error:  # noqa: BLE001  whatever the driver raises is the answer
            link.say("read", text=repr(error))
        os._exit(0)  # a context that broke breaks what would come now


def test_what_becomes_of_legacy_arrays_when_their_pipeline_is_killed(gst, path):
    with (
        pipeline(gst, path, "legacy") as process,
        child("tests.gpu.test_gst:keep_legacy", str(path)) as reader,
    ):
        value = reader.expect("holds")["value"]
        process.kill()
        say(f"legacy, killed: was {value}, reads {reader.expect('read')['text']}")


@pytest.mark.parametrize(("format_", "shape"), [("P010_10LE", "uint16"), ("RGBA", "uint8")])
def test_other_formats(gst, path, format_, shape):
    head = source("white", format_=format_, width=642, height=362, fps=30)
    with pipeline(gst, path, head=head), subscribe(path) as sub, sub.next(5) as frame:
        assert frame.planes[0].dtype == shape
        rgb = cp.asnumpy(frame.rgb())
        assert rgb.shape == (362, 642, 3)
        assert rgb.min() >= 253


def test_what_is_built_on_subscribers(gst, path, tmp_path):
    with pipeline(gst, path), subscribe(path) as sub:
        assert np.load(cf.snapshot(sub, tmp_path / "one.npy")).shape == (1620, 1920)
        with sub.next(5) as frame:
            assert frame.tensor((640, 640)).shape == (1, 3, 640, 640)
            copy = frame.copy()
        assert one_value(copy) in {16, 235}


def test_nothing_grows(gst, path):
    # lifetime.md, 12
    with pipeline(gst, path, head=source(width=640, height=360)):
        for round_ in range(40):
            with subscribe(path) as sub:
                sub.next(5).release()
            del sub
            if round_ == 9:
                gc.collect()
                fds, free = len(open_fds()), cp.cuda.runtime.memGetInfo()[0]
        gc.collect()
        until(lambda: len(open_fds()) <= fds)
        assert free - cp.cuda.runtime.memGetInfo()[0] < 64 * 2**20
