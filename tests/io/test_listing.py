"""Which streams there are."""

import socket
import threading

import cuframes_nb as cf
from cuframes_nb._api import streams
from cuframes_nb._os.listener import Listener
from tests.helpers.frames import publish, publisher


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
