"""The figures as bars."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

from cuframes_nb.cli.bench.plan import Result
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError

__all__ = ["check_plot", "draw"]

_SUFFIXES: Final = (".png", ".svg")
_NAME: Final = "cuframes_nb"
_OURS: Final = "#1f77b4"
_OTHERS: Final = "#b0b0b0"
_COLUMNS: Final = {
    "scale": ("publish_p50_us", "acquire() and publish(), by subscribers"),
    "cost": ("time_p50_us", "Single calls"),
    "cameras": ("latency_p50_us", "Latency of many cameras"),
    "attach": ("time_p50_us", "Attaching and importing"),
    "conversion": ("time_p50_us", "Conversion"),
    "encode": ("time_p50_us", "Encoding"),
}
"""What is drawn of each section besides latency."""

_WIDE: Final = 30
"""From this ratio of the longest to the shortest bar on, the scale is logarithmic."""


class _Chart(NamedTuple):
    """One panel: bars from top to bottom."""

    title: str
    bars: list[tuple[str, float]]  #: medians in microseconds


def check_plot(path: Path, sections: Collection[str]) -> None:
    """Raise, before anything is measured, if the figures could not be drawn to `path`.

    Raises
    ------
    InvalidArgumentError
        If its name ends otherwise than in ``.png`` or ``.svg``, there is no such folder, or nothing
        in `sections` is drawn.
    UnsupportedError
        If matplotlib is not installed.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidArgumentError(f"--plot writes .png or .svg files, and {path} is neither")
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"--plot {path}: there is no folder {path.parent}")
    drawn = ["latency", *_COLUMNS]
    if not set(sections) & set(drawn):
        raise InvalidArgumentError(
            f"--plot draws {', '.join(drawn)}, and not {', '.join(sections)}"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError(
            "--plot draws with matplotlib, which is not installed: run 'pip install matplotlib', "
            "or keep the figures with --json"
        )


def draw(path: Path, figures: dict[str, Any]) -> None:
    """Draw the document of `report.document` to a file."""
    import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]

    mpl.use("agg")
    from matplotlib import pyplot as plt  # type: ignore[import-not-found, unused-ignore]

    charts = _charts(figures["results"])
    heights = [1.2 + 0.26 * len(chart.bars) for chart in charts]
    figure, panels = plt.subplots(
        len(charts), 1, figsize=(9, sum(heights)), height_ratios=heights, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for panel, chart in zip(panels[:, 0], charts, strict=True):
        _draw_chart(panel, chart)
    figure.suptitle(f"{figures['machine']}, {figures['date']}", fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_chart(panel: Any, chart: _Chart) -> None:
    names = [name for name, _ in chart.bars]
    values = [value for _, value in chart.bars]
    compared = any(_NAME in name for name in names)
    colours = [_OURS if _NAME in name or not compared else _OTHERS for name in names]
    places = range(len(names))
    bars = panel.barh(places, values, color=colours)
    panel.bar_label(bars, [_figure(value) for value in values], padding=3, fontsize=7)
    panel.set_yticks(places, names, fontsize=7)
    panel.invert_yaxis()
    panel.margins(x=0.12)
    panel.set_title(chart.title, fontsize=9, loc="left")
    panel.set_xlabel("median in µs", fontsize=8)
    panel.tick_params(axis="x", labelsize=7)
    if max(values) > _WIDE * min(values):
        panel.set_xscale("log")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _charts(results: dict[str, list[Result]]) -> list[_Chart]:
    """Return a panel for each column that is worth one."""
    found = [
        *_latencies(results.get("latency", [])),
        *(
            _chart(results.get(section, []), column, title)
            for section, (column, title) in _COLUMNS.items()
        ),
    ]
    return [chart for chart in found if chart.bars]


def _latencies(rows: list[Result]) -> list[_Chart]:
    settings = dict.fromkeys((row["rate_fps"], row["subscribers"]) for row in rows)
    return [
        _Chart(
            f"Latency at {rate} fps, {_people(subscribers)}",
            [
                (row["library"], row["latency_p50_us"])
                for row in rows
                if (row["rate_fps"], row["subscribers"]) == (rate, subscribers)
                and row["latency_p50_us"]
            ],
        )
        for rate, subscribers in settings
    ]


def _chart(rows: list[Result], column: str, title: str) -> _Chart:
    return _Chart(title, [(_name(row), row[column]) for row in rows if row.get(column)])


def _name(row: Result) -> str:
    """Return what the row is about: its texts, or its number of subscribers."""
    texts = [value for value in row.values() if isinstance(value, str)]
    return ", ".join(texts) or _people(row["subscribers"])


def _people(subscribers: int) -> str:
    return f"{subscribers} subscriber{'' if subscribers == 1 else 's'}"
