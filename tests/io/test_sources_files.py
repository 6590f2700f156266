"""Films of every kind: a subscriber gets what plain PyAV decodes, or an error says why not."""

import contextlib
import dataclasses
import socket
import threading
import traceback

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.sources import VideoFile, play, video

av = pytest.importorskip("av")

from tests.helpers.films import (  # noqa: E402
    audio_film,
    cut,
    joined,
    make_film,
    picture,
    streams_film,
)

SECOND = 1_000_000_000


@dataclasses.dataclass
class Got:
    """A frame as a subscriber had it."""

    planes: list
    format: str
    epoch: int
    color: cf.ColorSpec


def played(source):
    """Publish all of a source strictly; return what a subscriber got."""
    got = []
    with (
        source.publisher("film", policy="strict-wait", memory="host") as publisher,
        cf.subscribe("film", mode="strict") as subscriber,
    ):
        player = threading.Thread(target=play, args=(source, publisher), kwargs={"fast": True})
        player.start()
        while player.is_alive() or subscriber.stats.received < publisher.stats.published:
            with contextlib.suppress(cf.FrameTimeout), subscriber.next(0.2) as frame:
                planes = [plane.copy() for plane in frame.planes]
                epoch = subscriber.stats.epoch
                got.append(Got(planes, str(frame.format), epoch, frame.color))
        player.join()
    return got


def decoded(path, stream=0):
    """Return the frames of plain PyAV."""
    with av.open(str(path)) as container:
        return list(container.decode(video=stream))


def planes_of(frame):
    """Return a decoded frame's planes without padding, as numbers."""
    deep = frame.format.components[0].bits > 8
    samples = [np.frombuffer(plane, np.uint16 if deep else np.uint8) for plane in frame.planes]
    return [
        flat.reshape(plane.height, -1)[:, : plane.width]
        for flat, plane in zip(samples, frame.planes, strict=True)
    ]


def expected(frame, turns=0):
    """Return what NV12 or P010 makes of a 4:2:0 frame, turned anticlockwise by quarters."""
    y, u, v = (np.rot90(plane, turns) for plane in planes_of(frame))
    shift = 6 if frame.format.components[0].bits == 10 else 0
    return [y << shift, np.stack([u, v], axis=-1) << shift]


def same(got, frames, turns=0):
    """Whether frames came as they were decoded, all of them and bit for bit."""
    return len(got) == len(frames) and all(
        np.array_equal(mine, theirs)
        for one, frame in zip(got, frames, strict=True)
        for mine, theirs in zip(one.planes, expected(frame, turns), strict=True)
    )


def times(source, count=None):
    """Return the times of a source's frames."""
    frames = source.frames()
    got = [at for (at, _), _ in zip(frames, range(count or 10_000), strict=False)]
    frames.close()
    return got


# --- Sizes, formats, colours ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "format_"),
    [
        ("odd.mkv", {"width": 177, "height": 145, "codec": "ffv1"}, "nv12"),
        ("pixel.mkv", {"width": 1, "height": 1, "codec": "ffv1"}, "nv12"),
        ("row.mkv", {"width": 33, "height": 1, "codec": "ffv1"}, "nv12"),
        ("large.mp4", {"width": 4096, "height": 2304, "frames": 2}, "nv12"),
        ("hevc.mp4", {"codec": "libx265", "pix_fmt": "yuv420p10le"}, "p010"),
        (
            "deep.mkv",
            {"width": 177, "height": 145, "codec": "ffv1", "pix_fmt": "yuv420p10le"},
            "p010",
        ),
        ("full.mp4", {"color": {"color_range": 2}}, "nv12"),
        ("old.mpg", {"codec": "mpeg2video"}, "nv12"),
        ("web.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime"}}, "nv12"),
        ("many.mp4", {"frames": 60, "options": {"bf": "3"}}, "nv12"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_planar_frames_come_bit_for_bit(tmp_path, name, options, format_):
    path = make_film(tmp_path / name, **options)
    got = played(VideoFile(path))
    assert {one.format for one in got} == {format_}
    assert same(got, decoded(path))


@pytest.mark.parametrize(
    ("codec", "pix_fmt", "format_"),
    [("ffv1", "gray", "gray8"), ("png", "rgb24", "rgb24"), ("png", "rgba", "rgba32")],
)
def test_other_formats_that_slots_have_come_as_they_are(tmp_path, codec, pix_fmt, format_):
    name = "film.mov" if codec == "png" else "film.mkv"
    path = make_film(tmp_path / name, 67, 51, codec=codec, pix_fmt=pix_fmt)
    got = played(VideoFile(path))
    assert {one.format for one in got} == {format_}
    for one, frame in zip(got, decoded(path), strict=True):
        assert np.array_equal(one.planes[0], frame.to_ndarray())


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt"),
    [
        ("film.mkv", "ffv1", "bgr0"),
        ("film.mp4", "libx264rgb", "rgb24"),
        ("film.gif", "gif", "rgb8"),
    ],
)
def test_rgb_of_any_order_becomes_rgb(tmp_path, name, codec, pix_fmt):
    path = make_film(tmp_path / name, codec=codec, pix_fmt=pix_fmt)
    got = played(VideoFile(path))
    assert {one.format for one in got} == {"rgb24"}
    for one, frame in zip(got, decoded(path), strict=True):
        assert np.array_equal(one.planes[0], frame.to_ndarray(format="rgb24"))


