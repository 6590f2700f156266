"""The GPUs that this process sees, and their primary contexts."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cuframes_nb._core.choosing import (
    ENVIRONMENT,
    Candidate,
    Choice,
    choose,
    choose_holder,
    choose_peer,
)
from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._cuda.driver import call, driver, error, function, initialise
from cuframes_nb._cuda.hidden import unseen
from cuframes_nb.errors import CudaError, DeviceError

__all__ = [
    "ENVIRONMENT",
    "Gpu",
    "activated",
    "cuda_version",
    "device_count",
    "find_by_uuid",
    "gpu",
    "gpus",
    "peers",
    "select",
    "select_holder",
    "select_peer",
    "visible",
    "why_none",
]

_MIG: Final = " MIG "
"""In the name of each MIG instance, as CUDA has it: ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``."""

_log = logging.getLogger("cuframes_nb")


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

    @property
    def uuid_text(self) -> str:
        """The UUID as NVIDIA's tools write it."""
        text = uuid_text(self.uuid)
        return text.replace("GPU-", "MIG-", 1) if _MIG in self.name else text


def device_count() -> int:
    """Return how many GPUs this process sees."""
    initialise()
    return int(call("cuDeviceGetCount"))


def cuda_version() -> str:
    """Return the newest CUDA that the driver runs, as ``"13.0"``."""
    version = int(call("cuDriverGetVersion"))
    return f"{version // 1000}.{version % 1000 // 10}"


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
        bytes(call(_uuid_function(), device).bytes),
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


def peers(ordinal: int) -> tuple[str, ...]:
    """Return the UUIDs of the visible GPUs whose memory it reaches, by the driver's word."""
    device = call("cuDeviceGet", ordinal)
    return tuple(
        other.uuid_text
        for other in gpus()
        if other.ordinal != ordinal
        and call("cuDeviceCanAccessPeer", device, call("cuDeviceGet", other.ordinal))
    )


def why_none(failure: DeviceError) -> str:
    """Return what keeps CUDA from showing a GPU, in words; empty if it starts and shows none.

    Raises
    ------
    DeviceError
        `failure` itself, if there is no driver to ask.
    """
    if isinstance(failure, CudaError):
        return f"the CUDA driver, which does not start ({failure})"
    if isinstance(failure.__cause__, CudaError):
        return ""
    raise failure


def select(wanted: str | int | None, argument: str = "device") -> tuple[Gpu, str]:
    """Return the GPU for a publisher, and why that one. Makes no context on any.

    Parameters
    ----------
    wanted
        UUID, unique beginning of one, PCI bus id or ordinal; None for ``$CUFRAMES_DEVICE``, else
        the discrete GPU with the most memory.
    argument
        What people call it.

    Raises
    ------
    DeviceError
        If there is none, or none that fits; the message says whether it is hidden, and lists those
        there are.
    InvalidArgumentError
        If that is no way to name a GPU, or fits several.
    """
    default = os.environ.get(ENVIRONMENT, "")
    return _chosen(functools.partial(choose, wanted=wanted, default=default, argument=argument))


def find_by_uuid(uuid: bytes) -> Gpu:
    """Return the visible GPU with that UUID.

    Raises
    ------
    DeviceError
        If it is hidden from this process, or not on this machine; the message says which.
    """
    return select_holder(uuid_text(uuid), None)[0]


def visible(uuid: bytes) -> Gpu | None:
    """Return the visible GPU with that UUID, None if there is none."""
    return next((gpu for gpu in gpus() if gpu.uuid == uuid), None)


def select_holder(uuid: str, wanted: str | int | None, hint: str = "") -> tuple[Gpu, str]:
    """Return the GPU that holds a publisher's frames, for a subscriber that may want another.

    Parameters
    ----------
    uuid
        Of that GPU.
    wanted
        What the subscriber asked for, None for any.
    hint
        What an error proposes where another GPU could read them.

    Raises
    ------
    DeviceError
        If it is hidden from this process, not on this machine, or another than the one that is
        wanted; the message says which.
    InvalidArgumentError
        If `wanted` is no way to name a GPU, or fits several.
    """
    return _chosen(functools.partial(choose_holder, uuid=uuid, wanted=wanted, hint=hint))


def select_peer(uuid: str, wanted: str | int | None) -> tuple[Gpu, str]:
    """Return the GPU that reads a publisher's frames, whichever holds them, and why that one.

    Parameters
    ----------
    uuid
        Of the GPU that holds the frames, which may be hidden.
    wanted
        What the subscriber asked for; None for the one that holds them if it is visible, else as
        `select`.

    Raises
    ------
    DeviceError
        If the frames are on no GPU of this machine, or none is visible that fits.
    InvalidArgumentError
        If `wanted` is no way to name a GPU, or fits several.
    """
    default = os.environ.get(ENVIRONMENT, "")
    return _chosen(functools.partial(choose_peer, uuid=uuid, wanted=wanted, default=default))


def _chosen(choice: Callable[..., Choice]) -> tuple[Gpu, str]:
    """Choose among the visible GPUs; the others, which take time to find, only say why not."""
    seen: list[Candidate] = []
    problem, failure = "", None
    try:
        seen = [_candidate(g) for g in gpus()]
    except DeviceError as error:
        problem, failure = why_none(error), error
    with contextlib.suppress(DeviceError):
        return _logged(choice(seen))
    hidden, veil = unseen([c.uuid for c in seen], problem)
    if problem and failure is not None and not hidden:
        raise failure
    return _logged(choice([*seen, *hidden], veil=veil))


def _logged(choice: Choice) -> tuple[Gpu, str]:
    _log.info("GPU %s: %s", *choice)
    return gpu(choice.candidate.ordinal or 0), choice.reason


def _candidate(gpu: Gpu) -> Candidate:
    return Candidate(
        gpu.ordinal, gpu.name, gpu.uuid_text, gpu.pci_bus_id, gpu.total_bytes, gpu.integrated
    )


@functools.cache
def activated(ordinal: int) -> Activation:
    """Return what makes the GPU's primary context current for a block."""
    return Activation(ordinal)


class Activation:
    """A context manager, usable again and again: one context current, then what was before.

    CuPy's current device follows it. CuPy's own way, ``with cupy.cuda.Device(n)``, ends by setting
    the device that was current, and since CUDA 12 that alone makes a context there, on a GPU that
    nobody may have used.

    A class and bound functions, because it is used several times a frame.

    Attributes
    ----------
    context
        The driver's handle of it.
    """

    __slots__ = ("_pop", "_push", "context")

    def __init__(self, ordinal: int) -> None:
        # Retained for the life of the process, as the CUDA runtime (CuPy, torch) does.
        initialise()
        self.context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal))
        self._push = function("cuCtxPushCurrent")
        self._pop = function("cuCtxPopCurrent")

    def __enter__(self) -> None:
        status = self._push(self.context)[0]
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


def _uuid_function() -> str:
    # The first version gives MIG instances their GPU's UUID; CUDA 13 has but the second, so named.
    second = "cuDeviceGetUuid_v2"
    return second if hasattr(driver(), second) else "cuDeviceGetUuid"


def _text(raw: bytes | str) -> str:
    return raw.split(b"\0")[0].decode() if isinstance(raw, bytes) else raw
