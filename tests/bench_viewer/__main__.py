"""What viewers paint, how late, and what it costs: ``python -m tests.bench_viewer [NAME ...]``."""

import sys

from tests.bench_viewer.contenders import CONTENDERS
from tests.bench_viewer.run import BUSY, SLEEP, bench

SECONDS = 10
LINKS = (10.0, 2.0, 0.5)
"""Mbit/s, with 20 ms each way."""


def main():
    """Measure each contender and print what came of it."""
    for name in sys.argv[1:] or CONTENDERS:
        _local(name, CONTENDERS[name])
        for mbit in LINKS:
            with bench(CONTENDERS[name], mbit=mbit, wait=False) as b:
                b.measure(8)
                print(name, f"{mbit:g} Mbit/s", b.measure(2 * SECONDS), flush=True)


def _local(name, contender):
    cells = [BUSY.format(seconds=SECONDS), SLEEP.format(seconds=SECONDS)]
    with bench(contender, cells=cells) as b:
        b.measure(2)
        doubt = f"clocks agree within {b.doubt * 1e3:.1f} ms"
        print(name, "kernel idle", b.measure(SECONDS), doubt, flush=True)
        b.cell(1, wait=False)
        print(name, "cell computes", b.measure(SECONDS - 1), flush=True)
        b.page.wait_for("bench.kernel() === 'idle'")
        b.cell(2, wait=False)
        print(name, "cell sleeps", b.measure(SECONDS - 1), flush=True)


if __name__ == "__main__":
    main()
