"""Films: what was published is in the file, in its colours and at its times, whatever happens."""

import contextlib
import logging
import threading
import time

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.sinks import codecs, film
from cuframes_nb.sinks.pixels import Painter
from cuframes_nb.sources import VideoFile
from tests.helpers import frames

av = pytest.importorskip("av")

MS = 1_000_000
SECOND = 1000 * MS
NOISE = np.random.default_rng(11)

COLORS = [
    cf.ColorSpec("bt601", "full"),
    cf.ColorSpec("bt601", "limited", "smpte170m", "smpte170m"),
    cf.ColorSpec("bt709", "limited", "bt709", "bt709"),
    cf.ColorSpec("bt709", "full", "bt709", "srgb"),
    cf.ColorSpec("bt2020", "limited", "bt2020", "pq"),
    cf.ColorSpec("bt2020", "full", "bt2020", "hlg"),
]


def noise(pub):
    """Return the planes of a frame of noise."""
    planes = []
    for shape in pub.layout.format.plane_shapes(pub.layout.width, pub.layout.height):
        if pub.layout.format.itemsize == 2:
            planes.append(NOISE.integers(0, 1024, shape, np.uint16) << 6)
        else:
            planes.append(NOISE.integers(0, 256, shape, np.uint8))
    return planes


def publish(pub, planes, pts_ns=None):
    with pub.acquire(timeout=30) as slot:
        for target, plane in zip(slot.planes, planes, strict=True):
            target[...] = plane
        slot.pts_ns = pts_ns


def smooth(pub, value):
    """Return planes that every codec keeps."""
    shapes = pub.layout.format.plane_shapes(pub.layout.width, pub.layout.height)
    shift = 8 * (pub.layout.format.itemsize - 1)
    return [np.full(shape, value << shift) for shape in shapes]


@contextlib.contextmanager
def strict(**changes):
    """Yield a publisher that waits, and a subscriber that misses nothing."""
    arguments = {"memory": "host", "policy": "strict-wait", "width": 64, "height": 48, **changes}
    with cf.Publisher("cam", **arguments) as pub, cf.subscribe("cam", mode="strict") as sub:
        yield pub, sub
        frames.until(lambda: pub.stats.slots_leased == 0)


def record_all(path, pictures, *, times=None, codec="ffv1", **changes):
    """Publish pictures, made by functions of the publisher; return what the recording came to."""
    times = times or [index * 40 * MS for index in range(len(pictures))]
    with (
        strict(**changes) as (pub, sub),
        cf.Recording(sub, path, codec=codec, frames=len(pictures)) as recording,
    ):
        for picture, pts_ns in zip(pictures, times, strict=True):
            publish(pub, picture(pub), pts_ns)
        assert recording.wait(60)
        return recording.stop()


