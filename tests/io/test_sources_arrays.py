"""Sources made of what a program has: arrays, PyAV's frames, another stream's frames."""

import contextlib
import itertools
import threading

import av
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.sources import Pattern, from_iterable, play


def published(source, count):
    """Play a source to its end, and return copies of its frames."""
    with (
        source.publisher("made", policy="strict-wait", memory="host") as publisher,
        cf.subscribe("made", mode="strict") as subscriber,
    ):
        player = threading.Thread(target=play, args=(source, publisher), kwargs={"fast": True})
        player.start()
        try:
            frames = []
            for _ in range(count):
                with subscriber.next(timeout=20) as frame:
                    frames.append(frame.copy())
        finally:
            player.join(20)
        assert publisher.stats.published == count
        return frames


def noise(*shape, seed=1):
    return np.random.default_rng(seed).integers(0, 255, shape, np.uint8)


def test_rgb_images_are_converted():
    images = [np.full((48, 64, 3), level, np.uint8) for level in (10, 200)]
    frames = published(from_iterable(image for image in images), 2)
    assert [frame.format for frame in frames] == ["nv12", "nv12"]
    assert [int(frame.rgb()[20, 30, 0]) for frame in frames] == [10, 200]


@pytest.mark.parametrize(
    ("shape", "format_", "described"),
    [
        ((48, 64), None, ("gray8", 64, 48)),
        ((48, 64, 3), "rgb24", ("rgb24", 64, 48)),
        ((48, 64, 4), "rgba32", ("rgba32", 64, 48)),
        ((72, 64), "nv12", ("nv12", 64, 48)),
    ],
)
def test_what_fits_is_published_as_it_is(shape, format_, described):
    array = noise(*shape)
    source = from_iterable([array], format=format_)
    assert (source.format, source.width, source.height) == described
    [frame] = published(source, 1)
    assert np.array_equal(frame.array.reshape(shape), array)


def test_gray_is_what_a_program_calls_gray():
    [frame] = published(from_iterable([np.full((48, 64), 64, np.uint8)]), 1)
    assert frame.color.range == "full"
    assert frame.rgb()[5, 5].tolist() == [64, 64, 64]
    limited = from_iterable([noise(4, 4)], color=cf.ColorSpec("bt601", "limited"))
    assert limited.color.range == "limited"


def test_frames_of_pyav():
    frame = av.VideoFrame.from_ndarray(noise(72, 64), format="nv12")
    [got] = published(from_iterable([frame]), 1)
    assert np.array_equal(got.array, frame.to_ndarray())
    source = from_iterable([av.VideoFrame(64, 48, "yuv420p")])
    assert (source.format, source.width, source.height) == ("nv12", 64, 48)


def test_frames_of_another_stream():
    pattern = Pattern(64, 48, format="p010", frames=1)
    with (
        pattern.publisher("first", memory="host") as publisher,
        cf.subscribe("first") as subscriber,
    ):
        play(pattern, publisher)
        with subscriber.next(timeout=5) as frame:
            [got] = published(from_iterable([frame]), 1)
            assert got.format == "p010"
            assert np.array_equal(got.y, frame.y)


def test_another_size_starts_a_new_epoch():
    frames = published(from_iterable([noise(48, 64), noise(24, 32)]), 2)
    assert [(frame.width, frame.height) for frame in frames] == [(64, 48), (32, 24)]


def test_a_rate_makes_the_times_and_none_means_now():
    assert [at for at, _ in from_iterable([noise(4, 4)] * 3, fps=50).frames()] == [
        0, 20_000_000, 40_000_000,
    ]  # fmt: skip
    source = from_iterable([noise(4, 4)] * 2, fps=None)
    before = cf.now_ns()
    times = [at for at, _ in source.frames()]
    assert before <= times[0] <= times[1] <= cf.now_ns()
    with source.publisher("made", memory="host") as publisher:
        assert publisher.info.fps == 0


def test_it_is_read_once_and_as_it_is_played():
    made = []

    def images():
        for number in range(3):
            made.append(number)
            yield noise(4, 4)

    source = from_iterable(images())
    assert made == [0]
    assert len(list(source.frames())) == 3
    assert list(source.frames()) == []


def test_nothing_yet_is_passed_over_and_lets_the_player_stop():
    source = from_iterable([None, noise(4, 4), None, noise(4, 4)], fps=None)
    assert [item is None for item in source.frames()] == [False, True, False]
    asked = []
    source = from_iterable(itertools.chain([noise(4, 4)], itertools.repeat(None)))
    with source.publisher("made", memory="host") as publisher:
        assert play(source, publisher, stop=lambda: asked.append(1) or len(asked) > 5) == 1


def test_an_error_in_the_iterable_is_the_players():
    def images():
        yield noise(4, 4)
        raise LookupError("the disk is gone")

    source = from_iterable(images())
    with source.publisher("made", memory="host") as publisher:
        with pytest.raises(LookupError, match="the disk is gone"):
            play(source, publisher, fast=True)
        assert publisher.stats.published == 1


@pytest.mark.parametrize(
    ("frames", "options", "match"),
    [
        ([], {}, "no frame"),
        (["text"], {}, "str is no frame"),
        ([np.zeros(5)], {}, r"shape \(5,\) is no frame"),
        ([np.zeros((49, 64), np.uint8)], {"format": "nv12"}, "height \\* 3 / 2 rows"),
        ([np.zeros((4, 4), np.uint8)], {"fps": 0}, "fps is 0"),
    ],
)
def test_what_cannot_be_a_frame_is_refused(frames, options, match):
    with pytest.raises(InvalidArgumentError, match=match):
        from_iterable(frames, **options)


def test_what_comes_later_and_cannot_be_a_frame_is_refused():
    source = from_iterable([noise(4, 4), "text"])
    with (
        contextlib.closing(source.publisher("made", memory="host")) as publisher,
        pytest.raises(InvalidArgumentError, match="str is no frame"),
    ):
        play(source, publisher, fast=True)


def test_slots_are_written_like_publishers():
    with (
        cf.Publisher("made", width=64, height=48, memory="host") as publisher,
        cf.subscribe("made") as subscriber,
    ):
        with publisher.acquire() as slot:
            slot.write(np.full((48, 64, 3), 77, np.uint8))
        with subscriber.next(timeout=5) as frame:
            assert frame.rgb()[10, 10, 0] == 77
        with pytest.raises(cf.ClosedError):
            slot.write(np.zeros((48, 64, 3), np.uint8))
