"""What the library logs, as the command line shows it."""

import logging
import os

import pytest

from cuframes_nb import cli
from cuframes_nb.cli import _logging
from cuframes_nb.errors import DeviceError

ours, others = logging.getLogger("cuframes_nb.sinks"), logging.getLogger("others")


@pytest.fixture
def journal(monkeypatch, capfd):
    """Have stderr be what journald reads."""
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    return capfd


def say_everything():
    for logger in (ours, others):
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)("%s %s", logger.name, level)


@pytest.mark.parametrize(
    ("times", "quiet"), [(0, {"debug", "info"}), (1, {"debug"}), (2, set()), (9, set())]
)
def test_more_is_said_the_more_often_it_is_asked_for(times, quiet, capsys):
    with _logging.to_stderr(times):
        say_everything()
    levels = ["debug", "info", "warning", "error"]
    expected = [f"cuframes-nb: {w}: cuframes_nb.sinks {w}" for w in levels if w not in quiet]
    expected += [f"cuframes-nb: {word}: others {word}" for word in ("warning", "error")]
    assert capsys.readouterr().err.splitlines() == expected


def test_nothing_stays_of_it():
    before = logging.getLogger().handlers[:], logging.getLogger("cuframes_nb").level
    with _logging.to_stderr(2):
        assert logging.getLogger().handlers != before[0]
    assert (logging.getLogger().handlers, logging.getLogger("cuframes_nb").level) == before


def test_a_traceback_follows_and_names_of_others_do_nothing(capsys):
    with _logging.to_stderr(0):
        try:
            int("\x9b31m")
        except ValueError:
            ours.exception("went \x07wrong")
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "cuframes-nb: error: went \ufffdwrong"
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("ValueError: invalid literal")
    assert "\x9b" not in lines[-1]


def test_journald_gets_a_priority_on_each_line(journal):
    with _logging.to_stderr(2):
        say_everything()
        ours.critical("two\nlines")
    lines = journal.readouterr().err.splitlines()
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<4>", "<3>", "<3>", "<3>"]
    assert lines[-2:] == ["<3>cuframes-nb: critical: two", "<3>lines"]


def test_journald_gets_a_priority_for_an_error(journal, monkeypatch):
    def fail(args):
        raise DeviceError("no GPU")

    monkeypatch.setattr(cli.demo, "run", fail)
    assert cli.main(["demo"]) == 1
    assert journal.readouterr().err == "<3>cuframes-nb: no GPU\n"


def test_another_stream_of_the_journal_is_not_ours(capsys, monkeypatch):
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    with _logging.to_stderr(0):
        ours.warning("w")
    assert capsys.readouterr().err == "cuframes-nb: warning: w\n"


@pytest.mark.parametrize(
    ("argv", "times"),
    [(["ls"], 0), (["-v", "ls"], 1), (["ls", "-v"], 1), (["-v", "ls", "-vv"], 3)],
)
def test_it_is_asked_for_before_the_command_and_behind_it(argv, times):
    assert _logging.verbosity(cli._parser().parse_args(argv)) == times
