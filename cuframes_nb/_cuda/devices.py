"""The GPUs that this process sees, and their primary contexts."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._cuda.driver import call, driver, error, function, initialise
from cuframes_nb.errors import CudaError, DeviceError, InvalidArgumentError

__all__ = [
    "ENVIRONMENT",
    "Gpu",
    "activated",
    "device_count",
    "find_by_uuid",
    "gpu",
    "gpus",
    "select",
]

ENVIRONMENT: Final = "CUFRAMES_DEVICE"
_PROC: Final = Path("/proc/driver/nvidia/gpus")


class Gpu(NamedTuple):
    """One GPU as the driver describes it, found out without making a context on it."""

    ordinal: int
    name: str
    uuid: bytes
    pci_bus_id: str
    total_bytes: int
    compute_capability: tuple[int, int]
    integrated: bool
    can_share: bool  #: the driver says that it exports memory as descriptors


def device_count() -> int:
    """Return how many GPUs this process sees."""
    initialise()
    return int(call("cuDeviceGetCount"))


@functools.cache
def gpu(ordinal: int) -> Gpu:
    """Return what the driver says of a GPU."""
    initialise()
    device = call("cuDeviceGet", ordinal)
    name = call("cuDeviceGetName", 128, device)
    bus = call("cuDeviceGetPCIBusId", 32, device)
    return Gpu(
        ordinal,
        _text(name),
        bytes(call("cuDeviceGetUuid", device).bytes),
        _text(bus).lower(),
        int(call("cuDeviceTotalMem", device)),
        (
            _attribute(device, "COMPUTE_CAPABILITY_MAJOR"),
            _attribute(device, "COMPUTE_CAPABILITY_MINOR"),
        ),
        bool(_attribute(device, "INTEGRATED")),
        bool(
            _attribute(device, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")
            and _attribute(device, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")
        ),
    )


def gpus() -> list[Gpu]:
    """Return every GPU that this process sees, by ordinal."""
    return [gpu(ordinal) for ordinal in range(device_count())]


def select(wanted: str | int | None) -> tuple[Gpu, str]:
    """Return the GPU for a publisher, and why that one.

    Parameters
    ----------
    wanted
        UUID, unique beginning of one, PCI bus id or ordinal; None for ``$CUFRAMES_DEVICE``, else
        the discrete GPU with the most memory.

    Raises
    ------
    DeviceError
        If there is none, or none that fits; the message lists those there are.
    InvalidArgumentError
        If the beginning fits several.
    """
    found = gpus()
    if not found:
        raise DeviceError(
            "this process sees no GPU: none is there, or CUDA_VISIBLE_DEVICES hides it"
        )
    if wanted is not None:
        return _match(found, wanted), "asked for"
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return _match(found, chosen), f"${ENVIRONMENT}"
    best = max(found, key=lambda g: (not g.integrated, g.total_bytes, -g.ordinal))
    why = "the only GPU" if len(found) == 1 else "the discrete GPU with the most memory"
    return best, why


def find_by_uuid(uuid: bytes) -> Gpu:
    """Return the visible GPU with that UUID.

    Raises
    ------
    DeviceError
        If it is hidden from this process, or not on this machine; the message says which.
    """
    for candidate in gpus():
        if candidate.uuid == uuid:
            return candidate
    name = uuid_text(uuid)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    on_machine = _machine_uuids()
    if name.lower() in on_machine:
        raise DeviceError(
            f"the frames are on GPU {name}, which is hidden from this process by "
            f"CUDA_VISIBLE_DEVICES={visible!r}: add it there"
        )
    if on_machine or visible is None:
        raise DeviceError(
            f"the frames are on GPU {name}, which is not on this machine (or not given to this "
            f"container); here: {_listing(gpus())}"
        )
    raise DeviceError(
        f"the frames are on GPU {name}, which this process does not see: it is hidden by "
        f"CUDA_VISIBLE_DEVICES={visible!r}, or not on this machine; here: {_listing(gpus())}"
    )


@functools.cache
def activated(ordinal: int) -> Activation:
    """Return what makes the GPU's primary context current for a block."""
    return Activation(ordinal)


class Activation:
    """A context manager, usable again and again: one context current, then what was before.

    A class and bound functions, because it is used several times a frame.
    """

    __slots__ = ("_context", "_pop", "_push")

    def __init__(self, ordinal: int) -> None:
        # Retained for the life of the process, as the CUDA runtime (CuPy, torch) does.
        initialise()
        self._context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal))
        self._push = function("cuCtxPushCurrent")
        self._pop = function("cuCtxPopCurrent")

    def __enter__(self) -> None:
        status = self._push(self._context)[0]
        if status:
            raise error("cuCtxPushCurrent", status)

    def __exit__(self, *exc_info: object) -> None:
        self._pop()


def _attribute(device: Any, name: str) -> int:
    which = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    try:
        return int(call("cuDeviceGetAttribute", which, device))
    except CudaError:  # an attribute that this driver does not know
        return 0


def _match(found: list[Gpu], wanted: str | int) -> Gpu:
    text = str(wanted).strip().lower()
    fitting = [
        g
        for g in found
        if text == str(g.ordinal)
        or _same_bus(text, g.pci_bus_id)
        or (
            len(text) > 1
            and uuid_text(g.uuid).lower().removeprefix("gpu-").startswith(text.removeprefix("gpu-"))
        )
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidArgumentError(f"device {wanted!r} fits several GPUs: {_listing(fitting)}")
    raise DeviceError(
        f"there is no GPU {wanted!r} in this process (an ordinal, UUID, beginning of a UUID or PCI "
        f"bus id): {_listing(found)}"
    )


def _same_bus(text: str, bus: str) -> bool:
    """Whether `text` is the bus id, with or without the PCI domain."""
    return ":" in text and (bus == text or bus.split(":", 1)[1] == text)


def _listing(found: list[Gpu]) -> str:
    listed = ", ".join(f"{g.ordinal} {g.name} {uuid_text(g.uuid)} {g.pci_bus_id}" for g in found)
    return listed or "none"


def _machine_uuids() -> set[str]:
    """Return the UUIDs of the machine's GPUs by the kernel driver's word, empty if it is silent."""
    uuids = set()
    for path in _PROC.glob("*/information"):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                if line.startswith("GPU UUID"):
                    uuids.add(line.split(":", 1)[1].strip().lower())
    return uuids


def _text(raw: bytes | str) -> str:
    return raw.split(b"\0")[0].decode() if isinstance(raw, bytes) else raw
