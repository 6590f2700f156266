"""``cuframes-nb doctor``: what this machine can do, and why not."""

from __future__ import annotations

import argparse
from typing import Any, Final

from cuframes_nb.cli import _output

__all__ = ["add_parser"]

_ABOUT: Final = """\
Find out what works on this machine, by trying it.

It publishes a small stream to itself, in host memory and on each GPU, codes a frame with each
encoder, and imports what is installed. Nothing of it stays. For what is missing or does not work it
says what to do."""

_EPILOG: Final = """\
status:
  ok         it works
  warn       it works, and something is to be known
  missing    it is not there; what needs it does not work
  failed     it is there and does not work

It ends with 0 if everything works that sharing frames needs, else with 1."""


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="find out what works on this machine",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb._doctor.examination import examine
    from cuframes_nb._doctor.report import Report
    from cuframes_nb._show.documents import as_json, document

    report = Report(examine())
    if args.json:
        print(as_json({"works": report.works, "checks": document(report.checks)}, indent=2))
    else:
        print(report.text(_output.width()))
    return 0 if report.works else 1
