"""Which GPUs there are, and which one is used."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cuframes_nb.errors import DeviceError

if TYPE_CHECKING:
    from cuframes_nb._core.choosing import Candidate
    from cuframes_nb._cuda.devices import Gpu
    from cuframes_nb._cuda.nvml import Board, Machine

__all__ = ["DeviceInfo", "devices", "kernel_driver", "select_device"]

_KERNEL_DRIVER: Final = Path("/sys/module/nvidia/version")


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU of this machine, or one part of a GPU that MIG divides.

    Attributes
    ----------
    ordinal
        Its number in this process, None if it is hidden from it; other processes may number it
        otherwise.
    name
        The product's name.
    uuid
        ``"GPU-…"``, or ``"MIG-…"`` for an instance; the same in every process.
    pci_bus_id
        ``"0000:65:00.0"``.
    total_bytes
        Size of its memory, 0 if unknown.
    compute_capability
        Major and minor; ``(0, 0)`` if unknown.
    integrated
        Whether it shares the host's memory; None if unknown, as of most hidden ones.
    can_share
        Whether the driver says that it can share memory as descriptors; None of hidden ones.
    free_bytes
        How much of its memory is free, None if unknown.
    hidden_by
        What hides it from this process, in words; empty if nothing does.
    display
        Whether it draws a screen, None if unknown.
    parent
        UUID of the GPU that this is a MIG instance of, else empty.
    instances
        UUIDs of its MIG instances.
    peers
        UUIDs of the GPUs whose memory it can read and write.
    nvlink_peers
        Those of them that it reaches over NVLink; the others over PCI Express.
    encodes
        Codecs that its NVENC engines write; None if unknown.
    encoders, decoders, jpeg_decoders
        How many NVENC, NVDEC and NVJPG engines it has; None where the driver does not count them.
    driver
        Version of NVIDIA's driver, ``"580.95.05"``; empty if unknown.
    cuda
        The newest CUDA that this driver runs, ``"13.0"``; empty if unknown.
    reason
        Why `select_device` chose it; empty from `devices`.
    """

    ordinal: int | None
    name: str
    uuid: str
    pci_bus_id: str
    total_bytes: int
    compute_capability: tuple[int, int]
    integrated: bool | None
    can_share: bool | None
    free_bytes: int | None = None
    hidden_by: str = ""
    display: bool | None = None
    parent: str = ""
    instances: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    nvlink_peers: tuple[str, ...] = ()
    encodes: tuple[str, ...] | None = None
    encoders: int | None = None
    decoders: int | None = None
    jpeg_decoders: int | None = None
    driver: str = ""
    cuda: str = ""
    reason: str = ""


def devices() -> list[DeviceInfo]:
    """Return the GPUs of this machine: those that this process sees by ordinal, then hidden ones.

    Makes no CUDA context on any of them. What is hidden is known from NVIDIA's management library
    (``nvidia-ml-py``), and without it from the kernel's driver, which tells less.

    Returns
    -------
    list of DeviceInfo
        Empty without a GPU or driver.
    """
    from cuframes_nb._cuda import nvml
    from cuframes_nb._cuda.devices import gpus, why_none
    from cuframes_nb._cuda.hidden import from_kernel, from_machine

    visible, problem, machine = [], "", None
    try:
        visible = gpus()
    except DeviceError as failure:
        try:
            problem = why_none(failure)
        except DeviceError:
            problem = f"CUDA, which cannot be asked: {failure}"
    with contextlib.suppress(DeviceError):
        machine = nvml.look()
    uuids = [gpu.uuid_text for gpu in visible]
    if machine is None:
        hidden = from_kernel(uuids, problem).candidates
    else:
        hidden = from_machine(machine, uuids, problem)
    found = [*map(_visible, visible), *map(_hidden, hidden)]
    return [_with_nvml(info, machine) for info in found]


def select_device(
    device: str | int | None = None, *, frames_on: str | None = None, peer: bool = False
) -> DeviceInfo:
    """Return the GPU that a publisher or subscriber would use, and why: see its ``reason``.

    Makes no CUDA context and changes no current device.

    Parameters
    ----------
    device
        A UUID, a beginning of one that fits one GPU, a PCI bus id, or an ordinal of this process
        (``1`` or ``"cuda:1"``). By default ``$CUFRAMES_DEVICE``, else the discrete GPU with the
        most memory.
    frames_on
        UUID of the GPU that holds the frames (``StreamInfo.device``), for a subscriber: that GPU
        is used, and `device` may only say the same. ``$CUFRAMES_DEVICE`` does not count.
    peer
        With `frames_on`: whether they may be mapped into another GPU, as ``subscribe(peer=True)``
        does. `device` is used then; by default that GPU if this process sees it, else the default
        of a publisher. Whether the one reaches the other's memory is not tried.

    Raises
    ------
    DeviceError
        If there is no GPU, or none that fits; the message says which of three it is: not on this
        machine, hidden from this process and by what, or another than the one with the frames.
    InvalidArgumentError
        If `device` is no way to name a GPU, or fits several.
    """
    from cuframes_nb._cuda.devices import select, select_holder, select_peer

    if frames_on is None:
        chosen, reason = select(device)
    else:
        chosen, reason = (select_peer if peer else select_holder)(frames_on, device)
    info = next(info for info in devices() if info.ordinal == chosen.ordinal)
    return dataclasses.replace(info, reason=reason)


def kernel_driver() -> str:
    """Return the version of the driver in the kernel, empty where that does not tell."""
    with contextlib.suppress(OSError):
        return _KERNEL_DRIVER.read_text(encoding="utf-8").strip()
    return ""


def _visible(gpu: Gpu) -> DeviceInfo:
    from cuframes_nb._cuda.devices import cuda_version, peers

    return DeviceInfo(
        **{**gpu._asdict(), "uuid": gpu.uuid_text},
        peers=peers(gpu.ordinal),
        driver=kernel_driver(),
        cuda=cuda_version(),
    )


def _hidden(candidate: Candidate) -> DeviceInfo:
    return DeviceInfo(
        None, candidate.name, candidate.uuid, candidate.pci_bus_id, candidate.total_bytes, (0, 0),
        candidate.integrated or None, None, hidden_by=candidate.hidden_by, parent=candidate.parent,
        driver=kernel_driver(),
    )  # fmt: skip


def _with_nvml(info: DeviceInfo, machine: Machine | None) -> DeviceInfo:
    """Return it with what NVML tells besides."""
    if machine is None:
        return info
    info = dataclasses.replace(info, driver=machine.driver, cuda=machine.cuda)
    for board in machine.boards:
        if board.uuid == info.uuid:
            return _with_board(info, board)
        for part in board.instances:
            if part.uuid == info.uuid:
                return dataclasses.replace(
                    info,
                    parent=board.uuid,
                    free_bytes=part.free_bytes,
                    compute_capability=board.compute_capability,
                )
    return info


def _with_board(info: DeviceInfo, board: Board) -> DeviceInfo:
    told = {
        name: getattr(board, name)
        for name in (
            "free_bytes", "compute_capability", "display", "nvlink_peers", "encodes", "encoders",
            "decoders", "jpeg_decoders",
        )
    }  # fmt: skip
    return dataclasses.replace(
        info,
        **told,
        instances=tuple(part.uuid for part in board.instances),
        peers=tuple(dict.fromkeys([*info.peers, *board.peers])),
    )
