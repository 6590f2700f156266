"""What a recording is at, or came to."""

from __future__ import annotations

import dataclasses
from pathlib import Path

__all__ = ["RecordingInfo"]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingInfo:
    """A recording at one moment.

    Attributes
    ----------
    path
        The file that was asked for.
    paths
        The files that were written: `path`, and one more for each time that the frames changed
        their size, format or colours. Empty before the first frame.
    codec, encoder
        What the last file is coded as (``"h264"``) and by what (``"libx264"``); "" before the
        first frame.
    frames
        Frames written.
    skipped
        Frames that were published meanwhile and are not in the file: gaps in the sequence numbers.
        What was published while the stream was away is not known, and not counted.
    retimed
        Frames whose time was not after that of the frame before, and was changed to be.
    seconds
        Of film: from the first frame of each file to its last.
    nbytes
        Size of the files.
    ended
        ``""`` while it runs; then why it ended: ``"duration"``, ``"frames"``, ``"stopped"``,
        ``"interrupted"``, ``"closed"`` (the stream, in order), ``"lost"`` (its publisher died, and
        the subscriber does not reconnect) or ``"failed"``.
    """

    path: Path
    paths: tuple[Path, ...] = ()
    codec: str = ""
    encoder: str = ""
    frames: int = 0
    skipped: int = 0
    retimed: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    ended: str = ""
