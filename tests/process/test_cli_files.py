"""``cuframes-nb record`` and ``snapshot``, as a shell runs them."""

import contextlib
import json
import signal
import threading

import av
import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers.commands import command, ended
from tests.helpers.frames import publish, publisher, until

pytestmark = pytest.mark.process


@pytest.fixture
def live():
    stop = threading.Event()

    def work(pub):
        while not stop.wait(0.04):  # so slow that no recorder loses frames
            with contextlib.suppress(cf.RingFullError):
                publish(pub)

    with publisher(width=64, height=48) as pub:
        thread = threading.Thread(target=work, args=(pub,))
        thread.start()
        yield pub
        stop.set()
        thread.join()
        until(lambda: pub.stats.slots_leased == 0)


def frames_in(path):
    with av.open(str(path)) as film:
        return sum(1 for _ in film.decode(video=0))


def test_a_limit_ends_a_recording(live, tmp_path):
    film = tmp_path / "a.mkv"
    code, out, err = ended(command("record", "cam", film, "--frames", 7, "--codec", "ffv1"))
    assert (code, err) == (0, "")
    assert out.startswith(f"{film}: 7 frames, ")
    assert "ffv1" in out
    assert frames_in(film) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording_in_order(number, live, tmp_path):
    film = tmp_path / "a.mp4"
    process = command("record", "cam", film, "--seconds", 600, "--json")
    until(lambda: film.exists() and film.stat().st_size > 3000)
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    came_to = json.loads(out)
    assert came_to["paths"] == [str(film)]
    assert came_to["ended"] == "stopped"
    assert came_to["frames"] == frames_in(film) > 0


def test_what_goes_wrong_is_one_line(live, tmp_path):
    for arguments, words in [
        (("record", "nobody", tmp_path / "a.mp4"), "nobody"),
        (("record", "cam", tmp_path / "a.gif"), ".mkv"),
        (("record", "cam", tmp_path / "none" / "a.mp4"), str(tmp_path / "none" / "a.mp4")),
        (("record", "cam", tmp_path / "a.mp4", "--quality", "0"), "quality"),
        (("snapshot", "nobody", tmp_path / "a.png", "--timeout", 0), "nobody"),
        (("snapshot", "cam", tmp_path / "a.gif"), ".png"),
    ]:
        code, out, err = ended(command(*arguments))
        assert (code, out) == (1, "")
        assert err.startswith("cuframes-nb: ")
        assert err.count("\n") == 1
        assert words in err
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_is_the_frame(tmp_path):
    with publisher() as pub:
        publish(pub)
        code, out, err = ended(command("snapshot", "cam", tmp_path / "a.npy"))
        assert (code, out, err) == (0, f"{tmp_path / 'a.npy'}\n", "")
        with cf.subscribe("cam") as sub, sub.next(timeout=5) as frame:
            assert np.array_equal(np.load(tmp_path / "a.npy"), frame.array)
