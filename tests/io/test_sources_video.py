"""Films: subscribers get what the decoder gave, bit for bit, in its colours and in its time."""

import contextlib
import itertools
import threading
import time

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.sources import VideoFile, play, publish_video, sample_video
from cuframes_nb.sources.playing import Pace

av = pytest.importorskip("av")

FILM = sample_video()
needs_film = pytest.mark.skipif(FILM is None, reason="Big Buck Bunny is not installed")

SECOND = 1_000_000_000


def decoded(path):
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(), frame.height


def make_film(path, sizes, *, pix_fmt="yuv420p", codec="libx264", options=None, tags=()):
    """Write a film whose size changes; each size has two frames of noise."""
    random = np.random.default_rng(5)
    for number, (width, height) in enumerate(sizes):
        part = path if len(sizes) == 1 else path.with_suffix(f".{number}.h264")
        with av.open(str(part), "w") as container:
            stream = container.add_stream(codec, rate=25, options=options or {"crf": "20"})
            stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
            for name, value in tags:
                setattr(stream.codec_context, name, value)
            for _ in range(2):
                rgb = random.integers(0, 255, (height, width, 3), np.uint8)
                frame = av.VideoFrame.from_ndarray(rgb).reformat(format=pix_fmt)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
    if len(sizes) > 1:  # H.264 in its own byte stream may change its size at any key frame
        path.write_bytes(
            b"".join(path.with_suffix(f".{i}.h264").read_bytes() for i in range(len(sizes)))
        )
    return path


@pytest.fixture
def played():
    """Return what publishes a source strictly, and yields its frames to whoever iterates."""

    def run(source, **options):
        key = "film"
        with (
            source.publisher(key, policy="strict-wait", memory="host") as publisher,
            cf.subscribe(key, mode="strict") as subscriber,
        ):
            player = threading.Thread(
                target=play, args=(source, publisher), kwargs={"fast": True, **options}
            )
            player.start()
            try:
                while player.is_alive() or subscriber.stats.received < publisher.stats.published:
                    with contextlib.suppress(cf.FrameTimeout), subscriber.next(0.2) as frame:
                        yield frame
            finally:
                player.join(30)

    return run


@needs_film
def test_each_frame_is_the_decoders_bit_for_bit(played):
    film = VideoFile(FILM)
    count = 0
    for (planes, height), frame in zip(decoded(FILM), first(played(film), 132), strict=True):
        half = height // 2
        chroma = planes[height:].reshape(2, half, -1)
        assert np.array_equal(frame.y, planes[:height])
        assert np.array_equal(frame.uv[..., 0], chroma[0])
        assert np.array_equal(frame.uv[..., 1], chroma[1])
        count += 1
        assert frame.seq == count
    assert count == 132


def first(frames, count):
    """Yield so many, and then let the rest of the generator run to its end."""
    yield from itertools.islice(frames, count)
    frames.close()


@needs_film
def test_an_untagged_film_has_the_assumed_colours():
    film = VideoFile(FILM)
    assert (film.width, film.height, film.format, film.fps) == (1280, 720, "nv12", 25.0)
    assert film.color is None
    with film.publisher("film", memory="host") as publisher:
        assert publisher.color.assumed
        assert (publisher.color.matrix, publisher.color.range) == ("bt709", "limited")


