"""``cuframes-nb ls``, ``info`` and ``top``, as a shell and a terminal run them."""

import json
import os
import re
import signal
import socket
import sys

import pytest

import cuframes_nb as cf
from cuframes_nb._os.listener import Listener
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.commands import command, ended, in_terminal, ran
from tests.helpers.frames import publish, publisher, until

pytestmark = [pytest.mark.process, pytest.mark.alone]

NOBODY = 65534
AS_NOBODY = f"""
import contextlib, io, os, sys
from cuframes_nb.cli import main
with contextlib.redirect_stdout(io.StringIO()):  # what is loaded now need not be readable then
    main(["ls"]), main(["info", "cam"])
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
sys.exit(main(sys.argv[1:]))
"""

HOSTILE = "[red]カメラ\x1b[31m\x1b]0;owned\x07\u202e"
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def pub():
    with publisher("cam", fps=25) as it:
        publish(it, 3)
        yield it


@pytest.fixture
def reader(pub):
    """Have a subscriber with a name that would do harm hold a frame."""
    with cf.subscribe("cam", name=HOSTILE) as subscriber, subscriber.next(5) as frame:
        until(lambda: pub.stats.slots_leased == 1)
        yield frame


@pytest.fixture
def dead(runtime_dir):
    """Leave a socket as a publisher does that was killed."""
    Listener("dead")._abandon()


@pytest.fixture
def stopped():
    with child(programs.publish_until_told, "halt") as it:
        it.expect("ready")
        it.signal(signal.SIGSTOP)
        yield it
        it.signal(signal.SIGCONT)
        it.send("stop")
        it.expect("done")


