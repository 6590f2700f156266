"""Pipelines among the streams there are: asked what they are, and not subscribed to."""

import os
import socket
import threading
import time

import av
import pytest

import cuframes_nb as cf
from cuframes_nb import cli
from cuframes_nb._api import streams
from cuframes_nb._show.activity import ActivityTable, Meter
from cuframes_nb._show.listings import StreamTable, info_sheet
from cuframes_nb.bridges.gst.messages import Kind
from tests.helpers.frames import publisher, until
from tests.helpers.gst_client import serve_host
from tests.helpers.gst_server import (
    HostImporter,
    Sink,
    caps,
    config,
    dialogue,
    have_data,
    packet,
)


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "gst"


@pytest.fixture(params=["mmap", "legacy"])
def sink(request, path):
    with Sink(path, request.param) as it:
        it.render()
        yield it


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, runtime_dir):
    """Have no pipeline of this machine's in the lists."""
    monkeypatch.setattr(streams, "_GST_DEFAULT", runtime_dir / "gst.cuda.ipc")
    monkeypatch.delenv(streams.ENVIRONMENT, raising=False)


def ask(path):
    return streams.stream_info(f"gst://{path}")


def test_a_pipeline_says_what_its_frames_are(sink, path):
    info = ask(path)
    assert (info.key, info.path, info.pid) == ("gst", path, os.getpid())
    assert (info.format, info.width, info.height, info.fps) == ("nv12", 64, 48, 30.0)
    assert info.pitches == (256, 256)
    mode, sharing = ("mmap", "descriptor") if sink.mmap else ("legacy", "legacy handle")
    assert (info.memory, info.sharing, info.ownership) == (f"gst ({mode})", sharing, "external")
    assert (info.device, info.subscribers, info.slots) == (None, None, 0)
    assert info.age_ns > 0
    until(lambda: not sink.live)  # nothing of it is held
    assert sink.in_use == 1
    assert sink.closed_for == []


def test_how_that_looks(sink, path):
    info = ask(path)
    (row,) = StreamTable([info]).rows
    name, memory = f"gst://{path}", info.memory
    assert (row[0], row[4], row[6:]) == (name, memory, ["–", "–", "unknown"])
    (row,) = ActivityTable(Meter().look([info])).rows
    assert (row[0], row[5:]) == (name, ["–", "–", memory, "unknown"])
    text = info_sheet(info).text()
    assert f"Stream {name}" in text
    assert "a GPU; which one, a subscriber is told" in text
    assert ("legacy handle: mapped for writing" in text) is not sink.mmap


def test_new_caps_are_seen(path):
    with Sink(path) as sink:
        sink.render()
        sink.set_caps(128, 32)
        sink.render()
        assert (ask(path).width, ask(path).height) == (128, 32)


def test_a_pipeline_without_a_frame_is_silent(path, monkeypatch):
    monkeypatch.setattr(streams, "_PATIENCE_SECONDS", 0.05)
    with Sink(path), pytest.raises(cf.FrameTimeout, match="it may be paused"):
        ask(path)


def test_nobody_there_and_not_any_more(path):
    with pytest.raises(cf.StreamNotFoundError, match="no GStreamer pipeline listens"):
        ask(path)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with pytest.raises(cf.StreamNotFoundError, match="its pipeline has ended"):
        ask(path)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n"), cf.ProtocolError),
        (lambda sock: sock.sendall(config("text/plain")), cf.ProtocolError),
        (lambda sock: sock.sendall(packet(Kind.EOS)), cf.PublisherGoneError),
        (lambda _sock: None, cf.PublisherGoneError),
        (lambda sock: sock.sendall(have_data(bytes(64))), cf.ProtocolError),
    ],
)
def test_peers_that_do_not_behave(path, script, error):
    # lifetime.md, 7
    def run(sock):
        script(sock)
        receive_all(sock)

    with dialogue(path, run), pytest.raises(error):
        ask(path)


def receive_all(sock):
    """Read whatever comes, for a moment."""
    sock.settimeout(0.05)
    while sock.recv(4096):
        pass


def test_a_format_that_cannot_be_read_is_told(path):
    def script(sock):
        sock.sendall(config(caps(format_="I420")))
        receive_all(sock)

    with dialogue(path, script), pytest.raises(cf.UnsupportedError, match="I420"):
        ask(path)


