"""Where frames go to be kept: films, pictures and raw planes.

The two functions are also at the root of the package::

    import cuframes_nb as cf

    cf.snapshot("cam1", "now.png")
    info = cf.record("cam1", "minute.mp4", duration=60)

and `Recording` records in the background.
"""

from __future__ import annotations

from cuframes_nb.sinks.files import jpeg, png, write_whole
from cuframes_nb.sinks.info import RecordingInfo
from cuframes_nb.sinks.recording import Recording, record
from cuframes_nb.sinks.snapshots import snapshot

__all__ = [
    "Recording",
    "RecordingInfo",
    "jpeg",
    "png",
    "record",
    "snapshot",
    "write_whole",
]