def decoded(path):
    """Return the frames of a film."""
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def planes_of(frame):
    """Return a decoded frame's planes, without padding."""
    item = 2 if frame.format.components[0].bits > 8 else 1
    packed = 4 if frame.format.name.startswith("bgr") else 1
    return [
        np.frombuffer(plane, f"<u{item}")
        .reshape(plane.height, plane.line_size // item)[:, : plane.width * packed]
        .reshape(plane.height, plane.width, *((packed,) if packed > 1 else ()))
        for plane in frame.planes
    ]


def ticks_of(path):
    """Return the times of a film's frames in nanoseconds."""
    return [round(frame.pts * frame.time_base * SECOND) for frame in decoded(path)]


# --- Pixels ---------------------------------------------------------------------------------------


def as_ffv1(format_, planes):
    """Return the planes that FFV1 has of a frame."""
    match format_:
        case "gray8":
            return planes
        case "rgb24":
            return [np.dstack([planes[0][..., ::-1], np.zeros_like(planes[0][..., 0])])]
        case "rgba32":
            return [planes[0][..., [2, 1, 0, 3]]]
        case "nv12":
            return [planes[0], planes[1][..., 0], planes[1][..., 1]]
        case "p010":
            return [planes[0] >> 6, planes[1][..., 0] >> 6, planes[1][..., 1] >> 6]


@pytest.mark.parametrize("size", [(64, 48), (67, 51)])
@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_ffv1_keeps_every_value(tmp_path, format_, size):
    path = tmp_path / "a.mkv"
    sent = []

    def picture(pub):
        sent.append(noise(pub))
        return sent[-1]

    info = record_all(path, [picture] * 3, format=format_, width=size[0], height=size[1])
    assert (info.codec, info.encoder, info.frames, info.skipped) == ("ffv1", "ffv1", 3, 0)
    for frame, planes in zip(decoded(path), sent, strict=True):
        for got, want in zip(planes_of(frame), as_ffv1(format_, planes), strict=True):
            rgb = slice(None, 3) if format_ == "rgb24" else slice(None)
            assert np.array_equal(got[..., rgb], want[..., rgb])


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8"])
def test_h264_keeps_levels(tmp_path, format_, suffix):
    path = tmp_path / f"a{suffix}"
    values = [16, 100, 235, 255, 0]
    pictures = [lambda pub, value=value: smooth(pub, value) for value in values]
    info = record_all(path, pictures, codec="auto", format=format_, width=66, height=50)
    assert (info.codec, info.encoder) == ("h264", "libx264")
    shift = 2 if format_ == "p010" else 0
    for frame, value in zip(decoded(path), values, strict=True):
        planes = planes_of(frame)
        assert abs(int(planes[0].mean()) - (value << shift)) <= 1 << shift
        chroma = 128 if format_ == "gray8" else value << shift
        assert abs(int(planes[1].mean()) - chroma) <= 1 << shift


@pytest.mark.parametrize(("codec", "tag"), [("hevc", "hvc1"), ("av1", "av01")])
def test_other_codecs_make_films(tmp_path, codec, tag):
    pictures = [lambda pub, value=value: smooth(pub, value) for value in (40, 120, 200)]
    info = record_all(tmp_path / "a.mp4", pictures, codec=codec, width=128, height=96)
    assert info.codec == codec
    shown = [planes_of(frame)[0].mean() for frame in decoded(tmp_path / "a.mp4")]
    assert np.allclose(shown, [40, 120, 200], atol=2)
    assert ticks_of(tmp_path / "a.mp4") == [0, 40 * MS, 80 * MS]
    with av.open(str(tmp_path / "a.mp4")) as container:
        assert container.streams.video[0].codec_context.codec_tag == tag


def test_an_odd_size_becomes_even_by_repeating_the_edge(tmp_path):
    def picture(pub):
        planes = smooth(pub, 128)
        planes[0][:, -1] = 200
        planes[0][-1] = 60
        return planes

    record_all(tmp_path / "a.mp4", [picture], codec="h264", width=67, height=51)
    (frame,) = decoded(tmp_path / "a.mp4")
    assert (frame.width, frame.height) == (68, 52)
    luma = planes_of(frame)[0].astype(int)
    assert abs(luma[:48, 67] - 200).max() < 20
    assert abs(luma[51, :64] - 60).max() < 20


@pytest.mark.parametrize("format_", ["rgb24", "rgba32"])
def test_rgb_is_converted_by_the_tags_that_it_gets(tmp_path, format_):
    def picture(pub):
        (plane,) = smooth(pub, 255)
        plane[..., :3] = (200, 60, 30)
        return [plane]

    record_all(tmp_path / "a.mp4", [picture], codec="h264", format=format_)
    assert VideoFile(tmp_path / "a.mp4").color == cf.ColorSpec("bt601", "limited")
    (frame,) = decoded(tmp_path / "a.mp4")
    with cf.Publisher("back", width=64, height=48, memory="host", color=cf.ColorSpec("bt601")) as p:
        p.write(frame)
        with cf.subscribe("back") as sub, sub.next(5) as back:
            assert np.abs(back.rgb()[24, 32].astype(int) - (200, 60, 30)).max() <= 4


# --- Colours --------------------------------------------------------------------------------------


@pytest.mark.parametrize("color", COLORS, ids=str)
@pytest.mark.parametrize(
    ("suffix", "codec"),
    [(".mp4", "h264"), (".mkv", "h264"), (".mov", "h264"), (".mkv", "ffv1"), (".mp4", "hevc"),
     (".mp4", "av1")],
)  # fmt: skip
def test_colours_are_tagged(tmp_path, suffix, codec, color):
    path = tmp_path / f"a{suffix}"
    record_all(
        path, [lambda pub: smooth(pub, 90)] * 2, codec=codec, color=color, width=128, height=96
    )
    assert VideoFile(path).color == color  # as decoded frames say
    with av.open(str(path)) as container:  # as the container says, before anything is decoded
        context = container.streams.video[0].codec_context
        assert context.color_range == {"limited": 1, "full": 2}[color.range]
        assert context.colorspace == {"bt709": 1, "bt601": 6, "bt2020": 9}[color.matrix]
    assert abs(planes_of(decoded(path)[0])[0].mean() - 90) <= 1


def test_assumed_colours_are_tagged_as_they_are_shown(tmp_path):
    record_all(tmp_path / "a.mkv", [noise], width=1280, height=720)
    assert VideoFile(tmp_path / "a.mkv").color == cf.ColorSpec("bt709", "limited")


# --- Time -----------------------------------------------------------------------------------------

UNEVEN = [0, 10, 50, 51, 400, 2400, 2433, 5000]


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [(".mp4", "h264"), (".mkv", "h264"), (".mov", "h264"), (".mkv", "ffv1"), (".mp4", "hevc"),
     (".mp4", "av1")],
)  # fmt: skip
def test_an_uneven_rate_stays_uneven(tmp_path, suffix, codec):
    path = tmp_path / f"a{suffix}"
    times = [7 * SECOND + 333 + ms * MS for ms in UNEVEN]
    size = {"width": 128, "height": 96}
    info = record_all(path, [noise] * len(times), times=times, codec=codec, **size)
    # 1/90000 s is no whole number of nanoseconds.
    assert ticks_of(path) == pytest.approx([ms * MS for ms in UNEVEN], abs=12_000)
    assert info.seconds == 5
    assert info.retimed == 0


