"""``cuframes-nb devices``: which GPUs there are."""

from __future__ import annotations

import argparse
from typing import Any, Final

from cuframes_nb.cli import _output

__all__ = ["add_parser"]

_ABOUT: Final = """\
List the GPUs of this machine, also those that are hidden from this process, and by what.

The GPU that a publisher would use comes last, with the reason. Nothing is started on any GPU."""

_EPILOG: Final = """\
environment:
  CUFRAMES_DEVICE        GPU to use: UUID, its beginning, PCI bus id or CUDA ordinal
  CUDA_VISIBLE_DEVICES   GPUs that CUDA shows to a process, and their ordinals there"""


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "devices",
        help="list the GPUs there are",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array of all about each")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb._api.devices import devices
    from cuframes_nb._show.documents import as_json
    from cuframes_nb._show.listings import DeviceTable

    found = devices()
    if args.json:
        print(as_json(found, indent=2))
        return 0
    print(DeviceTable(found).text(_output.width()))
    if found:
        print(f"\n{_choice()}")
    return 0


def _choice() -> str:
    """Return which GPU a publisher would use, or why none."""
    from cuframes_nb._api.devices import select_device
    from cuframes_nb.errors import CuframesError

    try:
        chosen = select_device()
    except CuframesError as error:
        return f"A publisher would use none of them: {error}"
    return f"A publisher would use GPU {chosen.ordinal}, {chosen.name}: {chosen.reason}"
