"""Which streams there are."""

import socket
import threading

import pytest

import cuframes_nb as cf
from cuframes_nb._api import streams
from cuframes_nb._os.listener import Listener
from tests.helpers.frames import publish, publisher, until


def test_nothing_is_nothing(runtime_dir, monkeypatch):
    assert cf.list_streams() == []
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(runtime_dir / "missing"))
    assert cf.list_streams() == []


def test_streams_are_listed_by_key_with_what_is_known():
    with publisher("cam2", width=32), publisher("cam1", fps=5.0) as pub, cf.subscribe("cam1"):
        publish(pub, 3)
        first, second = cf.list_streams()
        assert (first.key, second.key) == ("cam1", "cam2")
        assert (first.published, first.fps, first.memory, first.state) == (3, 5.0, "host", "live")
        assert len(first.subscribers) == 1
        assert (second.width, second.subscribers, second.age_ns) == (32, (), None)
        assert pub.stats.subscribers == 1  # asking is not subscribing
    assert cf.list_streams() == []


def test_what_is_no_stream_is_left_out(runtime_dir, monkeypatch):
    monkeypatch.setattr(streams, "_PATIENCE_SECONDS", 0.05)
    (runtime_dir / "file.sock").write_text("")
    (runtime_dir / "odd name.sock").write_text("")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(runtime_dir / "other.sock"))
        other.listen()
        silent, dead = Listener("silent"), Listener("dead")
        dead._abandon()
        try:
            with publisher("cam"):
                assert [info.key for info in cf.list_streams()] == ["cam"]
        finally:
            silent.close()


def test_a_stream_with_as_many_subscribers_as_may_be_is_listed():
    subs = []
    try:
        with publisher() as pub:
            subs += [cf.subscribe("cam", name="ö" * 32) for _ in range(100)]
            publish(pub)
            (info,) = cf.list_streams()
            assert len(info.subscribers) == 100
            assert {s.name for s in info.subscribers} == {"ö" * 32}
    finally:
        for sub in subs:
            sub.close()


def test_publishers_are_asked_all_at_once(monkeypatch):
    # One that does not answer must not make the others wait.
    both_asked = threading.Barrier(2, timeout=10)
    ask = streams.ask_status

    def ask_together(*args):
        both_asked.wait()
        return ask(*args)

    monkeypatch.setattr(streams, "ask_status", ask_together)
    with publisher("cam1"), publisher("cam2"):
        assert [info.key for info in cf.list_streams()] == ["cam1", "cam2"]


# --- All sockets, and one stream ------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(streams, "_PATIENCE_SECONDS", 0.05)


@pytest.fixture
def odd_sockets(runtime_dir, impatient):
    """Have sockets of every kind that tells of no stream; yield what they are."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(runtime_dir / "other.sock"))
        other.listen()
        silent, dead = Listener("silent"), Listener("dead")
        dead._abandon()
        yield {"dead": "dead", "other": "foreign", "silent": "silent"}
        silent.close()


def test_a_survey_says_what_the_other_sockets_are(odd_sockets, runtime_dir):
    with publisher("cam"):
        found = streams.survey()
    assert [info.key for info in found.streams] == ["cam"]
    assert {one.key: one.state for one in found.unanswered} == odd_sockets
    reasons = {one.key: one.reason for one in found.unanswered}
    assert "has ended" in reasons["dead"]
    assert "another program's socket" in reasons["other"]
    assert "did not answer in time" in reasons["silent"]
    assert found.places == [runtime_dir]


def test_a_socket_with_a_full_queue_is_silent(runtime_dir, impatient):
    waiting = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as full:
        full.bind(str(runtime_dir / "full.sock"))
        full.listen(0)
        try:
            while True:
                waiting.append(one := socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                one.settimeout(0)
                one.connect(str(runtime_dir / "full.sock"))
        except BlockingIOError:
            (found,) = streams.survey().unanswered
            with pytest.raises(cf.FrameTimeout, match="takes no connection"):
                streams.stream_info("full")
        finally:
            for one in waiting:
                one.close()
    assert (found.state, "takes no connection" in found.reason) == ("silent", True)


def test_one_stream_is_described_by_its_publisher(runtime_dir):
    with publisher("cam") as pub, cf.subscribe("cam", name="me"):
        until(lambda: pub.stats.subscribers == 1)
        for source in ("cam", "cuframes://cam", str(runtime_dir / "cam.sock"), pub.info.path):
            info = streams.stream_info(source)
            assert (info.key, [s.name for s in info.subscribers]) == ("cam", ["me"])
        assert pub.stats.subscribers == 1


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("nobody", cf.StreamNotFoundError, "no stream 'nobody'"),
        ("dead", cf.StreamNotFoundError, "its publisher has ended"),
        ("silent", cf.FrameTimeout, "did not answer in time"),
        ("other", cf.StreamNotFoundError, "another program's socket"),
        ("./no.sock", cf.StreamNotFoundError, "no publisher's socket at no.sock"),
        ("a b", cf.InvalidArgumentError, "cannot name a stream"),
    ],
)
def test_a_stream_that_cannot_be_described_says_why(odd_sockets, source, error, words):
    with pytest.raises(error, match=words):
        streams.stream_info(source)
