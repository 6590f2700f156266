"""A job that publishes a film or a test pattern."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from cuframes_nb._api.publisher import Publisher
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.notebook.jobs import Job
from cuframes_nb.notebook.quantities import amount
from cuframes_nb.sources import Pattern, Source, VideoFile, play, sample_video

__all__ = ["Feature", "PublishJob", "film", "film_or_pattern", "pattern"]

_SIZE: Final = (1280, 720)
_FPS: Final = 30.0


class Feature(NamedTuple):
    """What is played."""

    source: Source
    title: str  #: what people call it


class PublishJob(Job):
    """Publishes a source in real time until it ends.

    Parameters
    ----------
    name
        What the job is called.
    feature
        What to play.
    publisher
        Where; closed at the end.
    """

    kind = "publish"

    def __init__(self, name: str, feature: Feature, publisher: Publisher) -> None:
        super().__init__(name, publisher.key)
        self._source: Source | None = feature.source
        self._publisher = publisher
        info = publisher.info
        where = f"{info.width}x{info.height} {info.format} in {info.memory} memory"
        self._note = self._what = f"{feature.title}, {where}"

    def _work(self) -> str:
        assert self._source is not None  # noqa: S101  given up at the end only
        play(self._source, self._publisher, stop=self._shall_stop)
        self._count()
        return "stopped" if self._stopping.is_set() else "finished"

    def _shall_stop(self) -> bool:
        self._count()
        self._report()
        return self._stopping.is_set()

    def _count(self) -> None:
        stats = self._publisher.stats
        self._frames = stats.published
        dropped = f", {stats.dropped:,} dropped" if stats.dropped else ""
        self._note = f"{self._what}, {amount(stats.subscribers, 'subscriber')}{dropped}"

    def _close(self) -> None:
        self._source = None
        self._publisher.close()


def pattern(size: tuple[int, int] | None = None, fps: float | None = None) -> Feature:
    """Return a test pattern without end."""
    width, height = size or _SIZE
    return Feature(Pattern(width, height, fps=fps or _FPS), "a test pattern")


def film(
    path: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    fps: float | None = None,
    loop: bool = True,
) -> Feature:
    """Return a film, perhaps scaled, or played faster or slower than it was shot.

    Raises
    ------
    OSError, CuframesError
        As :class:`VideoFile`.
    """
    name = os.fspath(path)
    video = VideoFile(Path(name).expanduser() if name.startswith("~") else name, loop=loop)
    title = urlsplit(name).hostname or "a film" if "://" in name else Path(name).name
    return Feature(video if size is None and fps is None else _Adapted(video, size, fps), title)


def film_or_pattern(
    *, size: tuple[int, int] | None = None, fps: float | None = None, loop: bool = True
) -> Feature:
    """Return the sample film, or a test pattern where it or PyAV is not installed."""
    path = sample_video()
    if path is not None:
        try:
            return film(path, size=size, fps=fps, loop=loop)
        except UnsupportedError:
            pass
    return pattern(size, fps)


class _Adapted(Source):
    """A film at another size or rate."""

    def __init__(self, video: VideoFile, size: tuple[int, int] | None, fps: float | None) -> None:
        self._video, self._size, self._rate = video, size, fps
        self._look_at()

    def frames(self) -> Iterator[tuple[int, Any]]:
        """Yield PyAV's frames with their times in nanoseconds from the first."""
        for number, (at_ns, frame) in enumerate(self._video.frames()):
            scaled = frame.reformat(*self._size) if self._size else frame
            self._look_at()
            yield (int(number * 1e9 / self._rate) if self._rate else at_ns), scaled

    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Copy a frame into `slot`."""
        self._video.write(slot, frame)

    def _look_at(self) -> None:
        video = self._video
        self.width, self.height = self._size or (video.width, video.height)
        self.format, self.color = video.format, video.color
        self.fps = self._rate or video.fps
