"""Sharing frames: a small stream, published and read by one process."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb.errors import CuframesError

if TYPE_CHECKING:
    from cuframes_nb._api.devices import DeviceInfo
    from cuframes_nb._api.info import StreamInfo

__all__ = ["look_at_gpus", "look_at_host_memory", "look_at_kernel"]

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
        _share("host")
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


def look_at_gpus() -> Iterator[Check]:
    """Yield the driver, and whether a frame comes through the memory of each GPU."""
    from cuframes_nb._api.devices import devices
    from cuframes_nb._cuda import devices as cuda_devices
    from cuframes_nb._cuda.driver import call
    from cuframes_nb.errors import DeviceError

    try:
        count = cuda_devices.device_count()
        version = int(call("cuDriverGetVersion"))
    except DeviceError as error:
        yield _without(error)
        return
    kernel = _kernel_driver()
    runs = f"CUDA {version // 1000}.{version % 1000 // 10}{kernel and f', driver {kernel}'}"
    yield Check("GPU", "driver", Status.OK, f"{runs}, {count} to be seen here")
    for device in devices():
        yield _gpu(device)
    if chosen := os.environ.get(cuda_devices.ENVIRONMENT):
        yield _chosen(chosen)


def _without(error: CuframesError) -> Check:
    """Return why there is no GPU; only where one is on the machine is anything to be done."""
    if any(Path("/dev").glob("nvidia[0-9]*")) or any(Path("/proc/driver/nvidia/gpus").glob("*")):
        return Check("GPU", "driver", Status.FAILED, str(error), "a GPU is on this machine, unused")
    advice = "nothing, if this machine has no NVIDIA GPU: frames are in host memory"
    return Check("GPU", "driver", Status.MISSING, str(error), advice)


def _gpu(device: DeviceInfo) -> Check:
    name = f"GPU {device.ordinal}"
    what = f"{device.name}, {device.total_bytes / (1 << 30):.0f} GiB, {device.uuid}"
    try:
        info, reason = _share("cuda", device.ordinal)
    except (CuframesError, ImportError) as error:
        return Check("GPU", name, Status.FAILED, f"{what}: {error}", "memory='host' works without")
    if info.completion == "gpu":
        return Check("GPU", name, Status.OK, f"{what}: a frame was published and read; {reason}")
    return Check(
        "GPU", name, Status.WARN, f"{what}: a frame was published and read; {reason}",
        "it works; publish takes as long as the GPU's work",
    )  # fmt: skip


def _chosen(wanted: str) -> Check:
    from cuframes_nb._cuda.devices import ENVIRONMENT, select

    name = f"${ENVIRONMENT}"
    try:
        gpu, _ = select(None)
    except CuframesError as error:
        return Check("GPU", name, Status.FAILED, str(error), "set it to one of these, or unset it")
    return Check("GPU", name, Status.OK, f"{wanted} is GPU {gpu.ordinal}, {gpu.name}")


def _share(memory: str, device: int | None = None) -> tuple[StreamInfo, str]:
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


def _kernel_driver() -> str:
    """Return the version of the kernel's driver, which is what people know it by."""
    with contextlib.suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    return ""