def test_a_time_that_is_not_later_is_put_behind_and_counted(tmp_path):
    times = [10 * SECOND + ms * MS for ms in (0, 40, 40, 30, 80)]
    info = record_all(tmp_path / "a.mkv", [noise] * 5, times=times)
    assert info.retimed == 2
    assert ticks_of(tmp_path / "a.mkv") == [0, 40 * MS, 41 * MS, 42 * MS, 80 * MS]


def test_a_clock_that_starts_anew_goes_on(tmp_path):
    times = [3600 * SECOND, 3600 * SECOND + 40 * MS, 0, 40 * MS]
    info = record_all(tmp_path / "a.mp4", [noise] * 4, times=times, codec="h264")
    assert info.retimed == 0
    ticks = ticks_of(tmp_path / "a.mp4")
    assert ticks[:2] == [0, 40 * MS]
    assert 40 * MS < ticks[2] < 20 * SECOND  # as long as it took to publish
    assert ticks[3] - ticks[2] == pytest.approx(40 * MS, abs=12_000)


def test_without_times_of_their_own_frames_have_those_of_publishing(tmp_path):
    with strict() as (pub, sub), cf.Recording(sub, tmp_path / "a.mp4", frames=3) as recording:
        published = []
        for _ in range(3):
            publish(pub, noise(pub))
            published.append(cf.now_ns())
            time.sleep(0.03)
        recording.wait(30)
    distances = np.diff(ticks_of(tmp_path / "a.mp4"))
    assert (distances >= 25 * MS).all()


