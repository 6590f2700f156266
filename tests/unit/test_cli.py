"""The command line: what it accepts, and how it ends."""

import pytest

from cuframes_nb import cli
from cuframes_nb.cli.bench import report
from cuframes_nb.errors import DeviceError

NAMES = (
    "demo", "publish", "ls", "info", "top", "record", "snapshot", "doctor", "bench", "completion",
)  # fmt: skip


INTERVALS = ("0", "-1", "soon", "0.01", "25h")
WRONG = [
    ["nothing"], ["demo", "--seconds", "soon"], ["bench", "x"], ["ls", "--x"], ["info"],
    ["top", "--count", "0"], ["completion", "tcsh"],
    *(["top", f"--interval={text}"] for text in INTERVALS),
]  # fmt: skip


def test_without_a_command_the_help_is_shown(capsys):
    assert cli.main([]) == 0
    assert "start here" in capsys.readouterr().out


@pytest.mark.parametrize("argv", WRONG)
def test_wrong_usage_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert "usage: cuframes-nb" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in NAMES),
    ],
)
def test_help_is_given(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DeviceError("no GPU:\n  none"), "cuframes-nb: no GPU: none\n"),
        (FileNotFoundError(2, "No such file", "a.mp4"), "cuframes-nb: a.mp4: No such file\n"),
    ],
)
def test_an_error_is_one_line_and_ends_with_1(error, line, monkeypatch, capsys):
    def fail(args):
        raise error

    monkeypatch.setattr(cli.demo, "run", fail)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr() == ("", line)


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.demo, "run", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == ""


def test_a_latency_is_set_beside_the_best_peers():
    def row(library, latency):
        return {
            "library": library, "rate_fps": 60, "subscribers": 1, "latency_p50_us": latency
        }  # fmt: skip

    rows = [row("cuframes_nb", 10.0), row("a", 50.0), row("b", 30.0)]
    report.add_ratios(rows)
    assert [r.get("peer_ratio") for r in rows] == [3.0, None, None]


def test_tables_are_markdown_where_nobody_looks(capsys):
    report.show_section("cost", [{"call": "a()", "time_p50_us": 1234.5}])
    assert "| a() | 1,234.5 |" in capsys.readouterr().out
