"""Where frames come from: cameras, video files, a program's own arrays, a test pattern.

A source says what its frames are and writes them, one by one, into the slots of a publisher::

    from cuframes_nb.sources import open_source, play

    film = open_source("film.mp4", loop=True)  # or rtsp://..., /dev/video0, "pattern"
    with film.publisher("cam1") as pub:
        play(film, pub)
"""

from __future__ import annotations

from cuframes_nb.sources.arrays import from_iterable, from_torch
from cuframes_nb.sources.live import LiveVideo
from cuframes_nb.sources.opening import from_camera, open_source
from cuframes_nb.sources.pattern import Pattern, read_stamp
from cuframes_nb.sources.playing import Source, play
from cuframes_nb.sources.sample import sample_video
from cuframes_nb.sources.video import VideoFile, publish_video

__all__ = [
    "LiveVideo",
    "Pattern",
    "Source",
    "VideoFile",
    "from_camera",
    "from_iterable",
    "from_torch",
    "open_source",
    "play",
    "publish_video",
    "read_stamp",
    "sample_video",
]
