"""The demo and the benchmark as a user runs them."""

import contextlib
import json
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import cuframes_nb as cf
from cuframes_nb.cli.bench import SECTIONS
from cuframes_nb.cli.demo.picture import picture_size
from tests.helpers.children import ROOT, child_env

pytestmark = [pytest.mark.process, pytest.mark.alone]


@contextlib.contextmanager
def command(*args):
    """Run the command line; whatever is left of it after the block is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cuframes_nb.cli", *args],
        cwd=ROOT,
        env=child_env(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "demo.png"


def demo(out, *args):
    return command("demo", "--no-lab", "--memory", "host", "--out", str(out), *args)


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


def test_the_benchmark_writes_its_figures(tmp_path):
    path = tmp_path / "bench.json"
    with command("bench", "--quick", "--memory", "host", "--json", str(path)) as process:
        output, errors = process.communicate(timeout=110)
    assert process.returncode == 0, errors
    figures = json.loads(path.read_text())
    assert {"date", "machine", "versions", "memory", "results"} <= set(figures)
    results = figures["results"]
    assert set(results) == set(SECTIONS)
    assert [row["torn"] for row in results["scale"]] == [0, 0]
    assert all(results.values())
    ours = results["latency"][0]
    assert ours["library"] == "cuframes_nb"
    assert ours["latency_p50_us"] > 0
    assert ours["peer_ratio"] > 0
    assert "### latency" in output
    assert Path(path).stat().st_size
