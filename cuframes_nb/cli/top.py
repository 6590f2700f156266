"""``cuframes-nb top``: what all streams do, again and again."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import itertools
import signal
import time
from typing import TYPE_CHECKING, Any, Final, Self

from cuframes_nb._show import arguments

if TYPE_CHECKING:
    from cuframes_nb._api.streams import Survey
    from cuframes_nb._show.activity import Activity
    from cuframes_nb.cli._screens import Screen

__all__ = ["add_parser"]

_ABOUT: Final = """\
Show what streams do, all or those named, until Ctrl-C.

Rates are measured between two looks, so they are there from the second on. Where stdout is no
terminal, each look is a table of its own."""

_EPILOG: Final = """\
columns:
  fps       frames published a second
  age       since the last frame
  drops/s   frames a second that found no free slot; drops counts them all
  memory    of all slots of the ring
  in        what kind of memory, and in parentheses what is not as usual: made by somebody else,
            mapped by legacy handle, copied
  last      who reads, and how many of the slots each holds"""

_LEAST_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 86_400.0


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "top",
        help="watch what all streams do",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("streams", metavar="KEY", nargs="*", help="only these keys or addresses")
    parser.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="S",
        help="seconds from look to look (default: %(default)g)",
    )
    parser.add_argument(
        "--count", type=arguments.count, metavar="N", help="end after so many looks"
    )
    parser.add_argument("--json", action="store_true", help="print each look as a line of JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    with _Signals() as signals:  # first of all: threads that are started later leave them to us
        from cuframes_nb._api.streams import survey
        from cuframes_nb._show.activity import ActivityTable, Meter
        from cuframes_nb.cli import _screens

        meter = Meter()
        with contextlib.ExitStack() as stack:
            screen = None if args.json else stack.enter_context(_screens.best())
            for number in itertools.count(1):
                end = time.monotonic() + args.interval
                found = survey(args.streams)
                activities = meter.look(found.streams)
                if screen is None:
                    print(_as_json(activities, found), flush=True)
                else:
                    now = dt.datetime.now().astimezone().strftime("%H:%M:%S")
                    screen.show(ActivityTable(activities, found.unanswered, now))
                if number == args.count or _ends(signals, screen, end):
                    return 0
    raise AssertionError("there is always a next look")


def _ends(signals: _Signals, screen: Screen | None, end: float) -> bool:
    """Wait for the next look; return whether there shall be none."""
    while (number := signals.wait(end - time.monotonic())) is not None:
        if number == signal.SIGTSTP:
            if screen is not None:
                screen.stop()
            signals.suspend()
            if screen is not None:
                screen.start()
        elif number == signal.SIGWINCH:
            if screen is not None:
                screen.redraw()
        else:
            return True
    return False


class _Signals:
    """Keeps signals from interrupting anything: they are taken where one waits.

    So the terminal is given back whole whenever they come, before a suspension too.
    """

    _ENDS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
    _TAKEN: Final = _ENDS | {signal.SIGTSTP, signal.SIGWINCH}

    def __enter__(self) -> Self:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._TAKEN)
        return self

    def __exit__(self, *exc_info: object) -> None:
        while signal.sigtimedwait(self._TAKEN, 0) is not None:
            pass  # a second Ctrl-C asks for what is being done
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, seconds: float) -> int | None:
        """Return the next signal, None if none came within so many seconds."""
        taken = signal.sigtimedwait(self._TAKEN, max(0.0, seconds))
        return None if taken is None else taken.si_signo

    def suspend(self) -> None:
        """Do what Ctrl-Z asks for; returns when the shell has this process go on."""
        signal.raise_signal(signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _interval(text: str) -> float:
    seconds = arguments.seconds(text)
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not between {_LEAST_SECONDS:g} s and a day")
    return seconds


def _as_json(activities: list[Activity], found: Survey) -> str:
    from cuframes_nb._show.activity import activity_document
    from cuframes_nb._show.documents import as_json, document

    return as_json({
        "time": dt.datetime.now(dt.UTC).isoformat(),
        "streams": activity_document(activities),
        "unanswered": document(found.unanswered),
    })  # fmt: skip
