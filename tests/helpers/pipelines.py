"""The real GStreamer on a GPU.

It comes as a folder of programs and libraries, packed: ``.gst/gstreamer-cuda.tar.xz`` in the
checkout, or the file that ``$CUFRAMES_GST`` names. Without it the tests are skipped.
"""

import contextlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import cuframes_nb as cf
from tests.helpers.children import ROOT

__all__ = ["HEIGHT", "MODES", "WIDTH", "gst", "launch", "pipeline", "say", "source", "subscribe"]

MODES = ["mmap", "legacy"]
WIDTH, HEIGHT = 1920, 1080
PACKED = Path(os.environ.get("CUFRAMES_GST", ROOT / ".gst" / "gstreamer-cuda.tar.xz"))

# With "blink", black and white in turn: a frame is one value, so one that was written meanwhile
# shows.
SOURCE = (
    "videotestsrc pattern={pattern} num-buffers={count} ! "
    "video/x-raw,format={format},width={width},height={height},framerate={fps}/1"
)


@pytest.fixture(scope="session")
def gst(tmp_path_factory):
    """Return how GStreamer's pipelines are started, and their environment."""
    if not PACKED.is_file():
        pytest.skip(f"no GStreamer at {PACKED}")
    folder = tmp_path_factory.mktemp("gst")
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    program = folder / "gstreamer" / "gst"
    env = {**os.environ, "GST_STATE": str(folder / "state")}
    tried = subprocess.run(
        [program, "gst-inspect-1.0", "cudaipcsink"],
        capture_output=True,
        check=False,
        env=env,
        text=True,
        timeout=60,
    )
    if tried.returncode:
        pytest.skip(f"GStreamer cannot share GPU memory here: {tried.stdout}{tried.stderr}"[-400:])
    return [str(program), "gst-launch-1.0", "-q", "-e"], env


def source(pattern="blink", *, count=-1, format_="NV12", width=WIDTH, height=HEIGHT, fps=60):
    """Return a test source, as words of a pipeline."""
    return SOURCE.format(
        pattern=pattern, count=count, format=format_, width=width, height=height, fps=fps
    )


@contextlib.contextmanager
def launch(gst, words, **options):
    """Run a pipeline; it is ended, at the latest, with the block."""
    command, env = gst
    with subprocess.Popen([*command, *words.split()], env=env, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def pipeline(gst, path, mode="mmap", *, head=None, upload="! cudaupload"):
    """Run a pipeline that shares its frames at `path`, by default those of a test source."""
    return launch(gst, f"{head or source()} {upload} ! cudaipcsink address={path} ipc-mode={mode}")


def say(text):
    """Tell a figure; shown with ``-rP`` or ``-s``."""
    sys.stderr.write(f"{text}\n")


def subscribe(path, mode="newest", **options):
    """Subscribe to the pipeline at `path`."""
    return cf.subscribe(f"gst://{path}", mode, timeout=20, **options)
