"""``cuframes-nb snapshot``: one frame as a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

__all__ = ["add_parser"]

_ABOUT: Final = """\
Save the newest frame of a stream, in full size.

  .png          RGB, exact
  .jpg          RGB
  .npy          the rows of all planes, as NumPy reads them
  .yuv, .nv12   the planes one after the other, without padding

The file is there when it is whole, or not at all."""


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "snapshot",
        help="save one frame of a stream",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stream", metavar="KEY", help="the stream's key or address")
    parser.add_argument("file", type=Path, metavar="FILE", help="its ending says what is saved")
    parser.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="S",
        help="how long to wait for the stream and a frame (default: %(default)g s)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb.sinks import snapshot

    print(snapshot(args.stream, args.file, timeout=args.timeout))
    return 0
