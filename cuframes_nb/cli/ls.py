"""``cuframes-nb ls``: which streams there are."""

from __future__ import annotations

import argparse
import logging
from typing import Any, Final

from cuframes_nb.cli import _output

__all__ = ["add_parser"]

_ABOUT: Final = """\
List the streams that this user may read: all there are, or those named.

All are those of cuframes_nb, this user's GStreamer pipeline at /tmp/gst.cuda.ipc, and those
whose addresses are in $CUFRAMES_STREAMS, such as gst:///tmp/door.ipc.

"memory" says in parentheses what is not as usual: memory that the stream did not make itself, and
frames that are not mapped by descriptor but by legacy handle, or copied.

Sockets that are there and tell of no stream are listed below, each with the reason: its publisher
has ended, does not answer, or is not for this user."""

_log = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "ls",
        help="list the streams there are",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("streams", metavar="KEY", nargs="*", help="only these keys or addresses")
    parser.add_argument("--json", action="store_true", help="print a JSON array of all about each")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb._api.address import place_text
    from cuframes_nb._api.streams import survey
    from cuframes_nb._show.documents import as_json
    from cuframes_nb._show.listings import StreamTable, UnansweredTable

    found = survey(args.streams)
    _log.debug("looked in %s", ", ".join(map(str, found.places)))
    if args.json:
        for socket in found.unanswered:
            _log.info("%s is %s: %s", socket.key, socket.state, socket.reason)
        print(as_json(found.streams, indent=2))
        return 0
    print(StreamTable(found.streams).text(_output.width()))
    if not found.streams and not args.streams:
        print(f"looked in {', '.join(map(place_text, found.places))}")
    if found.unanswered:
        print(f"\n{UnansweredTable(found.unanswered)}")
    return 0
