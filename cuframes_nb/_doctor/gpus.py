"""The GPUs: the driver, what hides them, and whether frames come through the memory of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from cuframes_nb._api.devices import DeviceInfo, devices, kernel_driver
from cuframes_nb._core.choosing import ENVIRONMENT
from cuframes_nb._core.visible_devices import VARIABLE, read
from cuframes_nb._doctor.checks import Check, Status, Trial, outcomes
from cuframes_nb._doctor.gpu_trials import TRIALS, Outcome
from cuframes_nb._doctor.sharing import share
from cuframes_nb.errors import CudaError, CuframesError, DeviceError

__all__ = ["look_at_gpus"]

_ADVICE: Final = {
    "CUDA_ERROR_INVALID_DEVICE": f"look at ${VARIABLE}: it names a GPU twice, or wrongly",
    "CUDA_ERROR_UNKNOWN": "load the module nvidia_uvm ('modprobe nvidia_uvm'), or start again",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "start the machine again: driver and libcuda differ",
    "CUDA_ERROR_SYSTEM_NOT_READY": "start nvidia-fabricmanager, which these GPUs need",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "take the compatibility libcuda from the path",
    "CUDA_ERROR_STUB_LIBRARY": "take the toolkit's 'stubs' from LD_LIBRARY_PATH",
}
"""What to do where CUDA does not start, by the name of its result (CUDA Driver API, CUresult)."""


def look_at_gpus() -> Iterator[Check]:
    """Yield the driver, what is hidden, and what came of trying each visible GPU."""
    from cuframes_nb._cuda.devices import cuda_version, device_count

    found = devices()
    try:
        count, version = device_count(), cuda_version()
    except DeviceError as error:
        yield _without(error)
    else:
        yield _driver(count, version)
    yield from _management()
    yield from _hidden(found)
    for device in found:
        if device.ordinal is not None:
            yield from _tried(device, device.ordinal)
    if chosen := os.environ.get(ENVIRONMENT):
        yield _chosen(chosen)


def _driver(count: int, version: str) -> Check:
    runs = ", ".join(filter(None, [f"CUDA {version}", kernel_driver() and _named_driver()]))
    found = f"{runs}, {count} to be seen here"
    bindings = _bindings_version()
    if bindings and _major(bindings) > _major(version):
        return Check(
            "GPU", "driver", Status.WARN,
            f"{found}; the CUDA bindings {bindings} are for a newer one",
            "pip install 'cuframes-nb[cuda12]', or install driver 580 or newer",
        )  # fmt: skip
    return Check("GPU", "driver", Status.OK, found)


def _named_driver() -> str:
    return f"driver {kernel_driver()}"


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _bindings_version() -> str:
    try:
        return metadata.version("cuda-bindings")
    except metadata.PackageNotFoundError:
        return ""


def _without(error: DeviceError) -> Check:
    """Return why there is no GPU; only where one is on the machine is anything to be done."""
    if _on_machine():
        advice = _ADVICE.get(_result(error), "a GPU is on this machine, unused")
        return Check("GPU", "driver", Status.FAILED, str(error), advice)
    advice = "nothing, if this machine has no NVIDIA GPU: frames are in host memory"
    return Check("GPU", "driver", Status.MISSING, str(error), advice)


def _on_machine() -> bool:
    device, proc = Path("/dev").glob("nvidia[0-9]*"), Path("/proc/driver/nvidia/gpus").glob("*")
    return any(device) or any(proc)


def _result(error: DeviceError) -> str:
    return error.name if isinstance(error, CudaError) else ""


def _management() -> Iterator[Check]:
    """Yield whether NVML tells of the GPUs; nothing where there is no driver to tell of."""
    from cuframes_nb._cuda import nvml

    try:
        machine = nvml.look()
    except DeviceError as error:
        if kernel_driver() or devices():
            yield Check(
                "GPU", "NVML", Status.MISSING, str(error),
                "it works without; GPUs that are hidden are not told of in full",
            )  # fmt: skip
    else:
        told = f"{len(machine.boards)} on this machine, driver {machine.driver}"
        yield Check("GPU", "NVML", Status.OK, told)


def _hidden(found: list[DeviceInfo]) -> Iterator[Check]:
    value = os.environ.get(VARIABLE)
    seen = sum(device.ordinal is not None for device in found)
    if value is not None and found:
        reading = read(value, [device.uuid for device in found])
        told = f"{value!r} shows {seen} of {len(found)}"
        if reading.repeats:
            told, advice = f"{told}: it names a GPU twice", "name each GPU once"
            yield Check("GPU", f"${VARIABLE}", Status.FAILED, told, advice)
        elif reading.ended_by is not None:
            told = f"{told}: the list ends at {reading.ended_by!r}, which names no GPU here"
            yield Check("GPU", f"${VARIABLE}", Status.WARN, told, "name only GPUs that are here")
        else:
            yield Check("GPU", f"${VARIABLE}", Status.OK, told)
        return
    for device in found:
        if device.ordinal is None:
            what = f"{device.name} {device.uuid} is hidden by {device.hidden_by}"
            yield Check("GPU", f"GPU at {device.pci_bus_id}", Status.WARN, what)


def _tried(device: DeviceInfo, ordinal: int) -> Iterator[Check]:
    yield _shared(device, ordinal)
    for name, trial in TRIALS:
        # One that raises has failed, and the others are tried all the same.
        yield from outcomes(Trial("GPU", f"GPU {ordinal} {name}", _asked(trial, ordinal, name)))


def _asked(
    trial: Callable[[int], Outcome], ordinal: int, name: str
) -> Callable[[], Iterable[Check]]:
    return lambda: [Check("GPU", f"GPU {ordinal} {name}", *trial(ordinal))]


def _shared(device: DeviceInfo, ordinal: int) -> Check:
    name = f"GPU {ordinal}"
    what = f"{device.name}, {device.total_bytes / (1 << 30):.0f} GiB, {device.uuid}"
    try:
        info, reason = share("cuda", ordinal)
    except (CuframesError, ImportError) as error:
        return Check("GPU", name, Status.FAILED, f"{what}: {error}", "memory='host' works without")
    if info.completion == "gpu":
        return Check("GPU", name, Status.OK, f"{what}: a frame was published and read; {reason}")
    return Check(
        "GPU", name, Status.WARN, f"{what}: a frame was published and read; {reason}",
        "it works; publish takes as long as the GPU's work",
    )  # fmt: skip


def _chosen(wanted: str) -> Check:
    from cuframes_nb._cuda.devices import select

    name = f"${ENVIRONMENT}"
    try:
        gpu, _ = select(None)
    except CuframesError as error:
        return Check("GPU", name, Status.FAILED, str(error), "set it to one of these, or unset it")
    return Check("GPU", name, Status.OK, f"{wanted} is GPU {gpu.ordinal}, {gpu.name}")
