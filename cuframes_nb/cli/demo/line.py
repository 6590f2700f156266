"""The demo's live line."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from cuframes_nb.cli.demo.picture import Facts
    from cuframes_nb.cli.demo.watch import Sample

__all__ = ["LiveLine"]

_BAR: Final = 12
_MOTION_GAIN: Final = 5.0
"""Motion of a fifth of the range fills the bar."""


class LiveLine:
    """One line, updated in place on a terminal, else written once a second.

    Parameters
    ----------
    stream
        Where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._filled, self._empty = _cells(stream.encoding)
        self._next = 0.0
        self._open = False

    def due(self) -> bool:
        """Whether it is time to show something."""
        return time.monotonic() >= self._next

    def show(self, facts: Facts, sample: Sample) -> None:
        """Write what is known now."""
        self._next = time.monotonic() + (0.1 if self._live else 1.0)
        text = (
            f"#{facts.seq:<6} {_rate(facts.fps)} fps  {facts.age_ms:5.2f} ms old  "
            f"skipped {facts.skipped}  dropped {facts.dropped}  {facts.memory}  "
            f"light {self._bar(sample.brightness)}  "
            f"motion {self._bar(sample.motion * _MOTION_GAIN)}"
        )
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            text = f"\r{text[:width]}\x1b[K"
        self._stream.write(text if self._live else f"{text}\n")
        self._stream.flush()
        self._open = self._live

    def end(self) -> None:
        """Leave the line as it is and go on below it."""
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
        self._open = False

    def _bar(self, share: float) -> str:
        filled = min(_BAR, max(0, round(share * _BAR)))
        return self._filled * filled + self._empty * (_BAR - filled)


def _rate(fps: float) -> str:
    """Return a rate, or a dash before there is one."""
    return f"{fps:5.1f}" if fps else "    -"


def _cells(encoding: str | None) -> tuple[str, str]:
    try:
        "█░".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#", "."
    return "█", "░"
