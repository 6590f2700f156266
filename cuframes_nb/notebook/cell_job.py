"""A job that runs a cell for each new frame."""

from __future__ import annotations

import gc
import time
from typing import Final

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._show.quantities import amount
from cuframes_nb.errors import ClosedError, FrameTimeout, LeaseLimitError
from cuframes_nb.notebook.cell import FrameFunction
from cuframes_nb.notebook.jobs import REPORT_SECONDS, Job

__all__ = ["FAILURES_IN_A_ROW", "CellJob"]

FAILURES_IN_A_ROW: Final = 10
"""After so many a cell is taken to be wrong, not unlucky."""

_LIMIT_SECONDS: Final = 0.1
"""How often a job that holds all the frames it may looks whether one was let go."""


class CellJob(Job):
    """Runs a function for each new frame; while it is busy, frames are skipped.

    Each frame is released after its run. Errors of the function are counted and the next frame is
    tried, until there were too many in a row.

    Parameters
    ----------
    name
        What the job is called.
    subscriber
        Where frames come from; closed at the end.
    function
        What to run.
    every
        Run it for a frame and not for the next ``every - 1`` that are published.
    seconds
        End after so long, None for never.
    """

    kind = "cell"

    def __init__(
        self,
        name: str,
        subscriber: Subscriber,
        function: FrameFunction,
        *,
        every: int = 1,
        seconds: float | None = None,
    ) -> None:
        super().__init__(name, subscriber.info.key)
        self._subscriber = subscriber
        self._function = function
        self._every, self._seconds = every, seconds
        self._last_seq = 0
        self._in_a_row = 0
        self._at_limit = False

    def _work(self) -> str:
        end = None if self._seconds is None else time.monotonic() + self._seconds
        while not self._stopping.is_set():
            left = REPORT_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                return "finished"
            frame = self._take(min(left, REPORT_SECONDS))
            if frame is not None:
                self._run(frame)
            if self._in_a_row >= FAILURES_IN_A_ROW:
                self._note = f"{FAILURES_IN_A_ROW} frames in a row failed, so it gave up"
                return "failed"
            self._report()
        return "stopped"

    def _take(self, patience: float) -> Frame | None:
        """Return the next frame that is wanted, None if it does not come in time."""
        try:
            frame = self._subscriber.next(patience)
        except FrameTimeout as error:
            self._state, self._note = "waiting", str(error)
            return None
        except LeaseLimitError:
            self._wait_for_lease(patience)
            return None
        except ClosedError:
            if self._stopping.is_set():
                return None
            raise
        self._state, self._note, self._at_limit = "running", "", False
        if self._is_wanted(frame.seq):
            return frame
        frame.release()
        return None

    def _is_wanted(self, seq: int) -> bool:
        # A publisher that came back counts from 1 again.
        if self._last_seq < seq < self._last_seq + self._every and self._last_seq:
            return False
        self._last_seq = seq
        return True

    def _wait_for_lease(self, patience: float) -> None:
        self._state = "waiting"
        held = amount(self._subscriber.stats.lease_limit, "frame")
        self._note = (
            f"arrays that the cell kept hold the {held} that a subscriber may hold: keep copies, "
            f"such as frame.y.copy() or frame.copy(), and delete those arrays"
        )
        if not self._at_limit:
            self._at_limit = True
            gc.collect()  # they may be garbage already, in a cycle
        self._stopping.wait(min(_LIMIT_SECONDS, patience))

    def _run(self, frame: Frame) -> None:
        self._frames += 1
        try:
            with frame:
                self._function(frame, self._frames)
        except Exception as error:  # noqa: BLE001  whatever the user's code raises
            self._failures.add(error)
            self._in_a_row += 1
        else:
            self._in_a_row = 0

    def _interrupt(self) -> None:
        self._subscriber.close()

    def _close(self) -> None:
        self._subscriber.close()
