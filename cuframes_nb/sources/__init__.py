"""Where frames come from when no camera is at hand: video files and a test pattern.

A source says what its frames are and writes them, one by one, into the slots of a publisher::

    from cuframes_nb.sources import VideoFile, play

    film = VideoFile("film.mp4", loop=True)
    with film.publisher("cam1") as pub:
        play(film, pub)
"""

from __future__ import annotations

from cuframes_nb.sources.pattern import Pattern, read_stamp
from cuframes_nb.sources.playing import Source, play
from cuframes_nb.sources.sample import sample_video
from cuframes_nb.sources.video import VideoFile, publish_video

__all__ = [
    "Pattern",
    "Source",
    "VideoFile",
    "play",
    "publish_video",
    "read_stamp",
    "sample_video",
]