def test_an_old_frame_is_shown_from_the_beginning_of_the_recording(tmp_path):
    with cf.Publisher("cam", width=64, height=48, memory="host") as pub:
        publish(pub, noise(pub))
        time.sleep(1.3)
        with cf.Recording("cam", tmp_path / "a.mkv") as recording:
            frames.until(lambda: recording.info.frames == 1)
            publish(pub, noise(pub))
            frames.until(lambda: recording.info.frames == 2)
    assert 0 < ticks_of(tmp_path / "a.mkv")[1] < SECOND


# --- Ends -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def publishing(pub, seconds=0.005):
    """Publish noise from another thread."""
    over = threading.Event()
    picture = noise(pub)

    def work():
        while not over.wait(seconds):
            with contextlib.suppress(cf.RingFullError):
                publish(pub, picture)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def live():
    with cf.Publisher("cam", width=64, height=48, memory="host", fps=200) as pub:
        with publishing(pub):
            yield pub
        frames.until(lambda: pub.stats.slots_leased == 0)


def test_so_many_frames(live, tmp_path):
    info = cf.record("cam", tmp_path / "a.mp4", frames=7)
    assert (info.frames, info.ended) == (7, "frames")
    assert info.paths == (tmp_path / "a.mp4",)
    assert info.nbytes == (tmp_path / "a.mp4").stat().st_size
    assert len(decoded(tmp_path / "a.mp4")) == 7


def test_so_many_seconds(live, tmp_path):
    began = time.monotonic()
    info = cf.record("cam", str(tmp_path / "a.mkv"), duration=0.4)
    assert time.monotonic() - began >= 0.4
    assert info.ended == "duration"
    assert 0.2 < info.seconds < 0.6
    assert len(decoded(tmp_path / "a.mkv")) == info.frames


def test_the_first_frame_begins_the_time(tmp_path):
    with (
        cf.Publisher("cam", width=64, height=48, memory="host") as pub,
        cf.Recording("cam", tmp_path / "a.mkv", duration=2) as recording,
    ):
        for _ in range(2):
            time.sleep(1.2)
            publish(pub, noise(pub))
        assert recording.wait(30)
        assert recording.info.frames == 2


def test_a_publisher_that_closes_ends_it(tmp_path):
    with cf.Publisher("cam", width=64, height=48, memory="host") as pub:
        recording = cf.Recording("cam", tmp_path / "a.mp4")
        publish(pub, noise(pub))
        frames.until(lambda: recording.info.frames == 1)
    assert recording.wait(30)
    assert recording.stop().ended == "closed"
    assert len(decoded(tmp_path / "a.mp4")) == 1


@pytest.mark.parametrize("reconnect", [True, False])
def test_a_subscriber_stays_its_owners_and_does_what_it_was_made_for(tmp_path, reconnect):
    pub = cf.Publisher("cam", width=64, height=48, memory="host")
    with cf.subscribe("cam", reconnect=reconnect) as sub:
        with cf.Recording(sub, tmp_path / "a.mkv") as recording:
            publish(pub, noise(pub))
            frames.until(lambda: recording.info.frames == 1)
            pub.close()
            if reconnect:
                with cf.Publisher("cam", width=64, height=48, memory="host") as again:
                    publish(again, noise(again))
                    frames.until(lambda: recording.info.frames == 2)
                    recording.stop()
            else:
                assert recording.wait(30)
        assert recording.info.ended == ("stopped" if reconnect else "closed")
        assert not sub.closed


def test_an_owner_that_closes_its_subscriber_ends_it(live, tmp_path):
    sub = cf.subscribe("cam")
    with cf.Recording(sub, tmp_path / "a.mkv") as recording:
        frames.until(lambda: recording.info.frames > 1)
        sub.close()
        assert recording.wait(30)
    assert recording.info.ended == "closed"


def test_stopping_is_idempotent_and_keeps_what_waits(live, tmp_path):
    recording = cf.Recording("cam", tmp_path / "a.mp4")
    frames.until(lambda: recording.info.frames >= 3)
    assert recording.running
    info = recording.stop()
    assert recording.stop() == info == recording.info
    recording.close()
    assert not recording.running
    assert info.ended == "stopped"
    assert "stopped" in repr(recording)
    assert len(decoded(tmp_path / "a.mp4")) == info.frames


