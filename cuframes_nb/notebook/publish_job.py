"""A job that publishes a film or a test pattern."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from cuframes_nb._api.publisher import Publisher
from cuframes_nb._show.quantities import amount
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.notebook.jobs import Job
from cuframes_nb.sources import LiveVideo, Pattern, Source, VideoFile, play, sample_video
from cuframes_nb.sources.opening import is_live_address

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
        if self._source is not None:
            self._source.close()
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
    """Return a film, perhaps scaled, or played faster or slower than it was shot; or a camera.

    Raises
    ------
    OSError, CuframesError
        As :class:`VideoFile` and :class:`LiveVideo`.
    """
    name = os.fspath(path)
    if is_live_address(name):
        camera = LiveVideo(name, size=size, fps=fps)
        return Feature(camera, camera.label)
    where = Path(name).expanduser() if name.startswith("~") else name
    video = VideoFile(where, loop=loop, size=size, fps=fps)
    title = urlsplit(name).hostname or "a film" if "://" in name else Path(name).name
    return Feature(video, title)


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
