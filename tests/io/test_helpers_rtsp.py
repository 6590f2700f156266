"""The cameras of the tests do what tests of live sources lean on."""

import contextlib
import itertools
import sys
import time
from pathlib import Path

import pytest

av = pytest.importorskip("av")

from cuframes_nb.sources import read_stamp  # noqa: E402
from tests.helpers import rtsp  # noqa: E402
from tests.helpers.films import stamped_film, stamped_jpegs  # noqa: E402
from tests.helpers.http_camera import HttpCamera  # noqa: E402
from tests.helpers.rtsp import RtspServer  # noqa: E402

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return stamped_film(tmp_path_factory.mktemp("film") / "film.mp4")


@contextlib.contextmanager
def numbers(url, transport="tcp"):
    """Give the numbers of the frames to come, by plain PyAV."""
    # Without `analyzeduration`, FFmpeg watches for a second before it says anything.
    options = {"rtsp_transport": transport, "analyzeduration": "100000"}
    with av.open(url, options=options if url.startswith("rtsp") else {}) as container:
        frames = container.decode(video=0)
        yield (read_stamp(frame.to_ndarray()[: frame.height]) for frame in frames)


def take(stream, count):
    return list(itertools.islice(stream, count))


def leap(stream):
    """Return the first number that is not one more than that before it, and that one."""
    return next(pair for pair in itertools.pairwise(stream) if pair[1] - pair[0] != 1)


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_frames_come_one_by_one(film, transport):
    with RtspServer(film) as server, numbers(server.url, transport) as stream:
        got = take(stream, 8)
    if transport == "tcp":
        assert got == list(range(got[0], got[0] + 8))
    assert got == sorted(set(got))  # UDP may lose some


def test_many_watch_at_once(film):
    with (
        RtspServer(film) as server,
        numbers(server.url, "tcp") as first,
        numbers(server.url, "udp") as second,
        numbers(server.url, "tcp") as third,
    ):
        starts = [take(stream, 3)[0] for stream in (first, second, third)]
    assert starts == sorted(starts)


@pytest.mark.parametrize("auth", ["basic", "digest"])
def test_only_who_has_the_password_sees_the_film(film, auth):
    with RtspServer(film, user="me", password="p:a@s/s", auth=auth) as server:
        with numbers(server.url) as stream:
            assert len(take(stream, 2)) == 2
        for url in (server.url_with("me", "wrong"), server.url_with(None)):
            with pytest.raises(av.error.HTTPUnauthorizedError), numbers(url):
                pass


def test_a_server_that_stops_comes_back_on_its_port(film):
    with RtspServer(film) as server:
        url = server.url
        with numbers(url) as stream:
            before = take(stream, 2)
            server.stop()
            before += list(stream)  # which ends, for the connection does
        with pytest.raises(av.error.ConnectionRefusedError), numbers(url):
            pass
        server.start()
        assert server.url == url
        with numbers(url) as stream:
            assert take(stream, 1)[0] > before[-1]


def test_a_stalled_server_leaves_frames_out(film):
    with RtspServer(film) as server, numbers(server.url) as stream:
        take(stream, 2)
        server.stall()
        time.sleep(0.3)
        server.go_on()
        last, then = leap(stream)
        assert then > last
        assert then % 5 == 0  # with a key frame


def test_a_frozen_server_catches_up(film):
    with RtspServer(film) as server, numbers(server.url) as stream:
        first = take(stream, 1)[0]
        server.stall(frozen=True)
        assert Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        server.go_on()
        assert take(stream, 20) == list(range(first + 1, first + 21))


def test_no_server_outlives_its_block(film):
    with pytest.raises(ZeroDivisionError) as caught, RtspServer(film) as server:
        pid = server.pid
        _ = 1 / 0
    assert not Path(f"/proc/{pid}").exists()
    assert "stderr of the RTSP server" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("env", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_what_is_not_installed_is_said(film, monkeypatch, env, outcome):
    monkeypatch.setenv("CI", env)
    monkeypatch.setattr(rtsp, "PYTHON", sys.executable)  # which has no GStreamer
    rtsp._import_error.cache_clear()
    try:
        with pytest.raises(outcome, match="apt install python3-gi"), RtspServer(film):
            pass
    finally:
        rtsp._import_error.cache_clear()


@pytest.fixture(scope="module")
def jpegs():
    return stamped_jpegs()


def test_an_http_camera_sends_pictures(jpegs):
    with HttpCamera(jpegs, user="me", password="p:a@s/s") as camera:
        with numbers(camera.url) as stream:
            got = take(stream, 5)
            assert got == sorted(set(got))
            camera.stop()
            with pytest.raises(OSError, match="Input/output error"):
                got += list(stream)
        with pytest.raises(av.error.ConnectionRefusedError), numbers(camera.url):
            pass
        camera.start()
        for url in (camera.url_with("me", "wrong"), camera.url_with(None)):
            with pytest.raises(av.error.HTTPUnauthorizedError), numbers(url):
                pass
        with numbers(camera.url) as stream:
            assert take(stream, 1)[0] > got[-1]


def test_an_http_camera_that_stalls_leaves_pictures_out(jpegs):
    with HttpCamera(jpegs) as camera, numbers(camera.url) as stream:
        before = take(stream, 2)[-1]
        camera.stall()
        time.sleep(0.3)
        camera.go_on()
        assert next(number for number in stream if number >= before + 8)
