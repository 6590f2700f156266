"""Frames that describe themselves, and publishers and subscribers with a test's usual arguments.

Every component of a plane has the same value, which follows from the frame's sequence number and
the plane. So a frame that is torn, stale or another slot's names itself. `fill` and `check` work on
NumPy and CuPy alike.
"""

import time

import cuframes_nb as cf

__all__ = [
    "HEIGHT",
    "WIDTH",
    "check",
    "fill",
    "publish",
    "publisher",
    "until",
    "value",
    "wrong",
]

WIDTH, HEIGHT = 64, 48

_PRIMES = {1: (251, 241, 239), 2: (65521, 65519, 65497)}
"""Moduli by item size and plane: together they tell far more than 2**15 frames apart."""


def publisher(key="cam", **changes):
    """Return a small publisher on host memory."""
    arguments = {"width": WIDTH, "height": HEIGHT, "memory": "host", **changes}
    return cf.Publisher(key, **arguments)


def value(seq, index=0, itemsize=1):
    """Return what each component of plane `index` of frame `seq` is."""
    return seq % _PRIMES[itemsize][index]


def fill(slot, seq=None):
    """Write frame `seq`, by default the one that the slot will be, into a slot."""
    seq = slot.seq if seq is None else seq
    for index, plane in enumerate(slot.planes):
        plane[...] = value(seq, index, plane.dtype.itemsize)
    return seq


def publish(pub, count=1):
    """Publish `count` frames; return the last one's sequence number."""
    seq = 0
    for _ in range(count):
        slot = pub.acquire()
        fill(slot)
        seq = pub.publish(slot)
    return seq


def wrong(planes, seq):
    """Return what is wrong with the planes of frame `seq`, "" if nothing is."""
    for index, plane in enumerate(planes):
        low, high = int(plane.min()), int(plane.max())
        want = value(seq, index, plane.dtype.itemsize)
        if not low == want == high:
            return f"plane {index} of frame {seq} has {low}..{high} instead of {want}"
    return ""


def check(frame, seq=None):
    """Assert that the frame's pixels are those of `seq`, by default its own number."""
    seq = frame.seq if seq is None else seq
    assert wrong(frame.planes, seq) == ""


def until(condition, seconds=30.0):
    """Wait until ``condition()`` holds; the time is only a watchdog."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
