"""A day of video at full speed: what a film, its publisher and a recording hold stays the same."""

import itertools
import threading

import psutil
import pytest

import cuframes_nb as cf
from cuframes_nb.sources import VideoFile, play
from tests.helpers.films import stamped_film
from tests.helpers.leaks import live_threads, open_fds

pytestmark = [pytest.mark.process, pytest.mark.soak]

FRAMES = 100_000


def facts():
    return len(open_fds()), len(live_threads()), psutil.Process().memory_info().rss / 2**20


@pytest.mark.timeout(1200)
def test_a_hundred_thousand_frames_leave_nothing(tmp_path):
    film = stamped_film(tmp_path / "film.mp4", frames=250)
    source = VideoFile(film, loop=True)
    seen = []
    with (
        source.publisher("day", memory="host") as publisher,
        cf.subscribe("day") as subscriber,
        cf.Recording("day", tmp_path / "day.mkv", codec="h264", quality=1) as recording,
    ):
        numbers = itertools.count()

        def stop():
            number = next(numbers)
            if number % 10_000 == 5000:
                seen.append(facts())
            return number >= FRAMES

        done = threading.Event()

        def read():
            while not done.is_set():
                try:
                    with subscriber.next(timeout=1) as frame:
                        frame.y.max()
                except cf.FrameTimeout:
                    continue

        reader = threading.Thread(target=read)
        reader.start()
        try:
            play(source, publisher, fast=True, stop=stop)
        finally:
            done.set()
            reader.join()
        assert publisher.stats.published + publisher.stats.dropped == FRAMES
        assert recording.info.frames > 1000
    (fds, threads, before), *rest = seen[1:]
    assert {(each[0], each[1]) for each in rest} == {(fds, threads)}
    assert max(each[2] for each in rest) - before < 8
