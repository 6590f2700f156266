"""Streams to look at, and what a page shows of them."""

import contextlib
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import cuframes_nb as cf
from tests.helpers import stamps
from tests.helpers.children import ROOT

__all__ = ["PICTURE", "Camera", "server_folder", "shown", "until", "wait_shown"]

PICTURE = ".cuframes-view .layer canvas"

SHOWN = """
(selector) => {
  const find = (root) => { // also in shadow trees, where some front ends have widgets
    const canvas = root.querySelector(selector);
    if (canvas) return canvas;
    const hosts = [...root.querySelectorAll("*")].filter((element) => element.shadowRoot);
    return hosts.map((host) => find(host.shadowRoot)).find(Boolean);
  };
  const canvas = find(document);
  if (!canvas || canvas.width < 100) return -1;
  const small = new OffscreenCanvas(STAMP.cells * 5, 1);
  return readStamp(small.getContext("2d"), canvas, canvas.width, canvas.height);
}
"""


class Camera:
    """Publishes frames that carry their number, from this process, until it is closed."""

    def __init__(self, key="cam1", *, width=1920, height=1080, fps=30, **options):
        self.pub = cf.Publisher(key, width=width, height=height, memory="host", **options)
        self._fps = fps
        self._stop = threading.Event()
        self.number = 0
        self.times = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        noise = np.random.default_rng(1).integers(60, 200, (1080, 1920), np.uint8)
        while not self._stop.wait(1 / self._fps):
            with contextlib.suppress(cf.RingFullError), self.pub.acquire() as slot:
                number = self.number + 1
                slot.y[:] = noise[: slot.y.shape[0], : slot.y.shape[1]]
                slot.uv[:] = 128
                stamps.write(slot.y, number)
                self.times[number] = time.monotonic()
                self.number = number

    def close(self):
        self._stop.set()
        self._thread.join()
        self.pub.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()


def shown(page):
    """Return the number of the frame that is on screen; -1 while there is none."""
    return page.evaluate(SHOWN, PICTURE)


def wait_shown(page, condition, seconds=30):
    """Wait until the number on screen fulfils a condition, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        number = shown(page)
        if condition(number):
            return number
        assert time.monotonic() < deadline, f"frame {number} is on screen"
        time.sleep(0.02)


def until(condition, seconds=30):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


@contextlib.contextmanager
def server_folder():
    """Make a folder for a server, with a runtime directory: yield both, and its environment."""
    root = Path(tempfile.mkdtemp(prefix="cf-", dir="/tmp"))
    run = root / "run"
    run.mkdir(mode=0o700)
    try:
        yield root, run, {"CUFRAMES_RUNTIME_DIR": str(run), "PYTHONPATH": str(ROOT)}
    finally:
        shutil.rmtree(root, ignore_errors=True)
