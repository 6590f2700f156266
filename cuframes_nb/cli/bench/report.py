"""The figures as a document and as tables."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import cuframes_nb as cf
from cuframes_nb.cli.bench.latency import OURS, SPINNING
from cuframes_nb.cli.bench.plan import Plan, Result

__all__ = ["add_ratios", "document", "show_head", "show_section", "write_json"]

_OURS: Final = (OURS, SPINNING)

_LIBRARIES: Final = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "cuda-bindings", "torch", "av")

_TITLES: Final = {
    "library": "", "rate_fps": "fps", "subscribers": "subs", "latency_p50_us": "latency p50 µs",
    "latency_p99_us": "p99 µs", "publish_p50_us": "publish p50 µs", "publish_p99_us": "p99 µs",
    "delivered_percent": "delivered %", "publisher_cpu_percent": "publisher CPU %",
    "subscriber_cpu_percent": "subscriber CPU %", "peer_ratio": "best peer / ours",
    "call": "", "what": "", "conversion": "", "video": "", "cameras": "", "encoder": "",
    "cpu_us": "publisher CPU a frame µs", "each_further_us": "each further µs",
    "each_further_cpu_us": "in CPU µs", "dropped": "dropped", "looked_at": "frames looked at",
    "host_p50_us": "host p50 µs",
    "time_p50_us": "p50 µs", "time_p99_us": "p99 µs",
}  # fmt: skip


def document(plan: Plan) -> dict[str, Any]:
    """Return what has to be known about the figures, and where they belong: in ``"results"``."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": _machine(plan),
        "versions": _versions(),
        "memory": plan.memory,
        "memory_reason": plan.memory_reason,
        "quick": plan.quick,
        "busy": plan.busy,
        "results": {},
    }


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Write the document to a file."""
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def show_head(figures: dict[str, Any]) -> None:
    """Print what has to be known about the figures."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    print(f"{figures['date']}, {figures['machine']}\n{versions}")
    print(
        f"{figures['memory']} memory ({figures['memory_reason']}); frames of 1080p NV12", flush=True
    )


def show_section(name: str, rows: list[Result]) -> None:
    """Print a table: by rich on a terminal, else in Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    titles = [_TITLES.get(column, column.replace("_", " ")) for column in columns]
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    _show_table(name, titles, cells)
    sys.stdout.flush()  # to whoever reads along


def add_ratios(rows: list[Result]) -> None:
    """Say beside each of our latencies how many times as long the best peer takes."""
    for row in rows:
        if row.get("library") not in _OURS or not row.get("latency_p50_us"):
            continue
        rivals = [
            other["latency_p50_us"]
            for other in rows
            if other["library"] not in _OURS
            and (other["rate_fps"], other["subscribers"]) == (row["rate_fps"], row["subscribers"])
            and other["latency_p50_us"]
        ]
        if rivals:
            row["peer_ratio"] = round(min(rivals) / row["latency_p50_us"], 1)


def _show_table(name: str, titles: list[str], cells: list[list[str]]) -> None:
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            table = Table(title=name, title_justify="left")
            for index, title in enumerate(titles):
                table.add_column(title, justify="right" if index else "left")
            for row in cells:
                table.add_row(*row)
            Console().print(table)
            return
    _print_markdown(name, titles, cells)


def _print_markdown(name: str, titles: list[str], cells: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [titles, *cells]) for i in range(len(titles))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    print(f"\n### {name}\n")
    for row in [titles, rule, *cells]:
        padded = [row[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print(f"| {' | '.join(padded)} |")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _machine(plan: Plan) -> str:
    cores = len(os.sched_getaffinity(0))
    text = f"{cores} cores {platform.machine()}, Linux {platform.release().split('-')[0]}"
    if plan.memory == "cuda":
        names = sorted({device.name for device in cf.devices()})
        text = f"{' and '.join(names)}, {text}"
    return text


def _versions() -> dict[str, str]:
    found = {"cuframes_nb": cf.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
