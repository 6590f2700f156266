"""What the library logs, on stderr: as lines for people, or with priorities for journald."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Final

__all__ = ["add_option", "priority", "to_stderr", "verbosity"]

_LIBRARY: Final = "cuframes_nb"

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
"""What is shown of the library, by how often ``-v`` is given."""

_PRIORITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))
"""Levels from which on a line has one of syslog's priorities, sd-daemon(3)."""


def add_option(parser: argparse.ArgumentParser, *, place: str) -> None:
    """Add ``-v``, which may stand before a command and behind it.

    Parameters
    ----------
    place
        Tells the two apart: argparse has what is behind the command replace what is before it.
    """
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        dest=f"verbose_{place}",
        help="say more on stderr; -vv says all",
    )


def verbosity(args: argparse.Namespace) -> int:
    """Return how often ``-v`` was given, wherever it was."""
    given = vars(args).items()
    return sum(count for name, count in given if name.startswith("verbose_"))


@contextlib.contextmanager
def to_stderr(times: int) -> Iterator[None]:
    """Show what is logged in this block; of other libraries warnings only.

    Parameters
    ----------
    times
        How often ``-v`` was given.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(prioritised=_reads_priorities()))
    root, ours = logging.getLogger(), logging.getLogger(_LIBRARY)
    before = ours.level
    ours.setLevel(_LEVELS[min(times, len(_LEVELS) - 1)])
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)


def priority(level: int) -> str:
    """Return what begins a line of that level on stderr: nothing, except for journald."""
    return _mark(level) if _reads_priorities() else ""


class _Lines(logging.Formatter):
    """``cuframes-nb: warning: ...``; a traceback follows in lines of its own."""

    def __init__(self, *, prioritised: bool) -> None:
        super().__init__("%(message)s")
        self._prioritised = prioritised

    def format(self, record: logging.LogRecord) -> str:
        said, *more = super().format(record).splitlines() or [""]
        lines = [f"cuframes-nb: {record.levelname.lower()}: {said}", *more]
        mark = _mark(record.levelno) if self._prioritised else ""
        return "\n".join(f"{mark}{_shown(line)}" for line in lines)


def _shown(line: str) -> str:
    """Return a line that does nothing to a terminal, whatever names of others are in it."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)


def _mark(level: int) -> str:
    return next(f"<{number}>" for least, number in _PRIORITIES if level >= least)


def _reads_priorities() -> bool:
    """Whether stderr goes to journald: it says device and inode, systemd.exec(5)."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # stderr is closed, or no file
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
