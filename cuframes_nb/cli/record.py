"""``cuframes-nb record``: a stream as a film."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuframes_nb._show import arguments
from cuframes_nb.cli._signals import Interrupts

if TYPE_CHECKING:
    from cuframes_nb.sinks import RecordingInfo

__all__ = ["add_parser"]

_ABOUT: Final = """\
Record a stream into a film, until Ctrl-C, a limit, or the end of the stream.

The film has the colours and times of the frames. It can be played while it is written, and after
this process was killed. A publisher that dies is waited for; frames that come faster than they can
be encoded are left out and counted, and the publisher never waits."""

_EPILOG: Final = """\
examples:
  cuframes-nb record cam1 cam1.mp4                 until Ctrl-C
  cuframes-nb record cam1 cam1.mkv --seconds 60    a minute
  cuframes-nb record cam1 cam1.mkv --codec ffv1    without loss"""

_LOOK_SECONDS: Final = 0.25


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "record",
        help="record a stream into a film",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stream", metavar="KEY", help="the stream's key or address")
    parser.add_argument("film", type=Path, metavar="FILE", help="ends in .mp4, .mov or .mkv")
    parser.add_argument("--seconds", type=arguments.seconds, metavar="S", help="end after so long")
    parser.add_argument(
        "--frames", type=arguments.count, metavar="N", help="end after so many frames"
    )
    parser.add_argument(
        "--codec",
        choices=("auto", "h264", "hevc", "av1", "ffv1"),
        default="auto",
        help="how it is coded (default: H.264, on the GPU that holds the frames if it can)",
    )
    parser.add_argument(
        "--quality", type=int, metavar="Q", help="1 to 100 (default: a good one of the codec)"
    )
    parser.add_argument("--json", action="store_true", help="print what it came to as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb.sinks import Recording

    recording = Recording(
        args.stream, args.film, codec=args.codec, duration=args.seconds, frames=args.frames,
        quality=args.quality,
    )  # fmt: skip
    is_live = sys.stderr.isatty()
    try:
        with Interrupts() as interrupts:
            while not recording.wait(_LOOK_SECONDS) and not interrupts.came:
                if is_live:
                    print(f"\r{_line(recording.info)}\x1b[K", end="", file=sys.stderr, flush=True)
            info = recording.stop()
    finally:
        recording.close()  # also after a second interrupt
        if is_live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    print(_as_json(info) if args.json else _summary(info))
    return 0


def _line(info: RecordingInfo) -> str:
    skipped = f", {info.skipped} skipped" if info.skipped else ""
    size = f"{info.nbytes / 1e6:.1f} MB"
    return f"{info.seconds:.1f} s, {info.frames} frames, {size}{skipped}; Ctrl-C ends it"


def _summary(info: RecordingInfo) -> str:
    if not info.paths:
        return f"no frame came: {info.path} was not written"
    names = ", ".join(map(str, info.paths))
    skipped = f"; {info.skipped} frames of the stream are not in it" if info.skipped else ""
    return (
        f"{names}: {info.frames} frames, {info.seconds:.1f} s, {info.nbytes / 1e6:.1f} MB, "
        f"{info.codec} by {info.encoder}{skipped}"
    )


def _as_json(info: RecordingInfo) -> str:
    return json.dumps(dataclasses.asdict(info), default=str)
