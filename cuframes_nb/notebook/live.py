"""A job's state under the cell that began it."""

from __future__ import annotations

import contextvars
import functools
import shlex
import sys
from collections.abc import Callable
from typing import Any

from IPython import display as ipython_display

from cuframes_nb._show.quantities import amount, rate_text
from cuframes_nb._show.tables import clean, escape
from cuframes_nb.notebook.jobs import JobStatus, Tell

__all__ = ["html", "live_status", "text"]

_display: Any = ipython_display.display  # without types where IPython has them
_ENDED = ("stopped", "finished", "failed")


def live_status(status: JobStatus, *, rich: bool) -> Tell:
    """Show a job's state; return what shows it anew, from any thread.

    Parameters
    ----------
    status
        The first to show.
    rich
        Whether a page shows outputs and can change them, as in Jupyter; a terminal can only be
        printed to, so there only what is news is told.
    """
    if not rich:
        print(text(status))  # noqa: T201  a terminal's output
        return _Printer().tell
    handle = _display(_bundle(status), raw=True, display_id=True)
    return functools.partial(_update, handle)


def _update(handle: Any, status: JobStatus) -> None:
    # In an empty context the message counts as an output of the cell that runs now. Pages find the
    # place by the display's id anyway, and what executes a notebook without a page listens to the
    # running cell only.
    contextvars.Context().run(handle.update, _bundle(status), raw=True)


def _bundle(status: JobStatus) -> dict[str, str]:
    return {"text/html": html(status), "text/plain": text(status)}


class _Printer:
    """Prints new kinds of errors, and how a job ended."""

    def __init__(self) -> None:
        self._told = 0

    def tell(self, status: JobStatus) -> None:
        """Print what is news."""
        news = [_lines(failure.traceback) for failure in status.failures[self._told :]]
        self._told = len(status.failures)
        if status.state in _ENDED:
            news.append(_line(status))
        if news:
            print("\n".join(news), file=sys.stderr)  # noqa: T201  a terminal's output


def text(status: JobStatus) -> str:
    """Return a job's state as text: a line, and each kind of error with its first traceback."""
    errors = (f"{_times(f.count)}: {_lines(f.traceback)}" for f in status.failures)
    return "\n".join([_line(status), *errors])


def html(status: JobStatus) -> str:
    """Return a job's state as HTML."""
    name, _, rest = _line(status).partition(": ")
    errors = "".join(
        f"<details open><summary>{escape(f'{_times(f.count)}: {f.what}')}</summary>"
        f"<pre>{_lines(f.traceback, escape)}</pre></details>"
        for f in status.failures
    )
    return f"<div><strong>{escape(name)}</strong>: {escape(rest)}{errors}</div>"


def _line(status: JobStatus) -> str:
    """Return a job's state in one line."""
    what = {"cell": "job", "publish": "publisher", "record": "recording"}[status.kind]
    parts = [
        f"{what} {status.name}: {status.state}",
        amount(status.frames, "frame"),
        f"{rate_text(status.fps)} fps" if status.fps else "",
        amount(status.errors, "error") if status.errors else "",
        status.note,
    ]
    return clean(", ".join(filter(None, parts)) + _way_out(status))


def _way_out(status: JobStatus) -> str:
    if status.state in _ENDED:
        return ""
    return f" (to end it: %cuframes stop {shlex.quote(status.name)})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _lines(trace: str, shown: Callable[[str], str] = clean) -> str:
    """Return a traceback with each line as `shown` returns it."""
    return "\n".join(shown(line.expandtabs()) for line in trace.rstrip().split("\n"))