@needs_film
def test_a_loop_goes_on_in_time():
    frames = VideoFile(FILM, loop=True).frames()
    times = [at_ns for at_ns, _ in itertools.islice(frames, 140)]
    frames.close()
    steps = set(np.diff(times).tolist())
    assert steps == {SECOND // 25}


@needs_film
def test_real_time_frames_carry_the_time_they_were_due():
    film = VideoFile(FILM)
    started = cf.now_ns()
    pts = []
    with (
        film.publisher("film", memory="host") as publisher,
        cf.subscribe("film", mode="strict") as subscriber,
    ):
        stop = {"stop": lambda: len(pts) == 3}
        player = threading.Thread(target=play, args=(film, publisher), kwargs=stop)
        player.start()
        for _ in range(3):
            with subscriber.next(timeout=20) as frame:
                assert frame.published_ns >= frame.pts_ns >= started
                pts.append(frame.pts_ns)
        player.join(20)
    assert np.diff(pts).tolist() == [SECOND // 25] * 2


def test_tags_of_a_stream_become_its_colours(tmp_path):
    tags = [("colorspace", 9), ("color_range", 1), ("color_primaries", 9), ("color_trc", 16)]
    film = VideoFile(make_film(tmp_path / "a.mp4", [(64, 48)], tags=tags))
    assert film.color == cf.ColorSpec("bt2020", "limited", "bt2020", "pq")
    assert not film.color.assumed


def test_ten_bits_become_p010(tmp_path, played):
    path = make_film(
        tmp_path / "a.mkv", [(66, 50)], pix_fmt="yuv420p10le", codec="ffv1", options={}
    )
    film = VideoFile(path)
    assert film.format == "p010"
    frames = played(film)
    for frame, (planes, height) in zip(first(frames, 2), decoded(path), strict=True):
        assert np.array_equal(frame.y, planes[:height] << 6)
        u = planes[height:].reshape(-1)[: 33 * 25].reshape(25, 33)
        assert np.array_equal(frame.uv[..., 0], u << 6)


def test_odd_sizes_keep_their_last_column(tmp_path, played):
    film = VideoFile(make_film(tmp_path / "a.mkv", [(67, 51)], codec="ffv1", options={}))
    frame = next(frames := played(film))
    assert frame.y.shape == (51, 67)
    assert frame.uv.shape == (26, 34, 2)
    list(frames)


def test_a_full_range_film_of_another_format_keeps_its_levels(tmp_path, played):
    path = make_film(
        tmp_path / "a.avi", [(64, 48)], pix_fmt="yuvj422p", codec="mjpeg", options={"q": "2"}
    )
    film = VideoFile(path)
    assert (film.format, film.color.range) == ("nv12", "full")
    frames = played(film)
    for frame, (planes, height) in zip(first(frames, 2), luma_of(path), strict=True):
        assert np.array_equal(frame.y, planes[:height])


def luma_of(path):
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            plane = frame.planes[0]
            rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
            yield rows[:, : frame.width].copy(), frame.height


def test_a_change_of_size_starts_a_new_epoch(tmp_path, played):
    film = VideoFile(make_film(tmp_path / "a.h264", [(64, 48), (96, 80)]))
    sizes = [(frame.width, frame.height) for frame in played(film)]
    assert sizes == [(64, 48)] * 2 + [(96, 80)] * 2


def test_publish_video_plays_to_the_end(tmp_path):
    path = make_film(tmp_path / "a.mp4", [(64, 48)])
    assert publish_video(path, "film", fast=True, memory="host") == 2


def test_what_is_no_film_is_refused(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("no film")
    with pytest.raises(InvalidArgumentError, match="cannot be read as video"):
        VideoFile(text)
    with pytest.raises(FileNotFoundError):
        VideoFile(tmp_path / "none.mp4")


def test_pace_keeps_its_schedule_and_goes_on_after_a_stop():
    pace = Pace()
    assert pace.due_ns(0, 100) == 100
    assert pace.due_ns(40, 170) == 140  # late, and the schedule stays
    assert pace.due_ns(80, 5 * SECOND) == 5 * SECOND  # the process was stopped
    assert pace.due_ns(120, 5 * SECOND) == 5 * SECOND + 40


@needs_film
def test_the_next_pass_is_begun_before_the_end_of_this_one(monkeypatch):
    begun = []
    monkeypatch.setattr(VideoFile, "_open", _counting(begun, VideoFile._open))
    with contextlib.closing(VideoFile(FILM, loop=True).frames()) as frames:
        for number, _ in enumerate(itertools.islice(frames, 140)):
            if number == 100:  # of 132, 25 a second
                assert len(begun) == 1
            if number == 131:
                _until(lambda: len(begun) == 2)
    assert len(begun) == 2
    assert not any(thread.name == "cuframes-film" for thread in threading.enumerate())


def test_a_film_that_goes_away_while_it_loops_is_told(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(make_film(tmp_path / "b.mp4", [(64, 48)]).read_bytes())
    film = VideoFile(path, loop=True)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(film.frames())


def _counting(calls, method):
    def count(self):
        calls.append(self)
        return method(self)

    return count


def _until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
