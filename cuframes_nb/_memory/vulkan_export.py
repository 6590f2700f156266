"""Memory that a Vulkan program shares, as its publisher has it."""

from __future__ import annotations

import os
from collections.abc import Hashable

from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.memfd import reopen_read_only
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind

__all__ = ["VulkanExport"]


class VulkanExport(Arena):
    """A descriptor of a program's ``VkDeviceMemory``, and all that a subscriber has to know.

    Nothing is mapped here: the program writes through Vulkan.

    Parameters
    ----------
    fd
        Belongs to this object. It keeps the pixels, whatever becomes of the program's handles.
    description
        What travels.
    device
        CUDA ordinal of the GPU that holds it, None where this process has no CUDA or no GPU.
    identity
        What other exports of the same memory, with the same description, have in common.
    """

    kind = MemoryKind.VULKAN
    address = 0
    writable = False

    def __init__(
        self,
        fd: OwnedFd,
        description: ArenaDescription,
        device: int | None,
        identity: Hashable,
    ) -> None:
        fd.let_drop()
        self._fd = fd
        self._description = description
        self._identity = identity
        self._is_file = not any(description.device_uuid)
        self.nbytes = description.nbytes
        self.device = device

    @property
    def identity(self) -> Hashable:
        return self._identity

    @property
    def exportable(self) -> bool:
        return True

    def describe(self) -> ArenaDescription:
        return self._description

    def close(self) -> None:
        self._fd.close()

    def _arena_export(self) -> OwnedFd:
        if self._is_file:
            return reopen_read_only(self._fd)
        return OwnedFd(os.dup(self._fd.fileno()))
