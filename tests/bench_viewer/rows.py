"""What is measured: each row is a function of a contender that returns figures."""

import time

import numpy as np

from tests.bench_viewer.contenders import CONTENDERS, GRID
from tests.bench_viewer.run import SHOW, bench

__all__ = ["OURS_ONLY", "ROWS"]

MORE = SHOW + 1  #: the first cell of a row's own
BUSY = "t = time.monotonic()\nwhile time.monotonic() - t < 10: pass"
SLEEP = "time.sleep(10)"
STALL_MS = 2000


def idle(contender):
    """Nothing else happens."""
    with bench(contender) as b:
        b.measure(2)
        figures = b.measure(10)
        return figures | b.cost(10) | {"clocks_agree_within_ms": round(b.doubt * 1e3, 1)}


def while_a_cell(cell):
    """Return a row for what the main thread of the kernel does meanwhile."""

    def row(contender):
        with bench(contender, cells=[cell]) as b:
            b.measure(2)
            b.cell(MORE, wait=False)
            return b.measure(9)

    return row


def first(contender):
    """How long from running the cell to the first picture, in a kernel that has imported all."""
    took = []
    for _ in range(3):
        with bench(contender, show=False) as b:
            time.sleep(2)
            began = b.cell(SHOW)
            b.page.wait_for("bench.first !== null")
            took.append(b.page.evaluate("bench.first") - began)
    return {"first_picture_ms": round(float(np.median(took)))}


def stall(contender):
    """How long after the page stood still a picture is less than twice as late as before."""
    with bench(contender) as b:
        b.measure(2)
        usual = b.measure(4)["p50_ms"]
        b.page.evaluate("bench.take()")
        ended = b.page.evaluate(f"bench.stall({STALL_MS})") / 1e3 + b.offset
        time.sleep(4)
        at, lag = b.lags(b.page.evaluate("bench.take()")["seen"])
        prompt = at[(at > ended) & (lag * 1e3 < 2 * usual)]
        return {"usual_p50_ms": usual, "late_for_ms": round((prompt.min() - ended) * 1e3)}


def hidden(contender):
    """Bytes sent while the picture is scrolled out of sight, and behind another tab."""
    with bench(contender, cells=["pass"] * 60) as b:
        b.measure(2)
        b.page.evaluate(f"bench.panel().content.scrollToItem({MORE + 55}, 'start')")
        time.sleep(3)
        away = b.measure(5)
        b.page.evaluate(f"bench.panel().content.scrollToItem({SHOW}, 'start')")
        time.sleep(2)
        with b.covered():
            time.sleep(3)
            behind = b.measure(5)
        return {
            "scrolled_away_kbyte_s": round(away["mbyte_s"] * 1e3, 2),
            "covered_kbyte_s": round(behind["mbyte_s"] * 1e3, 2),
        }


def growth(contender):
    """How the page's heap and the kernel's memory grow, in MB a minute."""
    with bench(contender) as b:
        time.sleep(20)
        b.page.evaluate("bench.sample = false")
        rows = []
        start = time.monotonic()
        while (at := time.monotonic() - start) < 60:
            rows.append((at / 60, *b.sizes()))
            time.sleep(5)
        at, heap, rss = np.array(rows).T
        return {
            "heap_mb_min": round(float(np.polyfit(at, heap, 1)[0]) / 1e6, 2),
            "kernel_rss_mb_min": round(float(np.polyfit(at, rss, 1)[0]) / 1e6, 2),
        }


def of(size, fps, **options):
    """Return a row for a size and a rate."""

    def row(contender):
        with bench(contender, size=size, fps=fps, **options) as b:
            b.measure(4)
            return b.measure(10) | b.cost(8)

    return row


def link(mbit):
    """Return a row for a link of so many Mbit/s, with 20 ms each way."""

    def row(contender):
        with bench(contender, mbit=mbit) as b:
            b.measure(8)
            return b.measure(20)

    return row


def grid(_):
    """Four cameras side by side."""
    return of("1280x720", 29.97, keys=("cam1", "cam2", "cam3", "cam4"))(GRID)


ROWS = {
    "idle kernel": idle,
    "while a cell computes": while_a_cell(BUSY),
    "while a cell sleeps": while_a_cell(SLEEP),
    "1280x720 at 60 fps": of("1280x720", 59.94),
    "10 Mbit/s": link(10),
    "2 Mbit/s": link(2),
    "0.5 Mbit/s": link(0.5),
    "page stalled for 2 s": stall,
    "out of sight": hidden,
    "first picture": first,
    "growth": growth,
    "1920x1080 at 60 fps": of("1920x1080", 59.94),
    "3840x2160 at 30 fps": of("3840x2160", 29.97),
    "four of 1280x720 at 30 fps": grid,
}

OURS_ONLY = {"four of 1280x720 at 30 fps": [CONTENDERS["ours"]]}
