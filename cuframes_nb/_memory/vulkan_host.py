"""Memory of a software Vulkan driver, as a subscriber has it: a memory file of the driver's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from cuframes_nb._memory.arena import Arena
from cuframes_nb._memory.tiled import TiledArena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._os.memfd import check_sealed
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb._wire.vulkan import VulkanMemory, unpack
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.formats import FrameLayout

if TYPE_CHECKING:
    from cuframes_nb._vulkan.images import ImageReader

__all__ = ["VulkanHostArena", "VulkanHostImage", "attach"]


def attach(description: ArenaDescription, fd: OwnedFd, *, writable: bool) -> Arena:
    """Map memory read-only, and for an image find the driver that can read it; `fd` is closed.

    Raises
    ------
    RemoteProtocolError
        If the descriptor is not a memory file of that size that is sealed against shrinking.
    UnsupportedError
        If `writable` is asked for; for an image, also if Vulkan is not installed.
    DeviceError
        For an image, if the driver that made it is not here.
    """
    with fd:
        if writable:
            raise UnsupportedError(
                "memory of a software Vulkan driver is mapped for reading only: subscribe without "
                "writable=True and work on frame.copy()"
            )
        check_sealed(fd, description.nbytes, "pixels")
        memory = unpack(description)
        if memory.image is None:
            return VulkanHostArena.map(description, fd)
        return VulkanHostImage.map(description, fd, memory)


class VulkanHostArena(Arena):
    """A buffer or a linear image, mapped read-only."""

    kind = MemoryKind.VULKAN
    writable = False

    def __init__(self, description: ArenaDescription, mapping: Mapping) -> None:
        self._description = description
        self._mapping = mapping
        self.address = mapping.address
        self.nbytes = mapping.nbytes

    @classmethod
    def map(cls, description: ArenaDescription, fd: OwnedFd) -> Self:
        """Map the file; `fd` stays the caller's."""
        return cls(description, Mapping(fd, description.nbytes, writable=False, inherit=True))

    @property
    def exportable(self) -> bool:
        return False

    def describe(self) -> ArenaDescription:
        return self._description

    def close(self) -> None:
        """Do nothing: there is only the mapping, which arrays need."""

    def _arena_export(self) -> OwnedFd:
        raise AssertionError  # exportable says no


class VulkanHostImage(TiledArena):
    """An image in the driver's own order, mapped read-only; that driver puts it into rows."""

    def __init__(
        self, description: ArenaDescription, mapping: Mapping, reader: ImageReader
    ) -> None:
        super().__init__(description)
        self._mapping = mapping
        self._reader = reader

    @classmethod
    def map(cls, description: ArenaDescription, fd: OwnedFd, memory: VulkanMemory) -> Self:
        """Map the file, and have a Vulkan device of this process ready; `fd` stays the caller's."""
        from cuframes_nb._vulkan.images import ImageReader
        from cuframes_nb._vulkan.readers import reading_device

        assert memory.image is not None  # noqa: S101  the caller has looked
        device = reading_device(memory.device_uuid, memory.driver_uuid)
        room = memory.memory_offset + memory.allocation_nbytes - description.data_offset
        reader = ImageReader(device, memory.image, room)
        return cls(description, Mapping(fd, description.nbytes, writable=False), reader)

    def read(self, address: int, layout: FrameLayout) -> None:
        """Copy the pixels to host memory at `address`, laid out like `layout`; waits."""
        self._reader.read(self._mapping.address + self._description.data_offset, address, layout)

    def close(self) -> None:
        self._reader.close()
        self._mapping.close()
