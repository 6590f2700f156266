"""The files of a recording: one, and another whenever the frames become others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from cuframes_nb.sinks.codecs import Container
from cuframes_nb.sinks.film import Film, FilmFile, Plan
from cuframes_nb.sinks.info import RecordingInfo
from cuframes_nb.sinks.timeline import Timeline

__all__ = ["Reel"]

_log = logging.getLogger("cuframes_nb.sinks")


class Reel:
    """Writes pictures into files; for one thread, but for `info`.

    Parameters
    ----------
    path
        The first file, which is opened at once.
    container
        What kind of files.
    started_ns
        When the recording began (:func:`cuframes_nb.now_ns`).

    Raises
    ------
    OSError
        If the file cannot be written.
    """

    def __init__(self, path: Path, container: Container, started_ns: int) -> None:
        self._path = path
        self._container = container
        self._started_ns = started_ns
        self._spare: FilmFile | None = FilmFile(path)
        self._films: list[Film] = []
        self._timelines: list[Timeline] = []
        self._frames = 0

    def write(
        self, how: Plan, picture: Any, pts_ns: int, published_ns: int, *, anew: bool, fps: float
    ) -> None:
        """Write a picture, into another file if it is of another plan than the one before.

        Parameters
        ----------
        how
            What the picture was painted by.
        picture
            PyAV's ``VideoFrame``.
        pts_ns, published_ns, anew
            As `Timeline.place`.
        fps
            Nominal frames a second, 0 if unknown.

        Raises
        ------
        OSError
            If it cannot be written; what was written until then can be played.
        UnsupportedError
            If FFmpeg refuses.
        """
        if not self._films or self._films[-1].plan is not how:
            self._begin(how, fps)
        tick = self._timelines[-1].place(pts_ns, published_ns, anew=anew)
        self._films[-1].write(picture, tick)
        self._frames += 1

    def finish(self) -> None:
        """Write what the encoder still holds, and close.

        Raises
        ------
        OSError, UnsupportedError
            As `write`.
        """
        if self._films:
            self._films[-1].finish()

    def abandon(self) -> None:
        """Close what is open, as it is; a file without a frame is removed. Raises nothing."""
        for film in self._films[-1:]:
            film.abandon()
        if self._spare is not None:
            self._spare.close()

    def info(self, skipped: int, ended: str) -> RecordingInfo:
        """Return what there is so far; on any thread."""
        films, timelines = tuple(self._films), tuple(self._timelines)
        encoder = films[-1].plan.encoder if films else None
        return RecordingInfo(
            self._path,
            tuple(film.path for film in films),
            encoder.codec if encoder else "",
            encoder.name if encoder else "",
            self._frames,
            skipped,
            sum(timeline.retimed for timeline in timelines),
            sum(timeline.seconds for timeline in timelines),
            sum(film.nbytes for film in films),
            ended,
        )

    def _begin(self, how: Plan, fps: float) -> None:
        self.finish()
        file, self._spare = self._spare, None
        if file is None:
            file = FilmFile(_next_free(self._path))
            _log.info("%s: the frames are others from here on: see %s", self._path, file.path)
        film = Film(file, self._container, how, fps)
        self._timelines.append(Timeline(self._container.ticks, self._started_ns))
        self._films.append(film)


def _next_free(path: Path) -> Path:
    """Return the first of ``name-2``, ``name-3`` … that is not there: nobody named these."""
    number = 2
    while (other := path.with_stem(f"{path.stem}-{number}")).exists():
        number += 1
    return other
