"""Films and cameras decoded on the GPU: the CPU's frames bit for bit, in slots on the device."""

import contextlib
import itertools
import logging
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.sources import LiveVideo, Pattern, VideoFile, play, read_stamp, sample_video
from tests.helpers.films import joined, make_film
from tests.helpers.gpu import Latch, memory_in_use

av = pytest.importorskip("av")
cupy = pytest.importorskip("cupy")
pytestmark = [pytest.mark.gpu, pytest.mark.foreign_fds("FFmpeg and the video driver keep some")]

FILM = sample_video()
needs_film = pytest.mark.skipif(FILM is None, reason="Big Buck Bunny is not installed")
AV_FORMATS = {"nv12": "nv12", "p010": "p010le"}


def by_the_cpu(path, format_):
    """Yield luma and chroma of each frame as the CPU decodes them."""
    deep = format_ == "p010"
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            planes = frame.reformat(format=AV_FORMATS[format_]).planes
            rows = [
                np.frombuffer(plane, np.uint16 if deep else np.uint8).reshape(plane.height, -1)
                for plane in planes
            ]
            yield rows[0][:, : frame.width], rows[1][:, : frame.width]


@contextlib.contextmanager
def playing(source, **options):
    """Yield a strict subscriber to a source that is played as fast as it goes, on the GPU."""
    with (
        source.publisher("film", policy="strict-wait", memory="cuda") as publisher,
        cf.subscribe("film", mode="strict", reconnect=False) as subscriber,
    ):
        done, errors = threading.Event(), []

        def run():
            try:
                play(source, publisher, fast=True, stop=done.is_set, **options)
            except Exception as error:  # noqa: BLE001  raised below
                errors.append(error)
            finally:
                publisher.close()

        player = threading.Thread(target=run)
        player.start()
        try:
            yield subscriber
        finally:
            done.set()
            subscriber.close()
            player.join(30)
        if errors:
            raise errors[0]


def frames_of(subscriber):
    """Yield frames until the publisher is gone."""
    with contextlib.suppress(cf.PublisherGoneError):
        while True:
            with subscriber.next(10) as frame:
                yield frame


def assert_the_same(frame, planes):
    assert frame.device == "cuda:0"
    y, uv = planes
    assert np.array_equal(cupy.asnumpy(frame.y), y)
    assert np.array_equal(cupy.asnumpy(frame.uv).reshape(uv.shape), uv)


def assert_bit_exact(path, format_="nv12", decoder="gpu"):
    source = VideoFile(path, decoder=decoder)
    count = 0
    with playing(source) as subscriber:
        for frame, planes in zip(frames_of(subscriber), by_the_cpu(path, format_), strict=True):
            assert (source.decoded_by == "NVDEC of cuda:0") == (decoder == "gpu")
            assert_the_same(frame, planes)
            count += 1
    return count


@needs_film
@pytest.mark.parametrize("decoder", ["gpu", "cpu"])
def test_each_frame_is_the_cpus_bit_for_bit(decoder):
    assert assert_bit_exact(FILM, decoder=decoder) == 132


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("a.mp4", (1920, 1080), {}),  # 1088 lines in the decoder
        ("b.mp4", (178, 146), {"options": {"bf": "3", "preset": "medium"}}),
        ("c.mkv", (256, 256), {"codec": "libx265"}),
        ("d.ts", (320, 240), {"color": {"color_range": 2, "colorspace": 5}}),
    ],
)
def test_films_of_other_kinds_are_bit_exact(tmp_path, name, size, options):
    path = make_film(tmp_path / name, *size, frames=30, **options)
    assert assert_bit_exact(path) == 30


@pytest.mark.parametrize("decoder", ["gpu", "cpu"])
def test_ten_bits_are_bit_exact(tmp_path, decoder):
    path = make_film(
        tmp_path / "a.mkv", 256, 256, frames=20, codec="libx265", pix_fmt="yuv420p10le"
    )
    assert assert_bit_exact(path, "p010", decoder) == 20


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_film_that_was_shot_upright_comes_out_upright(tmp_path, rotation):
    path = make_film(tmp_path / "a.mp4", 320, 192, frames=3, rotation=rotation)
    with playing(VideoFile(path, decoder="cpu")) as subscriber:
        expected = [[cupy.asnumpy(p) for p in f.planes] for f in frames_of(subscriber)]
    with playing(VideoFile(path, decoder="gpu")) as subscriber:
        found = [[cupy.asnumpy(p) for p in f.planes] for f in frames_of(subscriber)]
    assert len(found) == len(expected) == 3
    for ours, theirs in zip(found, expected, strict=True):
        for plane, wanted in zip(ours, theirs, strict=True):
            assert np.array_equal(plane, wanted)