# --- Lists ----------------------------------------------------------------------------------------


def test_the_pipeline_at_gstreamer_s_own_place_is_listed(runtime_dir):
    with Sink(runtime_dir / "gst.cuda.ipc") as sink, publisher("cam"):
        sink.render()
        assert [streams.name_of(info) for info in cf.list_streams()] == [
            "cam",
            f"gst://{runtime_dir}/gst.cuda.ipc",
        ]
    (runtime_dir / "gst.cuda.ipc").unlink()
    (runtime_dir / "gst.cuda.ipc").write_text("no socket")
    found = streams.survey()
    assert (found.streams, found.unanswered) == ([], [])


def test_what_a_killed_pipeline_left_there_is_no_stream(runtime_dir):
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(runtime_dir / "gst.cuda.ipc"))
    found = streams.survey()
    assert (found.streams, found.unanswered) == ([], [])


def test_others_are_listed_where_the_environment_names_them(sink, path, monkeypatch):
    monkeypatch.setenv(streams.ENVIRONMENT, f"gst://{path}  gst:///none")
    found = streams.survey()
    assert [info.path for info in found.streams] == [path]
    ((name, state),) = [(one.key, one.state) for one in found.unanswered]
    assert (name, state) == ("gst:///none", "absent")


def test_what_is_no_address_in_the_environment_is_told(monkeypatch):
    monkeypatch.setenv(streams.ENVIRONMENT, "gst:///tmp/x a*b")
    with pytest.raises(cf.InvalidArgumentError, match=r"\$CUFRAMES_STREAMS .*'a\*b'"):
        cf.list_streams()


def test_only_those_named(sink, path, runtime_dir):
    with publisher("cam"), publisher("other"):
        found = streams.survey([f"gst://{path}", "cam", "nobody", str(runtime_dir / "x")])
        assert [info.key for info in found.streams] == ["cam", "gst"]
        assert {one.key: one.state for one in found.unanswered} == {
            "nobody": "absent",
            str(runtime_dir / "x"): "absent",
        }


def test_pipelines_that_are_silent_keep_nobody_from_the_others(runtime_dir, monkeypatch):
    monkeypatch.setattr(streams, "_PATIENCE_SECONDS", 0.2)
    with Sink(runtime_dir / "gst.cuda.ipc"), publisher("cam"):
        begun = time.monotonic()
        found = streams.survey()
        assert time.monotonic() - begun < 10
    assert [info.key for info in found.streams] == ["cam"]
    assert [one.state for one in found.unanswered] == ["silent"]


def test_our_own_server_is_a_pipeline_to_others(runtime_dir, path):
    with publisher("cam", fps=30.0) as pub, serve_host("cam", path):
        with pub.acquire():
            pass
        info = ask(path)
        assert (info.width, info.fps, info.state) == (64, 30.0, "live")


# --- The command line -----------------------------------------------------------------------------


def test_commands_take_the_address(sink, path, capsys):
    address = f"gst://{path}"
    assert cli.main(["ls", address]) == 0
    assert address in capsys.readouterr().out
    assert cli.main(["info", address]) == 0
    assert "64x48 nv12, 30 fps" in capsys.readouterr().out
    assert cli.main(["top", address, "--count", "1"]) == 0
    assert address in capsys.readouterr().out
    assert cli.main(["ls", "cam"]) == 0
    out = capsys.readouterr().out
    assert "absent" in out
    assert "there is no stream 'cam'" in out


def test_a_pipeline_is_recorded_and_a_frame_of_it_saved(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cuframes_nb.bridges.gst.opening._on_gpu", lambda _device: HostImporter())
    over = threading.Event()

    def render():
        while not over.wait(0.02):
            sink.render()

    with Sink(path) as sink:
        renderer = threading.Thread(target=render)
        renderer.start()
        try:
            picture, film = tmp_path / "one.png", tmp_path / "film.mkv"
            assert cli.main(["snapshot", f"gst://{path}", str(picture)]) == 0
            assert cli.main(["record", f"gst://{path}", str(film), "--frames", "5"]) == 0
        finally:
            over.set()
            renderer.join()
    assert picture.read_bytes().startswith(b"\x89PNG")
    with av.open(film) as container:
        assert sum(1 for _ in container.decode(video=0)) >= 5