@pytest.mark.parametrize(
    ("pix_fmt", "format_", "shift"),
    [
        ("yuv444p", "nv12", 0),
        ("yuv422p", "nv12", 0),
        ("yuva420p", "nv12", 0),
        ("yuv422p10le", "p010", 6),
    ],
)
def test_what_is_converted_keeps_its_luma(tmp_path, pix_fmt, format_, shift):
    path = make_film(tmp_path / "film.mkv", 66, 50, codec="ffv1", pix_fmt=pix_fmt)
    got = played(VideoFile(path))
    assert {one.format for one in got} == {format_}
    for one, frame in zip(got, decoded(path), strict=True):
        assert np.array_equal(one.planes[0], planes_of(frame)[0] << shift)


@pytest.mark.parametrize(
    ("tags", "color"),
    [
        ({}, cf.ColorSpec.assume(48)),
        ({"colorspace": 1}, cf.ColorSpec("bt709", "limited")),
        ({"colorspace": 5, "color_range": 2}, cf.ColorSpec("bt601", "full")),
        (
            {"colorspace": 6, "color_range": 1, "color_primaries": 6, "color_trc": 6},
            cf.ColorSpec("bt601", "limited", "smpte170m", "smpte170m"),
        ),
        (
            {"colorspace": 9, "color_range": 1, "color_primaries": 9, "color_trc": 18},
            cf.ColorSpec("bt2020", "limited", "bt2020", "hlg"),
        ),
    ],
)
def test_a_subscriber_is_told_the_colours(tmp_path, tags, color):
    got = played(VideoFile(make_film(tmp_path / "film.mp4", color=tags)))
    assert got[0].color == color