@needs_film
def test_a_film_begins_where_it_shall_and_goes_round():
    source = VideoFile(FILM, decoder="gpu", start=4.0, loop=True)
    wanted = list(by_the_cpu(FILM, "nv12"))[100:]
    with playing(source) as subscriber:
        for frame, planes in itertools.islice(
            zip(frames_of(subscriber), itertools.cycle(wanted), strict=False), 70
        ):
            assert_the_same(frame, planes)


def test_a_change_of_size_is_a_new_epoch(tmp_path):
    parts = [
        make_film(tmp_path / f"{i}.h264", *size, frames=5)
        for i, size in enumerate([(320, 240), (640, 368)])
    ]
    path = joined(tmp_path / "a.h264", parts)
    sizes = []
    with playing(VideoFile(path, decoder="gpu")) as subscriber:
        for frame, planes in zip(frames_of(subscriber), by_the_cpu(path, "nv12"), strict=True):
            assert_the_same(frame, planes)
            sizes.append((frame.width, frame.height))
    assert sizes == [(320, 240)] * 5 + [(640, 368)] * 5


@needs_film
def test_memory_of_a_frame_is_used_again_only_when_it_was_copied():
    """The device does nothing for a while: what is decoded meanwhile spoils no frame."""
    source = VideoFile(FILM, decoder="gpu")
    wanted = by_the_cpu(FILM, "nv12")
    with source.publisher("film", memory="cuda", ring_size=8, policy="strict-wait") as publisher:
        source.prepare(publisher)
        frames = source.frames()
        kept = [next(frames) for _ in range(2)]  # in hand, and not yet copied
        latch = Latch(cupy.cuda.Stream.null)
        opener = threading.Timer(0.5, latch.open)
        opener.start()
        with cf.subscribe("film", mode="strict") as subscriber:
            for _, picture in itertools.chain(kept, itertools.islice(frames, 4)):
                with publisher.acquire() as slot:
                    source.write(slot, picture)
            del picture, kept
            for planes in itertools.islice(wanted, 6):
                with subscriber.next(10) as frame:
                    assert_the_same(frame, planes)
        opener.join()
        frames.close()
        wanted.close()


@needs_film
def test_a_frame_is_copied_behind_the_stream_it_is_published_on():
    source = VideoFile(FILM, decoder="gpu")
    wanted = by_the_cpu(FILM, "nv12")
    stream = cupy.cuda.Stream(non_blocking=True)
    with source.publisher("film", memory="cuda") as publisher, cf.subscribe("film") as subscriber:
        source.prepare(publisher)
        with contextlib.closing(source.frames()) as frames, contextlib.closing(wanted):
            for (_, picture), planes in itertools.islice(zip(frames, wanted, strict=False), 8):
                with stream, publisher.acquire() as slot:
                    source.write(slot, picture)
                with subscriber.next(10) as frame:
                    assert_the_same(frame, planes)


@needs_film
def test_memory_of_the_gpu_is_flat():
    def play_once(count):
        with playing(VideoFile(FILM, decoder="gpu", loop=True)) as subscriber:
            for _ in itertools.islice(frames_of(subscriber), count):
                pass

    play_once(20)
    before = memory_in_use()
    for _ in range(4):
        play_once(150)
    assert memory_in_use() - before < 64 << 20


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_hundred_thousand_frames_leave_nothing(tmp_path):
    film = make_film(tmp_path / "film.mp4", 320, 240, frames=400)
    open_files, threads, used = [], [], []
    with playing(VideoFile(film, decoder="gpu", loop=True)) as subscriber:
        for number, _ in enumerate(itertools.islice(frames_of(subscriber), 100_000)):
            if number > 5_000 and number % 1_000 == 500:
                open_files.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))
                threads.append(threading.active_count())
                used.append(memory_in_use())
    # Mostly the same; each time the film begins again there are two decoders for a moment.
    for found, growth in ((open_files, 0), (threads, 0), (used, 4 << 20)):
        assert abs(np.median(found[-20:]) - np.median(found[:20])) <= growth, found
        assert max(found[-20:]) <= max(found[:-20]) + growth, found
    print(  # noqa: T201  what `pytest -rP` shows
        f"{max(open_files)} descriptors, {max(threads)} threads, {max(used) >> 20} MiB at most"
    )


