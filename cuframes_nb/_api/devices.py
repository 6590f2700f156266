"""Which GPUs there are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cuframes_nb.errors import DeviceError

if TYPE_CHECKING:
    from cuframes_nb._cuda.devices import Gpu

__all__ = ["DeviceInfo", "devices"]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU that this process sees.

    Attributes
    ----------
    ordinal
        Its number in this process; other processes may number it otherwise.
    name
        The product's name.
    uuid
        ``"GPU-…"``, the same in every process.
    pci_bus_id
        ``"0000:65:00.0"``.
    total_bytes
        Size of its memory.
    compute_capability
        Major and minor.
    integrated
        Whether it shares the host's memory.
    can_share
        Whether the driver says that it can share memory as descriptors.
    """

    ordinal: int
    name: str
    uuid: str
    pci_bus_id: str
    total_bytes: int
    compute_capability: tuple[int, int]
    integrated: bool
    can_share: bool


def devices() -> list[DeviceInfo]:
    """Return the GPUs that this process sees, by ordinal; empty without a GPU or driver.

    Makes no CUDA context on any of them.
    """
    from cuframes_nb._cuda.devices import gpus

    try:
        return [_info(gpu) for gpu in gpus()]
    except DeviceError:
        return []


def _info(gpu: Gpu) -> DeviceInfo:
    from cuframes_nb._core.uuids import uuid_text

    return DeviceInfo(**{**gpu._asdict(), "uuid": uuid_text(gpu.uuid)})
