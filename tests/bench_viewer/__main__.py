"""``python -m tests.bench_viewer [CONTENDER ...]``."""

import sys

from tests.bench_viewer.contenders import CONTENDERS
from tests.bench_viewer.run import BUSY, SLEEP, bench


def main():
    """Measure each contender and print what came of it."""
    for name in sys.argv[1:] or CONTENDERS:
        contender = CONTENDERS[name]
        with bench(contender, cells=[BUSY.format(seconds=10), SLEEP.format(seconds=10)]) as b:
            b.measure(2)
            print(name, "idle", b.measure(10), f"doubt {b.doubt * 1e3:.1f} ms", flush=True)
            b.cell(1, wait=False)
            print(name, "busy", b.measure(9), flush=True)
            b.page.wait_for("bench.kernel() === 'idle'")
            b.cell(2, wait=False)
            print(name, "sleep", b.measure(9), flush=True)


if __name__ == "__main__":
    main()
