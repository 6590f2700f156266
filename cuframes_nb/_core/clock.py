"""The one clock: CLOCK_MONOTONIC, which every process of a machine reads alike."""

from __future__ import annotations

import time

__all__ = ["now_ns"]


def now_ns() -> int:
    """Return the time in nanoseconds of CLOCK_MONOTONIC.

    The clock of ``pts_ns`` and ``age_ns``, and of GStreamer's and V4L2's timestamps; the same in
    every process of a machine (unless put into another time namespace).
    """
    return time.monotonic_ns()