@pytest.fixture(params=["rich", "plain"])
def drawing(request, tmp_path):
    """Return the environment of a command that has rich, and of one that has not."""
    if request.param == "rich":
        return {}
    (tmp_path / "rich.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def harmless(text):
    """Whether nothing of `HOSTILE` could have done anything to a terminal."""
    return not re.search(r"\x1b\[31m|\x1b\]|\x07|\u202e", text)


# --- ls -------------------------------------------------------------------------------------------


def test_without_streams_it_says_where_it_looked(runtime_dir):
    assert ran("ls") == (0, f"No stream is published here\nlooked in {runtime_dir}\n", "")
    assert ran("ls", "--json") == (0, "[]\n", "")
    runtime_dir.rmdir()
    assert ran("ls")[1].endswith(f"looked in {runtime_dir} (which is not there)\n")
    runtime_dir.mkdir()


def test_streams_are_listed(reader):
    code, out, err = ran("ls")
    assert (code, err) == (0, "")
    assert re.search(r"^cam +live +64x48 nv12 +25 +host .* 1: \[red\]カメラ", out, re.MULTILINE)
    assert harmless(out)


def test_a_program_gets_all_about_each(reader, pub):
    code, out, err = ran("ls", "--json")
    assert (code, err) == (0, "")
    assert out.isascii()
    (stream,) = json.loads(out)
    assert (stream["key"], stream["path"]) == ("cam", str(pub.info.path))
    assert (stream["format"], stream["published"]) == ("nv12", 3)
    assert [s["name"] for s in stream["subscribers"]] == [HOSTILE]


def test_sockets_without_a_stream_are_told(pub, dead, runtime_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(runtime_dir / "other.sock"))
        other.listen()
        code, out, err = ran("ls")
        assert (code, err) == (0, "")
        assert "1 stream\n" in out
        assert "2 sockets without a stream" in out
        assert re.search(r"^dead +dead +the publisher at .*dead.sock has ended", out, re.MULTILINE)
        assert re.search(r"^other +foreign +what listens at", out, re.MULTILINE)
        code, out, err = ran("ls", "--json", "-v")
        assert [stream["key"] for stream in json.loads(out)] == ["cam"]
        assert "cuframes-nb: info: dead is dead: " in err


def test_a_stopped_publisher_keeps_nobody_from_the_others(pub, stopped):
    code, out, _ = ran("ls")
    assert code == 0
    assert re.search(r"^cam +live", out, re.MULTILINE)
    assert re.search(r"^halt +silent .*may be stopped", out, re.MULTILINE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_streams_of_others_are_told_as_far_as_they_are_seen(pub, runtime_dir):
    runtime_dir.chmod(0o755)
    code, out, err = ran("ls", program=(sys.executable, "-c", AS_NOBODY))
    assert (code, err) == (0, "")
    assert re.search(r"^cam +denied +this user may not connect", out, re.MULTILINE)
    code, out, err = ran("info", "cam", program=(sys.executable, "-c", AS_NOBODY))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "may not connect" in err
    runtime_dir.chmod(0o700)
    code, out, err = ran("ls", program=(sys.executable, "-c", AS_NOBODY))
    assert (code, err) == (0, "")
    assert "may not look into)" in out


# --- info -----------------------------------------------------------------------------------------


def test_all_about_a_stream_by_any_of_its_names(reader, pub):
    for name in ("cam", "cuframes://cam", pub.info.path):
        code, out, err = ran("info", name)
        assert (code, err) == (0, "")
        assert "Stream cam\n" in out
        assert "1 of 4" in out
        assert harmless(out)
    code, out, err = ran("info", "cam", "--json")
    info = json.loads(out)
    assert (info["key"], info["subscribers"][0]["holds"]) == ("cam", 1)


def test_a_stream_that_is_not_there_is_one_line(pub, dead):
    for name, words in [
        ("nobody", "the streams there are: cam"),
        ("dead", "its publisher has ended"),
    ]:
        code, out, err = ran("info", name)
        assert (code, out) == (1, "")
        assert err.startswith("cuframes-nb: ")
        assert err.count("\n") == 1
        assert words in err


# --- top ------------------------------------------------------------------------------------------


def test_where_nobody_looks_it_prints_tables(reader, dead):
    code, out, err = ran("top", "--interval", "0.1", "--count", 2)
    assert (code, err) == (0, "")
    first, second = out.split("\n\n")
    assert re.search(r"^cam +live +– ", first, re.MULTILINE)
    assert re.search(r"^cam +live +0 .* 1/4$", second, re.MULTILINE)
    assert re.search(r"^dead +dead +– ", second, re.MULTILINE)
    assert "\x1b" not in out


def test_rates_are_measured_between_looks(pub):
    process = command("top", "--interval", "0.3", "--json")
    first = json.loads(process.stdout.readline())
    publish(pub, 5)
    (stream,) = json.loads(process.stdout.readline())["streams"]
    process.send_signal(signal.SIGINT)
    assert ended(process)[::2] == (0, "")
    assert first["streams"][0]["measured_fps"] is None
    assert stream["published"] == 8
    assert stream["measured_fps"] > 0
    assert stream["drops_per_second"] == 0


def test_a_stopped_publisher_is_seen(stopped):
    code, out, _ = ran("top", "--count", 1, "--json")
    (socket_,) = json.loads(out)["unanswered"]
    assert (code, socket_["key"], socket_["state"]) == (0, "halt", "silent")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_gives_the_terminal_back(number, reader, drawing):
    with in_terminal("top", "--interval", "60", env=drawing) as terminal:
        before = terminal.modes
        terminal.until("1 subscriber")
        terminal.process.send_signal(number)
        assert terminal.ended() == 0
        assert terminal.modes == before
    written = terminal.written
    assert written.count(ENTER) == written.count(LEAVE) == 1
    assert written.rindex(HIDE) < written.rindex(SHOW)
    shown, _, kept = written.partition(LEAVE)
    for text in (shown, kept):
        assert "[red]カメラ" in text
    assert harmless(written)


def test_ctrl_z_gives_the_terminal_back_meanwhile(pub, drawing):
    with in_terminal("top", "--interval", "60", env=drawing) as terminal:
        terminal.until("cam")
        # Where no shell would have it go on, the kernel does not stop it.
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(ENTER, 2)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
    assert [*re.findall(r"\x1b\[\?1049[hl]", terminal.written)] == [ENTER, LEAVE] * 2


def test_a_terminal_of_another_size_is_drawn_anew(reader, drawing):
    with in_terminal("top", "--interval", "60", columns=120, env=drawing) as terminal:
        terminal.until("slots they hold")
        terminal.resize(70, 10)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.until("…")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0


def test_more_streams_than_lines_do_not_move_the_terminal(drawing):
    publishers = [publisher(f"cam{n}") for n in range(8)]
    with in_terminal("top", "--interval", "60", lines=5, env=drawing) as terminal:
        terminal.until("cam2")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
    for one in publishers:
        one.close()
    shown, _, kept = terminal.written.partition(LEAVE)
    assert "cam7" not in shown
    assert "cam7" in kept


def test_a_terminal_that_can_do_nothing_gets_tables(pub):
    with in_terminal("top", "--interval", "0.1", "--count", 2, env={"TERM": "dumb"}) as terminal:
        assert terminal.ended() == 0
    assert "\x1b" not in terminal.written
    assert terminal.written.count("cam ") == 2


def test_whoever_reads_it_may_leave(pub):
    process = command("top", "--interval", "0.1")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr.read() == ""
    process.stderr.close()
