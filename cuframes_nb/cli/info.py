"""``cuframes-nb info``: all that is known about a stream."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "info",
        help="show all that is known about a stream",
        description="Show what a publisher says about its stream, and who reads it.",
    )
    parser.add_argument("stream", metavar="KEY", help="the stream's key, address or socket")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb._api.streams import stream_info
    from cuframes_nb._show.documents import as_json
    from cuframes_nb._show.listings import info_sheet

    info = stream_info(args.stream)
    print(as_json(info, indent=2) if args.json else info_sheet(info))
    return 0
