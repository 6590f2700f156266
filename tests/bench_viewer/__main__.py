"""What viewers paint, how late, and what it costs: ``python -m tests.bench_viewer``."""

import argparse
import json
from pathlib import Path

from tests.bench_viewer.contenders import CONTENDERS
from tests.bench_viewer.rows import OURS_ONLY, ROWS


def main():
    """Measure, and print each row when it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(map(repr, ROWS))}; without, all")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE too")
    args = parser.parse_args()
    if unknown := set(args.rows) - set(ROWS):
        parser.error(f"there is no row {', '.join(map(repr, unknown))}")
    results = []
    for row in args.rows or ROWS:
        for contender in OURS_ONLY.get(row, [CONTENDERS[name] for name in args.only]):
            figures = ROWS[row](contender)
            results.append({"row": row, "contender": contender.name, **figures})
            print(f"{row} · {contender.name}\n    {_line(figures)}", flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _line(figures):
    return ", ".join(f"{name} {value}" for name, value in figures.items())


if __name__ == "__main__":
    main()
