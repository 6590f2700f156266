"""The demo's second process: looks at each frame where the first one wrote it."""

from __future__ import annotations

import sys
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import cuframes_nb as cf
from cuframes_nb._runtime.session import was_farewell
from cuframes_nb.cli.demo.line import LiveLine
from cuframes_nb.cli.demo.picture import Facts, draw
from cuframes_nb.errors import CuframesError, PublisherGoneError

__all__ = ["Sample", "Watch", "main"]

_HISTORY_SECONDS: Final = 10.0
_FIRST_PICTURE_SECONDS: Final = 3.0
_STRIDE: Final = 4
"""Motion is measured on every fourth pixel of every fourth row."""


class Sample(NamedTuple):
    """What was measured on one frame."""

    seconds: float  #: when, on CLOCK_MONOTONIC
    brightness: float  #: mean of Y, 0..1 of its range
    motion: float  #: mean absolute difference to the frame before, 0..1


class Watch:
    """Takes frames, measures them and tells about it.

    Parameters
    ----------
    subscriber
        Where the frames come from.
    out
        The picture to write.
    line
        Where to tell.
    """

    def __init__(self, subscriber: cf.Subscriber, out: Path, line: LiveLine) -> None:
        self._subscriber = subscriber
        self._out = out
        self._line = line
        self._samples: deque[Sample] = deque()
        self._before: Any = None
        self._frame: cf.Frame | None = None
        self._age_ns = 0
        self._drawing: Future[None] | None = None
        self._painter = ThreadPoolExecutor(1, thread_name_prefix="picture")

    def run(self) -> None:
        """Watch until the stream ends, then write the picture.

        Raises
        ------
        PublisherGoneError
            If the publisher died.
        OSError
            If the picture cannot be written.
        """
        with self._painter:
            self._watch()

    def _watch(self) -> None:
        started = time.monotonic()
        try:
            while True:
                self._take(self._subscriber.next())
                if self._drawing is None and time.monotonic() > started + _FIRST_PICTURE_SECONDS:
                    self._draw()
        except PublisherGoneError as error:
            self._line.end()
            if not was_farewell(error):
                raise
        self._draw()
        if self._drawing is not None and self._frame is not None:
            self._drawing.result()
            self._frame.release()
            print(f"wrote {self._out.resolve()}")

    def _take(self, frame: cf.Frame) -> None:
        self._age_ns = frame.age_ns
        if self._frame is not None:
            self._frame.release()
        self._frame = frame
        self._measure(frame)
        if self._line.due():
            self._line.show(self._facts(frame), self._samples[-1])

    def _measure(self, frame: cf.Frame) -> None:
        """Compute on the shared memory itself; from a GPU only the two results come."""
        full = 255 if frame.y.dtype.itemsize == 1 else 65472  # P010 has its 10 bits on top
        small = frame.y[::_STRIDE, ::_STRIDE].astype("float32")
        before, self._before = self._before, small
        same = before is not None and before.shape == small.shape
        motion = float(abs(small - before).mean()) / full if same else 0.0
        now = time.monotonic()
        self._samples.append(Sample(now, float(frame.y.mean()) / full, motion))
        while self._samples[0].seconds < now - _HISTORY_SECONDS:
            self._samples.popleft()

    def _facts(self, frame: cf.Frame) -> Facts:
        return Facts.of(frame, self._subscriber, self._age_ns, self._fps())

    def _fps(self) -> float:
        """Frames a second over the last second."""
        times = [s.seconds for s in self._samples if s.seconds > self._samples[-1].seconds - 1]
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0

    def _draw(self) -> None:
        """Have the picture drawn, of this frame, while frames go on."""
        if self._drawing is not None:
            self._drawing.result()
        if self._frame is not None:
            work = (self._frame, self._facts(self._frame), tuple(self._samples), self._out)
            self._drawing = self._painter.submit(draw(*work))


def main() -> int:
    """Watch the stream named first into the picture named second."""
    key, out = sys.argv[1:]
    try:
        with cf.subscribe(key, reconnect=False, name="demo watcher") as subscriber:
            Watch(subscriber, Path(out), LiveLine(sys.stdout)).run()
    except (CuframesError, OSError) as error:
        print(f"cuframes-nb demo: the watching process gave up: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
