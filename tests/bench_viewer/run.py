"""Starts everything, and measures."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from tests.bench_viewer.browser import chromium
from tests.browser.lab import lab_server
from tests.helpers import stamps

__all__ = ["Bench", "bench"]

HERE = Path(__file__).parent
SCRIPT = stamps.JAVASCRIPT + (HERE / "page.js").read_text(encoding="utf-8")
LOADING_MBIT = 1000
"""What a slow link carries while JupyterLab itself, 20 MB, is loaded."""

SETUP, SHOW = 0, 1
"""Cells of the notebook; what a row runs comes after them."""


class Bench:
    """A page that shows a stream."""

    def __init__(self, page, lab, chrome, new_page, log):
        self.page = page
        self._new_page = new_page
        self._chrome = psutil.Process(chrome.pid)
        self._server = psutil.Process(lab.process.pid)
        self._times = np.memmap(log, np.int64, "r")
        self.offset, self.doubt = self._clock()

    def cell(self, index, *, wait=True):
        """Run a cell of the notebook; returns when, in the page's milliseconds."""
        return self.page.evaluate(
            f"""(async () => {{
              const nb = bench.panel().content;
              nb.activeCellIndex = {index}; nb.deselectAll();
              const began = performance.now();
              const done = jupyterapp.commands.execute('notebook:run-cell');
              {"await done;" if wait else ""}
              return began;
            }})()"""
        )

    def wait_idle(self):
        """Wait until no cell runs."""
        self.page.wait_for("bench.kernel() === 'idle'")

    def measure(self, seconds):
        """Return what was painted meanwhile, how late, and what went over the socket."""
        before = self.page.evaluate("bench.take()")["traffic"]
        start = time.monotonic()
        time.sleep(seconds)
        got = self.page.evaluate("bench.take()")
        wall = time.monotonic() - start
        times, lag = self.lags(got["seen"])
        gaps = np.diff(times) if len(times) > 1 else np.array([wall])
        published = np.count_nonzero(self._times > (time.monotonic() - wall) * 1e9)
        traffic = {k: (got["traffic"][k] - before[k]) / wall for k in before}
        painted = max(len(lag), got["loads"])
        return {
            "painted_fps": round(painted / wall, 1),
            "missed_percent": round(max(0.0, 100 - 100 * painted / max(published, 1)), 1),
            "p50_ms": _round(np.median(lag) * 1e3) if len(lag) else None,
            "p95_ms": _round(np.percentile(lag, 95) * 1e3) if len(lag) else None,
            "longest_gap_ms": round(float(gaps.max()) * 1e3),
            "lag_growth": _round(np.polyfit(times, lag, 1)[0], 2) if len(lag) > 9 else None,
            "mbyte_s": round(traffic["inBytes"] / 1e6, 3),
            "messages_s": round(traffic["inMessages"] + traffic["outMessages"]),
        }

    def lags(self, seen):
        """Return when frames were painted, in our seconds, and how late."""
        rows = np.array([(n, at / 1e3 + self.offset) for n, at in seen]).reshape(-1, 2)
        return rows[:, 1], np.array([at - self._times[int(n)] / 1e9 for n, at in rows])

    def cost(self, seconds):
        """Return the CPU that it takes in percent of a core, with nobody reading the pictures."""
        self.page.evaluate("bench.sample = false")
        before, start = self._cpu(), time.monotonic()
        time.sleep(seconds)
        wall = time.monotonic() - start
        used = {name: round(100 * (v - before[name]) / wall) for name, v in self._cpu().items()}
        self.page.evaluate("bench.sample = true")
        return used

    @contextlib.contextmanager
    def covered(self):
        """Put another tab in front."""
        other = self._new_page("")
        other.call("Page.bringToFront")
        self.page.wait_for("document.visibilityState === 'hidden'")
        yield
        other.close()
        self.page.call("Page.bringToFront")

    def sizes(self):
        """Return the bytes of the page's heap, collected, and of the kernel's memory."""
        self.page.call("HeapProfiler.collectGarbage")
        heap = self.page.call("Runtime.getHeapUsage")["usedSize"]
        return heap, sum(kernel.memory_info().rss for kernel in self._server.children())

    def _cpu(self):
        groups = {
            "kernel": self._server.children(),
            "server": [self._server],
            "browser": [self._chrome, *self._chrome.children(recursive=True)],
        }
        return {name: sum(map(_cpu_seconds, processes)) for name, processes in groups.items()}

    def _clock(self):
        """Return what to add to the page's clock, in seconds, to get ours; and the doubt in it."""
        best = (1e9, 0.0)
        for _ in range(30):
            before = time.monotonic()
            page = self.page.evaluate("performance.now()") / 1e3
            after = time.monotonic()
            best = min(best, (after - before, (before + after) / 2 - page))
        return best[1], best[0] / 2


@contextlib.contextmanager
def bench(
    contender, *, size="1920x1080", fps=29.97, keys=("cam1",), mbit=None, cells=(), show=True
):
    """Yield a `Bench` of a contender.

    Parameters
    ----------
    contender
        Which.
    size, fps, keys
        What is published.
    mbit
        What the link to the server carries, with 20 ms each way; None for loopback as it is.
    cells
        More cells for the notebook.
    show
        Whether pictures are shown already; else cell `SHOW` is yet to be run.
    """
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cf-")))
        runtime = root / "run"
        runtime.mkdir(mode=0o700)
        env = {"CUFRAMES_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(Path.cwd())}
        log = root / "times"
        publisher = _start(
            stack, env, "publish", *keys, "--size", size, "--fps", str(fps), "--log", str(log)
        )
        assert publisher.stdout.readline().strip() == "ready"
        lab = stack.enter_context(lab_server(root, env, ["--expose-app-in-browser"]))
        lab.write("b.ipynb", contender.setup, contender.cell, *cells)
        url = lab.url
        if mbit:
            port = url.rsplit(":", 1)[1].strip("/").split("/")[0]
            link = _start(stack, env, "link", port, str(LOADING_MBIT))
            url = url.replace(port, link.stdout.readline().strip())
        process, new_page = stack.enter_context(chromium())
        page = new_page(SCRIPT)
        stack.callback(page.close)
        page.call("Page.navigate", url=f"{url}lab/tree/b.ipynb?token={lab.token}")
        page.call("Page.bringToFront")
        page.wait_for("bench.kernel() === 'idle'")
        page.evaluate("jupyterapp.shell.activateById(bench.panel().id)")
        time.sleep(1)
        b = Bench(page, lab, process, new_page, log)
        page.evaluate(f"bench.watch({contender.selector!r})")
        b.cell(SETUP)
        if mbit:
            link.stdin.write(f"{mbit}\n")
            link.stdin.flush()
        if show:
            b.cell(SHOW)
            page.wait_for("bench.seen.length > 0", seconds=60)
        yield b


def _start(stack, env, module, *arguments):
    """Start one of this package's programs, to be killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.bench_viewer.{module}", *arguments],
        env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for pipe in (process.stdin, process.stdout):
        stack.callback(pipe.close)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _cpu_seconds(process):
    try:
        used = process.cpu_times()
    except psutil.Error:  # it has ended
        return 0.0
    return used.user + used.system


def _round(value, digits=1):
    return round(float(value), digits)