def test_a_film_can_be_played_while_it_is_written(live, tmp_path):
    with cf.Recording("cam", tmp_path / "a.mp4") as recording:
        frames.until(lambda: recording.info.seconds > 1.5)
        assert len(decoded(tmp_path / "a.mp4")) > 10


def test_an_error_in_the_block_is_what_is_told(live, tmp_path):
    with pytest.raises(ZeroDivisionError), cf.Recording("cam", tmp_path / "a.mp4") as recording:
        frames.until(lambda: recording.info.frames >= 2)
        raise ZeroDivisionError
    assert len(decoded(tmp_path / "a.mp4")) == recording.info.frames


def test_progress_is_told_and_may_end_it(live, tmp_path):
    told = []
    info = cf.record("cam", tmp_path / "a.mkv", duration=2.3, on_progress=told.append)
    assert [one.ended for one in told[:-1]] == [""] * (len(told) - 1)
    assert len(told) >= 2
    assert told[-1] == info
    assert told[0].frames < info.frames

    def refuse(_info):
        raise ZeroDivisionError

    recording = cf.Recording("cam", tmp_path / "b.mkv", on_progress=refuse)
    assert recording.wait(30)
    with pytest.raises(ZeroDivisionError):
        recording.stop()
    assert recording.info.ended == "failed"
    assert len(decoded(tmp_path / "b.mkv")) == recording.info.frames


def test_progress_may_stop_it(live, tmp_path):
    recording = cf.Recording(
        "cam", tmp_path / "a.mkv", on_progress=lambda info: not info.ended and recording.stop()
    )
    assert recording.wait(30)
    assert recording.stop().ended == "stopped"


# --- What comes in between ------------------------------------------------------------------------


def test_frames_that_are_missed_are_counted_and_told(tmp_path, monkeypatch, caplog):
    held, go_on = threading.Event(), threading.Event()
    paint = Painter.paint

    def slow(self, planes):
        held.set()
        assert go_on.wait(30)
        return paint(self, planes)

    monkeypatch.setattr(Painter, "paint", slow)
    with (
        cf.Publisher("cam", width=64, height=48, memory="host") as pub,
        cf.Recording("cam", tmp_path / "a.mkv") as recording,
    ):
        publish(pub, noise(pub))
        assert held.wait(30)
        for _ in range(5):
            publish(pub, noise(pub))
        go_on.set()
        frames.until(lambda: recording.info.frames + recording.info.skipped == 6)
        with caplog.at_level(logging.INFO, "cuframes_nb.sinks"):
            info = recording.stop()
    assert 1 <= info.skipped <= 4
    assert info.frames + info.skipped == 6
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert f"{info.skipped} of the stream's frames" in warnings[0].getMessage()


def test_what_a_subscriber_missed_before_is_no_gap(tmp_path):
    with (
        cf.Publisher("cam", width=64, height=48, memory="host") as pub,
        cf.subscribe("cam") as sub,
    ):
        publish(pub, noise(pub))
        sub.next(5).release()
        for _ in range(7):
            publish(pub, noise(pub))
        with cf.Recording(sub, tmp_path / "a.mkv", frames=1) as recording:
            assert recording.wait(30)
        assert sub.stats.skipped == 6
        assert recording.info.skipped == 0


@pytest.mark.parametrize(("policy", "mode"), [("drop-oldest", "strict"), ("strict-wait", "newest")])
def test_the_publisher_never_waits_for_a_recording(tmp_path, monkeypatch, policy, mode):
    held, go_on = threading.Event(), threading.Event()
    paint = Painter.paint

    def slow(self, planes):
        held.set()
        assert go_on.wait(30)
        return paint(self, planes)

    monkeypatch.setattr(Painter, "paint", slow)
    with (
        cf.Publisher("cam", width=64, height=48, memory="host", policy=policy) as pub,
        cf.Recording("cam", tmp_path / "a.mkv") as recording,
    ):
        frames.until(lambda: [one.mode for one in pub.info.subscribers] == [mode])
        publish(pub, noise(pub))
        assert held.wait(30)
        for _ in range(20):
            with pub.acquire(timeout=5):
                pass
        go_on.set()
        frames.until(lambda: recording.info.frames + recording.info.skipped == 21)


