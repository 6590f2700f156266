"""What the management library (NVML) says of the machine's GPUs, also of those hidden from CUDA.

It makes no CUDA context and wakes nothing but the driver. What a GPU or driver does not tell is
None: under WSL 2, on integrated GPUs and inside MIG that is much of it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from cuframes_nb.errors import DeviceError

__all__ = ["Board", "Instance", "Machine", "look"]

_log = logging.getLogger("cuframes_nb")

_WHOLE_GPU: Final = (5, 4)
"""Profiles of a MIG instance that is all of a GPU, of 8 and of 7 slices:
``NVML_GPU_INSTANCE_PROFILE_8_SLICE`` and ``..._7_SLICE``, nvml.h. They count its engines."""

_ENCODERS: Final = {0: "h264", 1: "hevc", 2: "av1"}
"""``nvmlEncoderType_t``, nvml.h."""

_READ, _WRITE, _NVLINK = 0, 1, 2
"""``nvmlGpuP2PCapsIndex_t``, nvml.h; in the package, the first is a tuple by mistake."""

_ON_THE_CHIP: Final = 3
"""``NVML_BUS_TYPE_FPCI``, nvml.h: the bus of GPUs that are a part of the processor."""


class Instance(NamedTuple):
    """A part of a GPU that MIG divides."""

    name: str
    uuid: str  #: "MIG-…"
    total_bytes: int
    free_bytes: int | None


class Board(NamedTuple):
    """One GPU."""

    name: str
    uuid: str  #: "GPU-…"
    pci_bus_id: str  #: "0000:65:00.0"
    total_bytes: int
    free_bytes: int | None
    compute_capability: tuple[int, int]
    integrated: bool | None  #: None for most: NVML does not tell, CUDA does of those it shows
    display: bool | None  #: whether it draws a screen
    divided: bool  #: whether MIG is on; then its instances are used in its place
    instances: tuple[Instance, ...]
    encodes: tuple[str, ...] | None  #: codecs that NVENC writes
    encoders: int | None  #: NVENC engines
    decoders: int | None  #: NVDEC engines
    jpeg_decoders: int | None  #: NVJPG engines
    peers: tuple[str, ...]  #: UUIDs of GPUs whose memory it reaches
    nvlink_peers: tuple[str, ...]  #: those of them that it reaches over NVLink


class Machine(NamedTuple):
    """All GPUs, by PCI bus id, and what drives them."""

    driver: str  #: "580.95.05"
    cuda: str  #: "13.0", the newest that the driver runs
    boards: tuple[Board, ...]


def look() -> Machine:
    """Ask NVML for everything.

    Raises
    ------
    DeviceError
        If NVML cannot be asked; the message says why, and what to do.
    """
    with _opened() as nvml:
        handles = list(_handles(nvml))
        version = nvml.nvmlSystemGetCudaDriverVersion_v2()
        boards = [_board(nvml, handle, handles) for handle in handles]
        return Machine(
            _text(nvml.nvmlSystemGetDriverVersion()),
            f"{version // 1000}.{version % 1000 // 10}",
            tuple(sorted(boards, key=lambda board: board.pci_bus_id)),
        )


@contextlib.contextmanager
def _opened() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError as error:
        raise DeviceError(
            f"the GPUs' management library cannot be asked ({error}): pip install nvidia-ml-py"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceError(_why(pynvml, error)) from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise DeviceError(f"the GPUs' management library (NVML) failed: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _why(nvml: Any, error: Any) -> str:
    """Return why NVML does not start, and what to do."""
    told = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "there is no NVIDIA driver, or a container was given "
        "none of it: libnvidia-ml.so.1 cannot be loaded",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed and not loaded: "
        "'modprobe nvidia', or start again",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver in the kernel and its libraries are "
        "of different versions, as after an update: start the machine (or the container) again",
        nvml.NVML_ERROR_NO_PERMISSION: "this user may not open the GPU: look at the modes of "
        "/dev/nvidia*",
    }
    return told.get(error.value, f"the GPUs' management library (NVML) does not start: {error}")


def _handles(nvml: Any) -> Iterator[Any]:
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            yield nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:  # lost, or not for this user: the others are well
            _log.warning("GPU number %d does not answer: %s", index, error)


def _board(nvml: Any, handle: Any, handles: list[Any]) -> Board:
    def asked(function: Callable[..., Any], *arguments: Any) -> Any:
        return _asked(nvml, function, handle, *arguments)

    memory = asked(nvml.nvmlDeviceGetMemoryInfo)
    bus_type = asked(nvml.nvmlDeviceGetBusType)
    mig = asked(nvml.nvmlDeviceGetMigMode)
    # Not its DisplayMode, "attached": that is 1 for an H200, which has no connector.
    drawn = asked(nvml.nvmlDeviceGetDisplayActive)
    engines = _engines(nvml, handle)
    return Board(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        pci_bus_id=_bus(asked(nvml.nvmlDeviceGetPciInfo)),
        total_bytes=memory.total if memory else 0,
        free_bytes=memory.free if memory else None,
        compute_capability=tuple(asked(nvml.nvmlDeviceGetCudaComputeCapability) or (0, 0)),
        integrated=True if bus_type == _ON_THE_CHIP else None,
        display=None if drawn is None else bool(drawn),
        divided=bool(mig and mig[0]),
        instances=tuple(_instances(nvml, handle)) if mig and mig[0] else (),
        encodes=_encodes(nvml, handle, engines),
        encoders=engines.encoderCount if engines else None,
        decoders=engines.decoderCount if engines else None,
        jpeg_decoders=engines.jpegCount if engines else None,
        peers=tuple(_peers(nvml, handle, handles, _READ, _WRITE)),
        nvlink_peers=tuple(_peers(nvml, handle, handles, _READ, _WRITE, _NVLINK)),
    )


def _asked(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return an answer, None where the GPU or the driver has none."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _instances(nvml: Any, handle: Any) -> Iterator[Instance]:
    for index in range(_asked(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _asked(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is not None:
            memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, part)
            yield Instance(
                _text(nvml.nvmlDeviceGetName(part)),
                _text(nvml.nvmlDeviceGetUUID(part)),
                memory.total if memory else 0,
                memory.free if memory else None,
            )


def _engines(nvml: Any, handle: Any) -> Any:
    """Return the engines of all of a GPU; None if it cannot be divided: nobody counts them then."""
    for profile in _WHOLE_GPU:
        if info := _asked(nvml, nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, profile):
            return info
    return None


def _encodes(nvml: Any, handle: Any, engines: Any) -> tuple[str, ...] | None:
    # In this order: an H200 has no NVENC, and still tells of a capacity for H.264 and HEVC.
    if engines and not engines.encoderCount:
        return ()
    known = [
        name
        for kind, name in _ENCODERS.items()
        if _asked(nvml, nvml.nvmlDeviceGetEncoderCapacity, handle, kind) is not None
    ]
    return tuple(known) or None


def _peers(nvml: Any, handle: Any, handles: list[Any], *needed: int) -> Iterator[str]:
    """Yield the UUIDs of GPUs with which it may do all that is `needed`."""
    for other in handles:
        answers = (_asked(nvml, nvml.nvmlDeviceGetP2PStatus, handle, other, n) for n in needed)
        if other is not handle and all(answer == 0 for answer in answers):
            yield _text(nvml.nvmlDeviceGetUUID(other))


def _bus(pci: Any) -> str:
    """Return a bus id as CUDA writes it, with a domain of four digits."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" if pci else ""


def _text(raw: str | bytes) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw
