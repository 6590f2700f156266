"""A job that records a stream."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

from cuframes_nb._show.quantities import bytes_text, seconds_text
from cuframes_nb.notebook.jobs import Job
from cuframes_nb.sinks import Recording

__all__ = ["RecordJob", "film_of"]

_LOOK_SECONDS: Final = 0.1
"""How often it looks whether to stop."""


class RecordJob(Job):
    """Records until the recording ends, or it is stopped; then the file is finished.

    Parameters
    ----------
    name
        What the job is called.
    key
        The stream.
    recording
        Is stopped at the end.
    """

    kind = "record"

    def __init__(self, name: str, key: str, recording: Recording) -> None:
        super().__init__(name, key)
        self._recording = recording
        self._count()

    def _work(self) -> str:
        while not self._recording.wait(_LOOK_SECONDS) and not self._stopping.is_set():
            self._count()
            self._report()
        self._recording.stop()
        self._count()
        return "stopped" if self._stopping.is_set() else "finished"

    def _count(self) -> None:
        info = self._recording.info
        self._frames = info.frames
        files = ", ".join(str(path) for path in info.paths or (info.path,))
        skipped = f", {info.skipped:,} frames skipped" if info.skipped else ""
        self._note = f"{files}, {seconds_text(info.seconds)}, {bytes_text(info.nbytes)}{skipped}"

    def _close(self) -> None:
        self._recording.close()


def film_of(key: str) -> Path:
    """Return a name for a film of a stream that begins now, in the current directory."""
    return Path(f"{Path(key).stem}-{dt.datetime.now().astimezone():%Y%m%d-%H%M%S}.mp4")
