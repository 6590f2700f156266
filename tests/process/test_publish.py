"""``cuframes-nb publish``, as a shell, a terminal and systemd run it."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cuframes_nb as cf
from cuframes_nb.sources import read_stamp
from tests.helpers.children import child_env
from tests.helpers.films import stamped_film
from tests.helpers.rtsp import RtspServer

pytestmark = pytest.mark.process

SECONDS = 60


@contextlib.contextmanager
def command(*arguments, env=None, **options):
    """Run ``cuframes-nb publish`` with these arguments; it has ended after the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    process = subprocess.Popen(
        [sys.executable, "-m", "cuframes_nb.cli", "publish", *map(str, arguments)],
        env=child_env(**(env or {})), **pipes,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def ended(process, number=None):
    """Return exit code, stdout and stderr; after a signal, if a number is given."""
    if number is not None:
        process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def next_number(subscriber):
    with subscriber.next(timeout=SECONDS) as frame:
        return read_stamp(frame.y)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return stamped_film(tmp_path_factory.mktemp("film") / "film.mp4")


# --- What is published ----------------------------------------------------------------------------


def test_a_film_to_its_end(film):
    with command("cam1", film, "--fast", "--memory", "host", "--json") as process:
        code, out, err = ended(process)
    assert (code, json.loads(out)) == (0, {"key": "cam1", "published": 1500, "dropped": 0})
    assert err == "cam1: 320x192 nv12 at 25 fps in host memory\n"


def test_pipelines_of_gstreamer_are_not_served_from_host_memory(runtime_dir):
    path = runtime_dir / "cam1.ipc"
    with command("cam1", "pattern", "--memory", "host", "--gst", path) as process:
        code, out, err = ended(process)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "memory of kind host: publish with memory='cuda'" in err
    assert not path.exists()


def test_a_pattern_with_a_caption_until_a_signal():
    options = ("--size", "200x100", "--fps", "60", "--format", "p010", "--memory", "host")
    for number in (signal.SIGINT, signal.SIGTERM):
        with (
            command("cam1", "pattern", *options) as process,
            cf.subscribe("cam1", timeout=SECONDS) as subscriber,
        ):
            first = next_number(subscriber)
            assert next_number(subscriber) > first
            info = subscriber.info
            assert (info.width, info.height, info.format, info.fps) == (200, 100, "p010", 60.0)
            code, out, _ = ended(process, number)
        assert code == 0
        assert out.startswith("published ")
        assert cf.list_streams() == []


def test_a_limit_in_seconds():
    with command("cam1", "pattern", "--memory", "host", "--seconds", "0.3") as process:
        code, out, _ = ended(process)
    assert code == 0
    assert int(out.split()[1]) > 1


def test_part_of_a_film_in_another_size_and_rate(film):
    options = ("--start", "2", "--size", "160x96", "--fps", "200", "--policy", "strict-wait")
    with (
        command("cam1", film, *options, "--loop", "--memory", "host") as process,
        cf.subscribe("cam1", mode="strict", timeout=SECONDS) as subscriber,
    ):
        info = subscriber.info
        assert (info.width, info.height, info.fps, info.policy) == (160, 96, 200.0, "strict-wait")
        seen = 0
        while seen < 20:
            with subscriber.next(timeout=SECONDS) as frame:
                seen += 1
                assert frame.width == 160
        subscriber.close()
        assert ended(process, signal.SIGTERM)[0] == 0


def test_after_sigkill_another_has_the_name_at_once(film):
    with (
        command("cam1", film, "--loop", "--memory", "host") as first,
        cf.subscribe("cam1", timeout=SECONDS) as subscriber,
    ):
        next_number(subscriber)
        first.kill()
        first.wait()
        with command("cam1", film, "--loop", "--memory", "host") as second:
            deadline = time.monotonic() + SECONDS
            while subscriber.info.pid != second.pid:
                with contextlib.suppress(cf.CuframesError):
                    next_number(subscriber)
                assert time.monotonic() < deadline


# --- Cameras --------------------------------------------------------------------------------------


def arguments_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


def test_a_password_in_an_address_is_blotted_out(film):
    with (
        RtspServer(film, user="me", password="s3cret") as server,
        command("cam1", server.url, "-vv") as process,
        cf.subscribe("cam1", timeout=SECONDS) as subscriber,
    ):
        next_number(subscriber)
        assert "s3cret" not in arguments_of(process.pid)
        assert f"rtsp://{'*' * len('me:s3cret')}@127.0.0.1" in arguments_of(process.pid)
        code, out, err = ended(process, signal.SIGINT)
        assert code == 0
        assert "s3cret" not in out + err


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://me:s3c@ret@127.0.0.1:1/a", "rtsp://**********@127.0.0.1:1/a"),
        ("rtsp://me:s3c/ret@127.0.0.1:1/a", "rtsp://**********@127.0.0.1:1/a"),
        ("rtsp://127.0.0.1:1/a?token=s3cret", "rtsp://127.0.0.1:1/a?************"),
        ("rtsp://mé:sécret@127.0.0.1:1/a?b@c", None),
    ],
)
def test_what_is_secret_in_an_address_is_blotted_out(address, shown):
    with command("cam1", address) as process:
        line = process.stderr.readline()
        arguments = arguments_of(process.pid)
    assert "s3c" not in arguments + line
    assert "cret" not in arguments + line
    assert shown is None or shown in arguments.split("\0")


