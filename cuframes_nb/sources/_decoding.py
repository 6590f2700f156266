"""What files and cameras have in common: a container's video, its frames and their times."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, Final

from cuframes_nb._api.pyav import import_av
from cuframes_nb.errors import InvalidArgumentError

__all__ = ["decode", "frame_ns", "rate_of", "time_ns", "video_stream"]

_log = logging.getLogger("cuframes_nb.sources")

_RATE: Final = 25.0
"""Frames a second where neither stream nor frames say anything, as FFmpeg takes it."""


def video_stream(container: Any, number: int, label: str) -> Any:
    """Return a container's video stream of that number.

    Raises
    ------
    InvalidArgumentError
        If there is none.
    """
    streams = container.streams.video
    if not streams:
        raise InvalidArgumentError(f"{label} has no video in it")
    if not 0 <= number < len(streams):
        count = f"{len(streams)} video stream" + "s" * (len(streams) > 1)
        raise InvalidArgumentError(
            f"{label} has {count}, and stream={number} was asked for; they count from 0"
        )
    return streams[number]


def decode(container: Any, stream: Any, label: str) -> Generator[Any]:
    """Yield the frames of a stream; packets that cannot be decoded are left out and told."""
    invalid = import_av().error.InvalidDataError
    broken = 0
    for packet in container.demux(stream):
        try:
            frames = packet.decode()
        except invalid:
            broken += 1
            if broken & (broken - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                _log.warning("%s: %d packets could not be decoded so far", label, broken)
            continue
        yield from frames


def rate_of(stream: Any) -> float:
    """Return a stream's frames a second, 0 if it does not say."""
    return float(stream.average_rate or stream.guessed_rate or 0)


def frame_ns(frame: Any) -> int | None:
    """Return a frame's time in the stream, None if it has none."""
    if frame.pts is None or not frame.time_base:
        return None
    return int(frame.pts * frame.time_base * 1_000_000_000)


def time_ns(frame: Any, number: int, fps: float) -> int:
    """Return a frame's time in the stream; without one, that of the frame of that number."""
    at_ns = frame_ns(frame)
    return at_ns if at_ns is not None else int(number * 1e9 / (fps or _RATE))
