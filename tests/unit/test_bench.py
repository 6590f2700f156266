"""The benchmark's bars, and what it says where they cannot be drawn."""

import importlib.util
import json

import pytest

import cuframes_nb as cf
from cuframes_nb import cli
from cuframes_nb.cli.bench import SECTIONS, costs, plot, report, scale
from cuframes_nb.cli.bench.pacing import Phase

RESULTS = {
    "latency": [
        {"library": name, "rate_fps": 60, "subscribers": count, "latency_p50_us": latency}
        for name, count, latency in (
            ("cuframes_nb", 1, 10.0), ("a queue", 1, 900.0), ("cuframes_nb", 4, 11.0),
        )
    ],
    "scale": [
        {"subscribers": count, "publish_p50_us": cost} for count, cost in ((1, 9.0), (4, 12.0))
    ],
    "cost": [{"call": "latest()", "time_p50_us": 8.0}],
    "memory": [{"what": "ring", "bytes": 5}],
    "conversion": [{"conversion": "to RGB", "library": "cuframes_nb", "time_p50_us": 7.0}],
}  # fmt: skip


def test_there_is_a_panel_for_each_setting_and_section():
    charts = plot._charts(RESULTS)
    assert [len(chart.bars) for chart in charts] == [2, 1, 2, 1, 1]
    assert charts[0].title == "Latency at 60 fps, 1 subscriber"
    assert charts[0].bars == [("cuframes_nb", 10.0), ("a queue", 900.0)]
    assert charts[2].bars == [("1 subscriber", 9.0), ("4 subscribers", 12.0)]
    assert charts[4].bars == [("to RGB, cuframes_nb", 7.0)]


def test_a_plot_that_cannot_be_drawn_is_told_before_measuring(tmp_path, monkeypatch):
    with pytest.raises(cf.InvalidArgumentError, match=r"\.png or \.svg"):
        plot.check_plot(tmp_path / "bars.pdf", SECTIONS)
    with pytest.raises(cf.InvalidArgumentError, match="no folder"):
        plot.check_plot(tmp_path / "x" / "bars.png", SECTIONS)
    with pytest.raises(cf.InvalidArgumentError, match="and not memory"):
        plot.check_plot(tmp_path / "bars.png", ["memory"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(cf.UnsupportedError, match="pip install matplotlib"):
        plot.check_plot(tmp_path / "bars.png", SECTIONS)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_bars_are_drawn(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bars{suffix}"
    plot.check_plot(path, SECTIONS)
    plot.draw(path, {"machine": "m", "date": "d", "results": RESULTS})
    assert path.stat().st_size > 1000


def test_rows_of_a_library_without_latency_are_left_alone():
    row = {"conversion": "to RGB", "library": "cuframes_nb", "time_p50_us": 7.0}
    rows = [dict(row)]
    report.add_ratios(rows)
    assert rows == [row]


def test_each_further_subscriber_is_set_against_the_fewest():
    first = []
    rows = [
        scale._result(
            count, Phase(100, 1, 10, [cost * 1000] * 10, cost / 1000), 0, [(10 * count, 0)], first
        )
        for count, cost in ((1, 10), (4, 16), (16, 40))
    ]
    assert [row["each_further_us"] for row in rows] == [None, 2.0, 2.0]
    assert [row["each_further_cpu_us"] for row in rows] == [None, 20.0, 20.0]
    assert [row["delivered_percent"] for row in rows] == [100.0] * 3


def test_what_was_measured_until_an_interrupt_is_shown_and_kept(tmp_path, monkeypatch, capsys):
    def interrupted():
        # The part before was shown when it was done, not at the end.
        assert "| a() | 1,234.5 |" in capsys.readouterr().out
        raise KeyboardInterrupt

    rows = [{"call": "a()", "time_p50_us": 1234.5}]
    monkeypatch.setattr("cuframes_nb.cli.bench.SECTIONS", ("cost", "memory", "attach"))
    monkeypatch.setattr(costs, "calls", lambda _: [("a", lambda: rows)])
    monkeypatch.setattr(costs, "memory", lambda _: [("b", interrupted)])
    file = tmp_path / "figures.json"
    assert cli.main(["bench", "--memory", "host", "--json", str(file)]) == 130
    assert json.loads(file.read_text())["results"] == {"cost": rows, "memory": []}