# --- Time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["film.mkv", "film.mp4"])
def test_a_variable_rate_is_kept(tmp_path, name):
    times_ms = [0, 10, 50, 51, 200]
    film = VideoFile(make_film(tmp_path / name, times_ms=times_ms))
    assert times(film) == [at * SECOND // 1000 for at in times_ms]


def test_times_count_from_the_first_frame(tmp_path):
    film = VideoFile(make_film(tmp_path / "film.mkv", times_ms=[500, 540, 600]))
    assert times(film) == [0, 40_000_000, 100_000_000]


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv", "film.ts", "film.h264"])
def test_a_film_can_begin_later(tmp_path, name):
    path = make_film(tmp_path / name, frames=50)  # with key frames elsewhere
    film = VideoFile(path, start=1.0)
    got = played(film)
    assert same(got, decoded(path)[25:])
    assert times(film) == [number * SECOND // 25 for number in range(25)]


def test_a_loop_begins_where_the_film_does(tmp_path):
    path = make_film(tmp_path / "film.mp4", frames=10)
    film = VideoFile(path, start=0.2, loop=True)
    assert times(film, 12) == [number * SECOND // 25 for number in range(12)]
    frames = film.frames()
    with film.publisher("film", memory="host") as publisher:
        seen = []
        for _, (_, frame) in zip(range(6), frames, strict=False):
            with publisher.acquire() as slot:
                film.write(slot, frame)
                seen.append(slot.y.copy())
    frames.close()
    assert np.array_equal(seen[5], seen[0])
    assert not np.array_equal(seen[1], seen[0])


@pytest.mark.parametrize("start", [-1.0, float("nan"), float("inf"), 3.0])
def test_there_is_no_beginning_outside_the_film(tmp_path, start):
    path = make_film(tmp_path / "film.mp4")
    with pytest.raises(InvalidArgumentError, match=r"start|after 3"):
        VideoFile(path, start=start)


def test_one_picture_is_a_film_too(tmp_path):
    path = make_film(tmp_path / "film.png", codec="png", pix_fmt="rgb24", frames=1)
    (got,) = played(VideoFile(path))
    assert np.array_equal(got.planes[0], picture(64, 48, 0))
    assert times(VideoFile(path, loop=True), 3) == [0, SECOND // 25, 2 * SECOND // 25]


# --- Which way is up ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv"])
@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_film_comes_out_upright(tmp_path, name, degrees):
    path = make_film(tmp_path / name, 66, 50, rotation=degrees)
    film = VideoFile(path)
    assert (film.width, film.height) == ((66, 50) if degrees == 180 else (50, 66))
    assert same(played(film), decoded(path), turns=degrees // 90)


def test_ten_bits_are_turned_too(tmp_path):
    options = {"codec": "libx265", "pix_fmt": "yuv420p10le"}
    path = make_film(tmp_path / "film.mp4", rotation=90, **options)
    assert same(played(VideoFile(path)), decoded(path), turns=1)


def test_rgb_is_turned_too(tmp_path):
    path = make_film(tmp_path / "film.mov", codec="png", pix_fmt="rgb24", frames=1, rotation=270)
    (got,) = played(VideoFile(path))
    assert np.array_equal(got.planes[0], np.rot90(picture(64, 48, 0), 3))


def test_what_a_phone_on_its_side_writes_is_turned_as_players_do(tmp_path):
    # x' = -y and y' = x: what is on the right goes to the bottom, what is on top goes to the right
    clockwise = [0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30]
    path = make_film(tmp_path / "film.mov", codec="png", pix_fmt="rgb24", rotation=clockwise)
    got = played(VideoFile(path))[0].planes[0]
    corner = picture(64, 48, 0)[:12, :16]  # white, at the top left
    assert got.shape == (64, 48, 3)
    assert np.array_equal(got[:16, -12:], np.full((16, 12, 3), 255))
    assert corner.min() == 255


# --- Several streams, and changes on the way ------------------------------------------------------


def test_a_stream_is_chosen_by_its_number(tmp_path):
    path = streams_film(tmp_path / "film.mkv", [(64, 48), (96, 80)])
    for number in (0, 1):
        assert same(played(VideoFile(path, stream=number)), decoded(path, number))
    for number in (2, -1):
        with pytest.raises(InvalidArgumentError, match=r"film\.mkv has 2 video streams"):
            VideoFile(path, stream=number)


@pytest.mark.parametrize(
    ("suffix", "changes"),
    [
        ("h264", {"width": 96, "height": 80}),
        ("ts", {"width": 96, "height": 80}),
        ("h264", {"pix_fmt": "yuv420p10le"}),
        ("h264", {"color": {"colorspace": 1, "color_range": 2}}),
    ],
    ids=["size", "size-ts", "depth", "colour"],
)
def test_a_change_in_mid_stream_starts_an_epoch(tmp_path, suffix, changes):
    plain = {"color": {"colorspace": 5, "color_range": 1}}
    parts = [
        make_film(tmp_path / f"{number}.{suffix}", **options)
        for number, options in enumerate([plain, plain | changes, plain])
    ]
    path = joined(tmp_path / f"film.{suffix}", parts)
    got = played(VideoFile(path))
    assert [one.epoch for one in got] == [1] * 3 + [2] * 3 + [3] * 3
    assert same(got, [frame for part in parts for frame in decoded(part)])


# --- What is broken -------------------------------------------------------------------------------


def test_times_of_joined_films_go_on(tmp_path):
    parts = [make_film(tmp_path / f"{i}.ts", frames=3) for i in range(2)]
    film = VideoFile(joined(tmp_path / "film.ts", parts))
    assert [at_ns // 1_000_000 for at_ns, _ in film.frames()] == [0, 40, 80, 120, 160, 200]


def test_text_is_no_film_whatever_ffmpeg_thinks(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("a line\n" * 100)
    with pytest.raises(InvalidArgumentError, match="it is text"):
        VideoFile(text)


@pytest.mark.parametrize(
    ("name", "movflags"), [("film.mkv", ""), ("film.ts", ""), ("film.mp4", "faststart")]
)
def test_a_film_that_breaks_off_is_played_up_to_there(tmp_path, name, movflags):
    path = make_film(tmp_path / name, frames=50, movflags=movflags)
    whole = decoded(path)
    got = played(VideoFile(cut(path, 0.7)))
    assert 10 < len(got) < 50
    sound = got[:-1]  # part of the last may be missing
    assert same(sound, whole[: len(sound)])


def test_a_film_whose_index_is_missing_cannot_be_read(tmp_path):
    path = cut(make_film(tmp_path / "film.mp4", frames=50), 0.9)
    with pytest.raises(InvalidArgumentError, match=r"film\.mp4 cannot be read as video"):
        VideoFile(path)


def test_a_frame_that_cannot_be_decoded_is_left_out(tmp_path):
    path = make_film(tmp_path / "film.mov", codec="png", pix_fmt="rgb24", frames=5)
    data = path.read_bytes()
    second = data.index(b"\x89PNG", data.index(b"\x89PNG") + 1)
    path.write_bytes(data[:second] + bytes(8) + data[second + 8 :])
    got = played(VideoFile(path))
    assert len(got) == 4
    for one, number in zip(got, (0, 2, 3, 4), strict=True):
        assert np.array_equal(one.planes[0], picture(64, 48, number))


@pytest.mark.parametrize("content", [b"", b"no film\n" * 100, bytes(5000)])
def test_what_is_no_film_is_refused(tmp_path, content):
    path = tmp_path / "film.mp4"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"film\.mp4 cannot be read as video"):
        VideoFile(path)


def test_sound_alone_is_no_film(tmp_path):
    path = audio_film(tmp_path / "sound.m4a")
    with pytest.raises(InvalidArgumentError, match=r"sound\.m4a has no video in it"):
        VideoFile(path)


def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(video, "_URL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://me:s3cret@127.0.0.1:{silent.getsockname()[1]}/film.mp4"
        with pytest.raises(TimeoutError, match=r"no answer within 0\.3 s") as caught:
            VideoFile(address)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.mp4"):
        VideoFile(tmp_path / "none.mp4")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        VideoFile(tmp_path)
