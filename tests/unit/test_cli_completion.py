"""What may stand at the end of a command line."""

import pytest

from cuframes_nb import cli
from cuframes_nb.cli import _completion
from cuframes_nb.cli._completion import Completion, join_pieces

KEYS = ("cam1", "cam2", "door")


@pytest.fixture(scope="module")
def parser():
    return cli._parser()


def texts(parser, line):
    """Return what completes a line, and whether files do."""
    found = _completion.complete(parser, line.split(" "), lambda: KEYS)
    return [candidate.text for candidate in found.candidates], found.files


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("re", ["record"]),
        ("-v re", ["record"]),
        ("info ", ["cam1", "cam2", "door"]),
        ("info cam", ["cam1", "cam2"]),
        ("info --json d", ["door"]),
        ("info cuframes:", [f"cuframes://{key}" for key in KEYS]),
        ("info cuframes://d", ["cuframes://door"]),
        ("record cam1 a.mp4 --codec f", ["ffv1"]),
        ("record --codec ffv1 c", ["cam1", "cam2"]),
        ("record --codec=h", ["--codec=h264", "--codec=hevc"]),
        ("record --cod", ["--codec"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("info -- c", ["cam1", "cam2"]),
        ("--ver", ["--version", "--verbose"]),
        ("ls ", ["cam1", "cam2", "door"]),
        ("ls cam1 d", ["door"]),
        ("doctor -", ["--help", "--json", "--verbose"]),
        ("ls --json --j", []),  # once is enough
        ("doctor -- ", []),
        ("nothing ", []),
        ("publish ", []),  # a key that is there is taken
        ("record --seconds ", []),
        ("record --json=", []),
        ("record --nothing=", []),
    ],
)
def test_words_and_options_are_completed(parser, line, expected):
    assert texts(parser, line) == (expected, False)


@pytest.mark.parametrize(
    "line", ["record cam1 ", "snapshot cam1 pic", "publish cam1 fi", "demo --video x", "info /tmp/"]
)
def test_files_are_left_to_the_shell(parser, line):
    assert texts(parser, line) == ([], True)


def test_every_command_is_explained(parser):
    found = _completion.complete(parser, [""], lambda: ())
    assert {"ls", "top", "doctor", "completion"} <= {one.text for one in found.candidates}
    assert all(one.about for one in found.candidates)


def test_defaults_are_told(parser):
    found = _completion.complete(parser, ["top", "--int"], lambda: ())
    assert found.candidates[0].about == "seconds from look to look (default: 1)"


def test_keys_are_asked_for_only_where_one_may_stand(parser):
    def fail():
        raise AssertionError

    assert _completion.complete(parser, ["ls", "--j"], fail).candidates
    assert _completion.complete(parser, [], fail).candidates
    assert _completion.complete(parser, ["record", "cam1", ""], fail) == Completion(files=True)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["info", "cam"], (["info", "cam"], "")),
        (["info", "cuframes", ":"], (["info", "cuframes:"], "cuframes:")),
        (["info", "cuframes", ":", "//c"], (["info", "cuframes://c"], "cuframes:")),
        (["record", "--codec", "=", ""], (["record", "--codec="], "--codec=")),
        (["record", "--codec", "=", "f"], (["record", "--codec=f"], "--codec=")),
        (["--codec", "=", "f", ""], (["--codec=f", ""], "")),
        (["info", ""], (["info", ""], "")),
        ([], ([], "")),
    ],
)
def test_words_that_bash_breaks_are_put_together(pieces, expected):
    assert join_pieces(pieces) == expected


@pytest.mark.parametrize(
    "words", [(), ("bash",), ("tcsh", "x"), ("bash", "", "", ""), ("bash", "--", "-"), ("zsh", "-")]
)
def test_whatever_a_shell_asks_is_no_error(words, capsys):
    assert cli.main(["__complete", *words]) == 0
    assert capsys.readouterr().err == ""


def test_a_shell_gets_a_candidate_a_line(capsys):
    cli.main(["__complete", "zsh", "record", "--codec", "a"])
    assert capsys.readouterr().out == "auto\t\nav1\t\n"
    cli.main(["__complete", "fish", "top", "--c"])
    assert capsys.readouterr().out == "--count\tend after so many looks\n"
    cli.main(["__complete", "bash", "record", "--codec", "=", "ff"])
    assert capsys.readouterr().out == "ffv1\t\n"
    cli.main(["__complete", "bash", "snapshot", "cam", ""])
    assert capsys.readouterr().out == ":files\n"
