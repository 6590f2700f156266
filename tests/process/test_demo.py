"""The demo as a user runs it."""

import signal
import struct
import time

import psutil
import pytest

import cuframes_nb as cf
from cuframes_nb.cli.demo.picture import picture_size
from tests.helpers.commands import running

pytestmark = [pytest.mark.process, pytest.mark.alone]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "demo.png"


def demo(out, *args):
    return running("demo", "--no-lab", "--memory", "host", "--out", str(out), *args)


def png_size(path):
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


def watcher_of(process):
    """Return the demo's second process, once it has attached."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        streams = cf.list_streams()
        children = psutil.Process(process.pid).children()
        if children and streams and streams[0].subscribers and streams[0].published > 3:
            return children[0]
        time.sleep(0.05)
    raise TimeoutError("the demo's second process did not attach")


def test_the_demo_runs_its_time_and_leaves_a_picture(out, runtime_dir):
    with demo(out, "--seconds", "3") as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert errors == ""
    assert 'cf.subscribe("demo")' in output
    assert "fps" in output
    assert png_size(out) == picture_size(1280, 720)
    assert not list(runtime_dir.glob("*.sock"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_processes_well(number, out, runtime_dir):
    with demo(out) as process:
        watcher = watcher_of(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert errors == ""
        assert not watcher.is_running()
    assert out.exists()
    assert not list(runtime_dir.glob("*.sock"))


def test_the_end_of_the_watcher_ends_the_demo(out):
    with demo(out) as process:
        watcher_of(process).kill()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the watching process was killed by signal 9" in errors


def test_the_watcher_says_that_the_publisher_died(out):
    with demo(out) as process:
        watcher = watcher_of(process)
        process.kill()
        _, errors = process.communicate(timeout=60)
        watcher.wait(timeout=30)
    assert "ended without a word" in errors


def test_a_key_in_use_is_told(out):
    with cf.Publisher("demo", width=64, height=48, memory="host"), demo(out) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "'demo' is being published already" in errors
    assert len(errors.splitlines()) == 1
