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
from tests.helpers import stamps as stamp

LOADING_MBIT = 1000
HERE = Path(__file__).parent
SCRIPT = stamp.JAVASCRIPT + (HERE / "page.js").read_text(encoding="utf-8")
BUSY = "t = time.monotonic()\nwhile time.monotonic() - t < {seconds}: pass"
SLEEP = "time.sleep({seconds})"


class Bench:
    """A page that shows a stream."""

    def __init__(self, page, lab, chrome, log):
        self.page = page
        self._chrome = psutil.Process(chrome.pid)
        self._server = psutil.Process(lab.process.pid)
        self._times = np.memmap(log, np.int64, "r")
        self._offset = self._clock_offset()

    def cell(self, index, *, wait=True):
        """Run a cell of the notebook."""
        self.page.evaluate(
            f"""(async () => {{
              const nb = bench.panel().content;
              nb.activeCellIndex = {index}; nb.deselectAll();
              const done = jupyterapp.commands.execute('notebook:run-cell');
              {"await done;" if wait else ""}
            }})()"""
        )

    def _clock_offset(self):
        """Return what to add to the page's clock, in seconds, to get ours; and its doubt."""
        best = (1e9, 0.0)
        for _ in range(30):
            before = time.monotonic()
            page = self.page.evaluate("performance.now()") / 1e3
            after = time.monotonic()
            best = min(best, (after - before, (before + after) / 2 - page))
        self.doubt = best[0] / 2
        return best[1]

    def _cpu(self):
        groups = {"server": [self._server], "kernel": self._server.children(),
                  "chromium": [self._chrome, *self._chrome.children(recursive=True)]}  # fmt: skip
        total = {}
        for name, processes in groups.items():
            times = []
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    used = process.cpu_times()
                    times.append(used.user + used.system)
            total[name] = sum(times)
        return total

    def measure(self, seconds):
        """Return what was painted, and what it cost."""
        before = self.page.evaluate("bench.take()")["traffic"]
        cpu, start = self._cpu(), time.monotonic()
        time.sleep(seconds)
        got = self.page.evaluate("bench.take()")
        wall = time.monotonic() - start
        cpu = {name: round(100 * (v - cpu[name]) / wall) for name, v in self._cpu().items()}
        traffic = {k: (got["traffic"][k] - before[k]) / wall for k in before}
        rows = np.array([(n, t / 1e3 + self._offset) for n, t in got["seen"]]).reshape(-1, 2)
        lag = np.array([t - self._times[int(n)] / 1e9 for n, t in rows])
        gaps = np.diff(rows[:, 1]) if len(rows) > 1 else np.array([wall])
        published = int(np.count_nonzero(
            self._times > (time.monotonic() - wall) * 1e9))  # fmt: skip
        return {
            "painted_fps": round(len(rows) / wall, 1),
            "published_fps": round(published / wall, 1),
            "p50_ms": round(float(np.median(lag)) * 1e3, 1) if len(lag) else None,
            "p95_ms": round(float(np.percentile(lag, 95)) * 1e3, 1) if len(lag) else None,
            "gap_ms": round(float(gaps.max()) * 1e3),
            "lag_growth": round(float(np.polyfit(rows[:, 1], lag, 1)[0]), 3)
            if len(lag) > 9
            else None,
            "MB_s": round(traffic["inBytes"] / 1e6, 2),
            "messages_s": round(traffic["inMessages"] + traffic["outMessages"]),
            "ticks": round(got["ticks"] / wall),
            **{f"cpu_{k}": v for k, v in cpu.items()},
        }


@contextlib.contextmanager
def bench(
    contender, *, size="1920x1080", fps=29.97, mbit=None, keys=("cam1",), cells=(), wait=True
):
    """Yield a `Bench` of a contender that shows pictures."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cf-")))
        runtime = root / "run"
        runtime.mkdir(mode=0o700)
        env = {"CUFRAMES_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(Path.cwd())}
        log = root / "times"
        publisher = subprocess.Popen(
            [sys.executable, "-m", "tests.bench_viewer.publish", *keys, "--size", size,
             "--fps", str(fps), "--log", str(log)],
            env={**os.environ, **env}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        stack.callback(publisher.wait)
        stack.callback(publisher.kill)
        assert publisher.stdout.readline().strip() == "ready"
        lab = stack.enter_context(lab_server(root, env, ["--expose-app-in-browser"]))
        lab.write("b.ipynb", contender.cell, *cells)
        url = lab.url
        if mbit:
            port = url.rsplit(":", 1)[1].strip("/").split("/")[0]
            link = subprocess.Popen(
                [sys.executable, "-m", "tests.bench_viewer.link", port, str(LOADING_MBIT)],
                env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            stack.callback(link.wait)
            stack.callback(link.kill)
            url = url.replace(port, link.stdout.readline().strip())
        process, new_page = stack.enter_context(chromium())
        page = new_page(SCRIPT)
        stack.callback(page.close)
        page.call("Page.navigate", url=f"{url}lab/tree/b.ipynb?token={lab.token}")
        page.call("Page.bringToFront")
        page.wait_for("bench.kernel() === 'idle'")
        page.evaluate("jupyterapp.shell.activateById(bench.panel().id)")
        time.sleep(1)
        b = Bench(page, lab, process, log)
        page.evaluate(f"bench.watch({contender.selector!r})")
        if mbit:  # only now: JupyterLab itself has 20 MB
            link.stdin.write(f"{mbit}\n")
            link.stdin.flush()
        b.cell(0)
        if wait:
            page.wait_for("bench.seen.length > 20", seconds=60)
        yield b
