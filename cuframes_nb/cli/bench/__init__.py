"""``cuframes-nb bench``: what frames cost on this machine, beside what others would cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

__all__ = ["add_parser"]

SECTIONS: Final = (
    "latency", "cost", "scale", "cameras", "attach", "memory", "conversion", "encode", "video",
)  # fmt: skip

_ABOUT: Final = """\
Measure on this machine, with 1080p NV12 frames:

  latency      from publish() to the frame in a subscriber's hands, what publish() costs and what
               CPU it takes, for 1, 4 and 16 subscribers at 60, 240 and 1000 frames a second; and
               the same for other ways to pass frames between processes
  cost         single calls
  scale        what each further subscriber costs the publisher, up to 64, at 60 frames a second;
               whether any of them sees a torn frame
  cameras      16 cameras at 60 frames a second read by one process
  attach       from subscribe() to the first array, and importing the package
  memory       what a ring of four takes
  conversion   to RGB and to the inputs of networks, beside other libraries
  encode       to JPEG, beside other libraries
  video        decoding and publishing beside decoding alone, one film and several; recording beside
               encoding alone

Without a name, all of them: about eight minutes. Each part is shown when it is done. Ratios between
lines of one run say more than the figures themselves, which depend on the machine and on what else
it does."""


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "bench",
        help="measure latency, throughput and cost on this machine",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="only this part")
    parser.add_argument(
        "--memory",
        choices=("auto", "host", "cuda"),
        default="auto",
        help="where the frames are (default: on a GPU if it can share memory, else the host)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE too")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the figures to FILE.png or FILE.svg"
    )
    parser.add_argument("--quick", action="store_true", help="fewer frames: a rough idea in 60 s")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="keep the publisher's core busy between frames, as a decoder would, instead of asleep",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb.cli.bench import plot, report
    from cuframes_nb.cli.bench.plan import Plan

    sections = [args.section] if args.section else list(SECTIONS)
    if args.plot:
        plot.check_plot(args.plot, sections)
    plan = Plan.make(args.memory, quick=args.quick, busy=args.busy)
    document = report.document(plan)
    report.show_head(document)
    try:
        _measure(plan, sections, document["results"])
    finally:  # interrupted, it has what was measured until then
        if args.json:
            report.write_json(args.json, document)
    if args.plot:
        plot.draw(args.plot, document)
    return 0


def _measure(plan: Any, sections: list[str], results: dict[str, list[dict[str, Any]]]) -> None:
    """Measure one section after the other, and show and keep each when it is done."""
    from cuframes_nb.cli.bench import (
        cameras,
        conversion,
        costs,
        encoding,
        latency,
        report,
        scale,
        video,
    )
    from cuframes_nb.cli.bench.progress import Progress

    steps = {
        "latency": latency.steps,
        "cost": costs.calls,
        "scale": scale.steps,
        "cameras": cameras.steps,
        "attach": costs.attaching,
        "memory": costs.memory,
        "conversion": conversion.conversion,
        "encode": encoding.steps,
        "video": video.steps,
    }
    work = {section: steps[section](plan) for section in sections}
    with Progress(sum(map(len, work.values()))) as progress:
        for section, acts in work.items():
            rows = results[section] = []
            for name, act in acts:
                progress.step(name)
                rows += act()
            report.add_ratios(rows)
            with progress.hidden():
                report.show_section(section, rows)