# --- What a GPU does not decode -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"pix_fmt": "yuv444p"}, "yuv444p is no format of a slot"),
        ({"codec": "ffv1"}, "FFmpeg"),
        ({"pix_fmt": "yuv420p10le"}, "FFmpeg does not decode it by NVDEC"),
    ],
)
def test_what_nvdec_cannot_do_is_decoded_by_the_cpu_and_said(tmp_path, caplog, options, why):
    path = make_film(tmp_path / "a.mkv", 256, 192, frames=3, **options)
    caplog.set_level(logging.INFO, "cuframes_nb.sources")
    source = VideoFile(path)
    with playing(source) as subscriber:
        assert len(list(frames_of(subscriber))) == 3
    assert source.decoded_by == "the CPU"
    assert why in caplog.text
    with pytest.raises(UnsupportedError, match=why), playing(VideoFile(path, decoder="gpu")):
        pass


@needs_film
def test_a_size_and_host_memory_are_the_cpus(caplog):
    caplog.set_level(logging.INFO, "cuframes_nb.sources")
    source = VideoFile(FILM, size=(320, 180))
    with playing(source) as subscriber, subscriber.next(10) as frame:
        assert (frame.width, frame.height) == (320, 180)
    assert "a size is asked for" in caplog.text
    source = VideoFile(FILM)
    with source.publisher("film", memory="host") as publisher:
        assert publisher.device == "cpu"
        source.prepare(publisher)
        assert source.decoded_by == "the CPU"
    source = VideoFile(FILM, decoder="gpu")
    with (
        source.publisher("film", memory="host") as publisher,
        pytest.raises(UnsupportedError, match="host memory"),
    ):
        source.prepare(publisher)
    with pytest.raises(InvalidArgumentError, match="auto, gpu, cpu"):
        VideoFile(FILM, decoder="nvdec")


# --- Cameras --------------------------------------------------------------------------------------


@pytest.fixture
def sender():
    """Send a pattern as MPEG-TS over UDP, in real time; yield the camera's URL."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stop = threading.Event()
    thread = threading.Thread(target=_send, args=(port, stop))
    thread.start()
    yield f"udp://127.0.0.1:{port}"
    stop.set()
    thread.join(10)


def _send(port, stop):
    pattern = Pattern(320, 192, fps=25)
    options = {"preset": "ultrafast", "tune": "zerolatency", "g": "10", "crf": "16"}
    with (
        av.open(f"udp://127.0.0.1:{port}?pkt_size=1316", "w", format="mpegts") as container,
        cf.Publisher("pattern", width=320, height=192, memory="host") as publisher,
        cf.subscribe("pattern") as subscriber,
    ):
        stream = container.add_stream("libx264", rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 320, 192, "yuv420p"
        for number in itertools.count():
            if stop.wait(0.04):
                break
            with publisher.acquire() as slot:
                pattern.write(slot, number)
            with subscriber.next(5) as frame:
                picture = av.VideoFrame.from_ndarray(frame.array, format="nv12")
                container.mux(stream.encode(picture.reformat(format="yuv420p")))


def test_a_camera_is_decoded_on_the_gpu(sender):
    with LiveVideo(sender, decoder="gpu") as source:
        with playing(source) as subscriber:
            numbers = []
            deadline = time.monotonic() + 30
            while source.decoded_by == "the CPU" and time.monotonic() < deadline:
                subscriber.next(10).release()
            for _ in range(60):
                with subscriber.next(10) as frame:
                    assert frame.device == "cuda:0"
                    numbers.append(read_stamp(frame.y))
        assert source.decoded_by == "NVDEC of cuda:0"
        assert source.failures == 0
    assert np.all(np.diff(numbers) >= 1)
    assert numbers[-1] - numbers[0] >= 59


def test_a_camera_whose_video_the_gpu_cannot_decode_is_the_cpus(sender, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "cuframes_nb.sources")
    monkeypatch.setattr("cuframes_nb.sources._nvdec._GIVES", {})
    with LiveVideo(sender) as source, playing(source) as subscriber:
        for _ in range(10):
            subscriber.next(10).release()
        assert source.decoded_by == "the CPU"
    assert "not decoded on the GPU" in caplog.text
    with (
        LiveVideo(sender, decoder="gpu") as source,
        pytest.raises(UnsupportedError, match="no format of a slot"),
        playing(source) as subscriber,
    ):
        list(frames_of(subscriber))
