"""Fixtures that fail a test which leaves a descriptor or a thread behind."""

import gc
import threading
import time
from pathlib import Path

import pytest

__all__ = ["no_fd_leak", "no_thread_leak"]

GRACE_S = 2.0
"""How long helper threads may take to end, and to close what they hold."""


def open_fds():
    """Return the open descriptors of this process as ``{(number, what it is)}``."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add((int(link.name), str(link.readlink())))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


def live_threads():
    """Return the threads that must not outlive a test."""
    return {
        thread
        for thread in threading.enumerate()
        if not thread.daemon or thread.name.startswith("cuframes")
    }


def remaining(look, before):
    """Return what ``look()`` sees beyond ``before``, once it had time to go away.

    Garbage is collected only where something is left: collecting takes longer than most tests.
    """
    deadline = time.monotonic() + GRACE_S
    while (new := look() - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return new


@pytest.fixture(autouse=True)
def no_fd_leak(request):
    """Fail the test if descriptors are open after it that were not before it."""
    if request.node.get_closest_marker("foreign_fds"):
        yield
        return
    before = open_fds()
    yield
    if new := remaining(open_fds, before):
        lines = "".join(f"\n  {fd} -> {target}" for fd, target in sorted(new))
        pytest.fail(f"{len(new)} descriptor(s) left open:{lines}", pytrace=False)


@pytest.fixture(autouse=True)
def no_thread_leak():
    """Fail the test if a thread of ours, or one that is no daemon, runs on after it."""
    before = live_threads()
    yield
    if new := remaining(live_threads, before):
        lines = "".join(f"\n  {thread!r}" for thread in new)
        pytest.fail(f"{len(new)} thread(s) left running:{lines}", pytrace=False)