def test_a_slow_encoder_holds_no_slot(tmp_path, monkeypatch):
    go_on = threading.Event()
    write = film.Film.write

    def slow(self, picture, tick):
        assert go_on.wait(30)
        write(self, picture, tick)

    monkeypatch.setattr(film.Film, "write", slow)
    with strict() as (pub, sub), cf.Recording(sub, tmp_path / "a.mkv", frames=9) as recording:
        for _ in range(9):  # more than the ring has slots, and the publisher waits for none
            publish(pub, noise(pub))
        frames.until(lambda: sub.stats.received == 9 and pub.stats.slots_leased == 0)
        assert recording.info.frames == 0
        go_on.set()
        assert recording.wait(30)
        assert recording.info.frames == 9


def test_frames_of_another_kind_go_into_another_file(tmp_path):
    (tmp_path / "a-2.mkv").write_text("somebody else's")
    with strict() as (pub, sub), cf.Recording(sub, tmp_path / "a.mkv", codec="ffv1") as recording:
        publish(pub, noise(pub), 0)
        publish(pub, noise(pub), 40 * MS)
        pub.reconfigure(ring_size=6)  # another epoch, and the same frames
        publish(pub, noise(pub), 80 * MS)
        pub.reconfigure(width=96, height=80)
        publish(pub, noise(pub), 120 * MS)
        pub.reconfigure(format="gray8", color=cf.ColorSpec("bt709", "full"))
        publish(pub, last := noise(pub), 160 * MS)
        publish(pub, noise(pub), 200 * MS)
        frames.until(lambda: recording.info.frames == 6)
        info = recording.stop()
    assert [path.name for path in info.paths] == ["a.mkv", "a-3.mkv", "a-4.mkv"]
    assert info.seconds == pytest.approx(0.12)
    assert info.nbytes == sum(path.stat().st_size for path in info.paths)
    assert (tmp_path / "a-2.mkv").read_text() == "somebody else's"
    films = [decoded(path) for path in info.paths]
    assert [(len(film_), film_[0].width) for film_ in films] == [(3, 64), (1, 96), (2, 96)]
    assert np.array_equal(planes_of(films[2][0])[0], last[0])
    assert VideoFile(info.paths[2]).color == cf.ColorSpec("bt709", "full")


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"codec": "h265"}, "use 'auto', 'h264', 'hevc', 'av1' or 'ffv1'"),
        ({"codec": None}, "codec None is not known"),
        ({"codec": "ffv1"}, r"does not hold ffv1; write .mkv"),
        ({"path": "a.avi"}, r"must end in .mp4, .mov or .mkv"),
        ({"path": "a"}, "must end in"),
        ({"path": 7}, "named by a path"),
        ({"path": b"a.mp4"}, "named by a path"),
        ({"source": 7}, "a stream is named by"),
        ({"duration": 0}, "duration is 0"),
        ({"duration": "1"}, "duration is '1'"),
        ({"duration": float("inf")}, "duration is inf"),
        ({"frames": 0}, "frames is 0"),
        ({"frames": True}, "frames is True"),
        ({"frames": 1.5}, "frames is 1.5"),
        ({"quality": 0}, "quality is 0"),
        ({"quality": 101}, "quality is 101"),
        ({"codec": "ffv1", "path": "a.mkv", "quality": 5}, "loses nothing"),
        ({"on_progress": 1}, "must be a function"),
    ],
)
def test_wrong_values_are_refused(live, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    given = {"source": "cam", "path": "a.mp4", **arguments}
    with pytest.raises(cf.InvalidArgumentError, match=words):
        cf.record(**given)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_stream_is_told_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("cuframes_nb.sinks.feed._FIRST_SECONDS", 0)
    with pytest.raises(cf.StreamNotFoundError):
        cf.record("nobody", tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_told_at_once(live, tmp_path):
    for path, kind in [
        (tmp_path / "none" / "a.mp4", FileNotFoundError),
        (tmp_path / "dir.mp4", IsADirectoryError),
    ]:
        (tmp_path / "dir.mp4").mkdir(exist_ok=True)
        with pytest.raises(kind) as caught:
            cf.record("cam", path)
        assert caught.value.filename == str(path) or str(path) in str(caught.value)


def test_without_a_frame_there_is_no_film(tmp_path):
    (tmp_path / "old.mp4").write_text("old")
    with cf.Publisher("cam", width=64, height=48, memory="host"):
        for name in ("a.mp4", "old.mp4"):
            with pytest.raises(cf.FrameTimeout, match=r"no frame came within 0\.2 s"):
                cf.record("cam", tmp_path / name, duration=0.2)
        with cf.Recording("cam", tmp_path / "a.mp4") as recording:
            pass
    assert recording.info == cf.RecordingInfo(tmp_path / "a.mp4", ended="stopped")
    assert [path.name for path in tmp_path.iterdir()] == ["old.mp4"]
    assert (tmp_path / "old.mp4").read_text() == "old"


def test_a_file_that_was_there_is_replaced(live, tmp_path):
    (tmp_path / "a.mkv").write_bytes(bytes(1 << 20))
    info = cf.record("cam", tmp_path / "a.mkv", frames=2)
    assert info.nbytes == (tmp_path / "a.mkv").stat().st_size < 1 << 20


def test_an_encoder_that_is_missing_is_told_with_those_there_are(live, tmp_path, monkeypatch):
    there = codecs.encoder_named
    monkeypatch.setattr(
        codecs, "encoder_named", lambda name: None if "265" in name else there(name)
    )
    with pytest.raises(cf.UnsupportedError, match=r"hevc \(libx265\); it has .*h264 \(libx264\)"):
        cf.record("cam", tmp_path / "a.mp4", codec="hevc")


def test_what_an_encoder_refuses_is_told(tmp_path):
    with cf.Publisher("cam", width=8, height=8, memory="host") as pub:
        recording = cf.Recording("cam", tmp_path / "a.mp4", codec="hevc")
        publish(pub, noise(pub))
        assert recording.wait(30)
        with pytest.raises(cf.UnsupportedError, match="nv12 at 8x8 cannot be recorded as hevc"):
            recording.stop()
        frames.until(lambda: pub.stats.slots_leased == 0)
    assert list(tmp_path.iterdir()) == []


def test_without_pyav_it_says_what_to_install(live, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(cf.UnsupportedError, match=r"cuframes-nb\[video\]"):
        cf.record("cam", tmp_path / "a.mp4")


@pytest.mark.parametrize(("suffix", "codec"), [(".mp4", "h264"), (".mkv", "ffv1")])
def test_a_full_disk_is_told_and_hangs_nothing(live, tmp_path, suffix, codec):
    path = tmp_path / f"full{suffix}"
    path.symlink_to("/dev/full")
    recording = cf.Recording("cam", path, codec=codec)
    assert recording.wait(30)
    with pytest.raises(OSError, match="No space left on device") as caught:
        recording.stop()
    assert caught.value.filename == str(path)
    assert recording.info.ended == "failed"


def test_quality_makes_files_larger(tmp_path):
    sizes = []
    for quality in (1, None, 100):
        with (
            strict(width=128, height=96) as (pub, sub),
            cf.Recording(sub, tmp_path / "a.mp4", frames=5, quality=quality) as recording,
        ):
            for _ in range(5):
                publish(pub, noise(pub))
            assert recording.wait(30)
        sizes.append(recording.info.nbytes)
    assert sizes[0] < sizes[1] < sizes[2]