def test_a_password_that_systemd_hands_over(film, tmp_path):
    secrets = tmp_path / "camera"
    secrets.write_text("me:s3cret\n")
    secrets.chmod(0o440)
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    with (
        RtspServer(film, user="me", password="s3cret") as server,
        command("cam1", server.url_with(None), "--credentials", secrets, env=env),
        cf.subscribe("cam1", timeout=SECONDS) as subscriber,
    ):
        next_number(subscriber)


def test_a_password_in_a_file(film, tmp_path):
    secrets = tmp_path / "camera.txt"
    secrets.write_text("me:s3cret\n")
    secrets.chmod(0o644)
    with RtspServer(film, user="me", password="s3cret") as server:
        address = server.url_with(None)
        with command("cam1", address, "--credentials", secrets) as process:
            code, _, err = ended(process)
            assert code == 1
            assert "can be read by others" in err
        secrets.chmod(0o600)
        with (
            command("cam1", address, "--credentials", secrets),
            cf.subscribe("cam1", timeout=SECONDS) as subscriber,
        ):
            next_number(subscriber)
        secrets.write_text("nothing\n")
        with command("cam1", address, "--credentials", secrets) as process:
            code, _, err = ended(process)
            assert (code, "user:password" in err) == (1, True)


def test_a_camera_that_dies_is_waited_for_by_everybody(film):
    with RtspServer(film) as server:
        server.stop()
        with command("cam1", server.url, "--memory", "host") as process:
            line = process.stderr.readline()
            assert "Connection refused; trying again in 0.5 s" in line
            server.start()
            with cf.subscribe("cam1", timeout=SECONDS) as subscriber:
                next_number(subscriber)
                server.stop()
                deadline = time.monotonic() + SECONDS
                while subscriber.info.state != "stalled":
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                with subscriber.latest() as frame:
                    last = read_stamp(frame.y)
                server.start()
                while next_number(subscriber) <= last:
                    pass
                assert subscriber.info.state == "live"


def test_a_wrong_password_ends_it(film):
    with (
        RtspServer(film, user="me", password="right") as server,
        command("cam1", server.url_with("me", "wr0ng")) as process,
    ):
        code, out, err = ended(process)
    assert (code, out) == (1, "")
    assert "refuses this user or password" in err
    assert "wr0ng" not in err
    assert "Traceback" not in err


def test_waiting_for_a_camera_ends_with_a_signal():
    with command("cam1", "rtsp://127.0.0.1:1/cam") as process:
        assert "trying again" in process.stderr.readline()
        code, out, err = ended(process, signal.SIGTERM)
    assert (code, out) == (0, "")
    assert "Traceback" not in err


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.mp4"], "nowhere.mp4: No such file or directory"),
        (["/dev/video77"], "/dev/video77: No such file or directory"),
        (["rtsp://127.0.0.1:1/a", "--no-retry"], "rtsp://127.0.0.1:1/a: Connection refused"),
        (["pattern", "--loop"], "--loop is nothing that a pattern has"),
        (["rtsp://127.0.0.1:1/a", "--fast"], "--fast is nothing that a camera has"),
        (["rtsp://127.0.0.1:1/a", "--size", "64x48"], "can be asked of a V4L2 camera only"),
        (["film.mp4", "--transport", "udp"], "--transport is nothing that a film has"),
        (["film.mp4", "--option", "a=b"], "--option is nothing that a film has"),
        (["pattern", "--ring-size", "1"], "ring_size"),
    ],
)
def test_an_error_is_one_line(arguments, told):
    with command("cam1", *arguments) as process:
        code, out, err = ended(process)
    assert (code, out) == (1, "")
    assert told in err
    assert err.startswith("cuframes-nb: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "options", [["--size", "64"], ["--fps", "0"], ["--seconds", "nan"], ["--option", "a"]]
)
def test_a_wrong_value_is_told_with_the_usage(options):
    with command("cam1", "pattern", *options) as process:
        code, _, err = ended(process)
    assert code == 2
    assert options[0] in err


# --- A terminal, and systemd ----------------------------------------------------------------------


def test_a_terminal_sees_how_it_goes():
    ours, theirs = pty.openpty()
    with contextlib.ExitStack() as owned:
        owned.callback(os.close, ours)
        with command("cam1", "pattern", "--memory", "host", stderr=theirs) as process:
            os.close(theirs)
            seen = b""
            while b"Ctrl-C ends it" not in seen:
                seen += os.read(ours, 4096)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=SECONDS)
            rest = os.read(ours, 4096)
    assert b" a second, 0 dropped, 0 subscribed" in seen
    assert rest.endswith(b"\r\x1b[K")
    assert out.startswith("published ")


def test_systemd_is_told_how_it_goes(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(SECONDS)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with command("cam1", "pattern", "--memory", "host", env=env) as process:
            assert notified.recv(4096) == b"READY=1"
            assert [stream.key for stream in cf.list_streams()] == ["cam1"]
            kind, status = notified.recv(4096).decode().splitlines()
            assert kind == "WATCHDOG=1"
            assert status.startswith("STATUS=")
            assert "0 subscribed" in status
            process.send_signal(signal.SIGTERM)
            while (last := notified.recv(4096)) != b"STOPPING=1":
                assert last.startswith(b"WATCHDOG=1")
            assert process.wait(SECONDS) == 0
