"""Sharing frames: a small stream, published and read by one process."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb.errors import CuframesError

if TYPE_CHECKING:
    from cuframes_nb._api.info import StreamInfo

__all__ = ["look_at_host_memory", "look_at_kernel", "share"]

_KEY: Final = "doctor"
_LUMA: Final = 77
_SECONDS: Final = 10.0

_KERNEL: Final = "Linux 5.1 or newer is needed, and nothing (seccomp, gVisor) that takes this away"


def look_at_kernel() -> Iterator[Check]:
    """Yield whether the kernel keeps the two promises that all rests on."""
    from cuframes_nb._os.memfd import create_sealed, reopen_read_only

    fd, mapping = create_sealed("doctor", 4096)
    with contextlib.closing(mapping), fd:
        yield _sealed(fd.fileno())
        with reopen_read_only(fd) as again:
            yield _locked(fd.fileno(), again.fileno())


def _sealed(fd: int) -> Check:
    try:
        os.ftruncate(fd, 1)
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.pwrite(fd, b"!", 0)
            return _kernel("sealed memory", Status.FAILED, "sealed memory could be written")
        return _kernel("sealed memory", Status.OK, "a memfd that nobody can shrink or write")
    return _kernel("sealed memory", Status.FAILED, "sealed memory could be made smaller")


def _locked(writer: int, reader: int) -> Check:
    from cuframes_nb._os.locks import ReadLock, WriteLock, conflicting_lock

    held = ReadLock(1, 1)
    if not held.try_acquire(reader):
        return _kernel("record locks", Status.FAILED, "a lock on a free byte was refused")
    refused = not WriteLock(0, 4).try_acquire(writer) and conflicting_lock(writer, 0, 4) == 1
    held.release(reader)
    if refused and conflicting_lock(writer, 0, 4) is None:
        return _kernel("record locks", Status.OK, "of open file descriptions: they hold and end")
    return _kernel("record locks", Status.FAILED, "a lock did not keep a writer out, or stayed")


def _kernel(name: str, status: Status, found: str) -> Check:
    advice = "" if status is Status.OK else _KERNEL
    return Check("system", name, status, found, advice, needed=True)


def look_at_host_memory() -> Iterator[Check]:
    """Yield whether a frame comes through host memory."""
    try:
        share("host")
    except OSError as error:
        if isinstance(error, CuframesError):
            raise
        advice = {
            errno.ENOMEM: "free memory, or raise the container's limit",
            errno.EMFILE: "raise 'ulimit -n'",
        }.get(error.errno or 0, "")
        yield _host(Status.FAILED, str(error), advice)
    except ImportError as error:
        yield _host(Status.MISSING, f"frames are NumPy arrays: {error}", "pip install numpy")
    except CuframesError as error:
        yield _host(Status.FAILED, str(error), "")
    else:
        yield _host(Status.OK, "a frame was published and read where it was written")


def _host(status: Status, found: str, advice: str = "") -> Check:
    return Check("frames", "host memory", status, found, advice, needed=True)


def share(memory: str, device: int | None = None) -> tuple[StreamInfo, str]:
    """Publish a frame and read it; return what the publisher says, and why completion is so.

    Raises
    ------
    CuframesError
        If it does not come, or not as it was.
    """
    import cuframes_nb as cf

    with cf.Publisher(_KEY, width=64, height=48, memory=memory, device=device) as publisher:
        with publisher.acquire() as slot:
            slot.y[:] = _LUMA
            slot.uv[:] = 128
        with cf.subscribe(_KEY, timeout=_SECONDS, name="doctor") as subscriber:
            with subscriber.next(timeout=_SECONDS) as frame:
                low, high = int(frame.y.min()), int(frame.y.max())
            if (low, high) != (_LUMA, _LUMA):
                raise CuframesError(f"a frame of {_LUMA} was read as {low} to {high}")
        info = publisher.info
        return info, info.completion_reason
