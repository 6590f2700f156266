"""Memory of a Vulkan program on an NVIDIA GPU, as a subscriber has it."""

from __future__ import annotations

from typing import Self

from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._cuda.external import ExternalArray, ExternalBuffer, ExternalMemory
from cuframes_nb._memory.arena import Arena
from cuframes_nb._memory.pieces import Piece, Pieces
from cuframes_nb._memory.tiled import TiledArena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb._wire.vulkan import FORMATS, VulkanMemory, unpack
from cuframes_nb.errors import CudaError, RemoteProtocolError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["VulkanCudaArena", "VulkanCudaImage", "attach"]


def attach(description: ArenaDescription, fd: OwnedFd, gpu: Gpu) -> Arena:
    """Map rows of bytes, or an image as arrays to copy from; `fd` is closed, or the arena's.

    CUDA maps memory of others for writing, too, and knows no other way.

    Raises
    ------
    RemoteProtocolError
        If the driver says that the descriptor is not what the publisher says.
    """
    memory = unpack(description)
    try:
        imported = ExternalMemory(
            fd, memory.allocation_nbytes, gpu.ordinal, dedicated=memory.dedicated
        )
        if memory.image is None:
            return VulkanCudaArena.map(description, memory, imported, fd)
        with fd:
            return VulkanCudaImage.map(description, memory, imported)
    except CudaError as error:
        raise RemoteProtocolError(
            f"the publisher's descriptor is not Vulkan memory of GPU {gpu.name} with what the "
            f"publisher says is in it: {error}"
        ) from error


class VulkanCudaArena(Arena):
    """A buffer or a linear image, mapped."""

    kind = MemoryKind.VULKAN
    writable = True

    def __init__(
        self, description: ArenaDescription, mapped: ExternalBuffer, pieces: Pieces
    ) -> None:
        self._description = description
        self._mapped = mapped
        self._pieces = pieces
        self.address = mapped.address
        self.nbytes = mapped.nbytes
        self.device = mapped.ordinal

    @classmethod
    def map(
        cls,
        description: ArenaDescription,
        memory: VulkanMemory,
        imported: ExternalMemory,
        fd: OwnedFd,
    ) -> Self:
        """Map what was imported from `fd`, which is closed, or the arena's from now on."""
        mapped = imported.buffer(memory.allocation_nbytes)
        if memory.dedicated:  # Vulkan imports that only as what it was made for
            fd.close()
            return cls(description, mapped, Pieces([]))
        piece = Piece(mapped.address, mapped.nbytes, fd, memory.memory_type)
        return cls(description, mapped, Pieces([piece]))

    @property
    def exportable(self) -> bool:
        return False

    def describe(self) -> ArenaDescription:
        return self._description

    def close(self) -> None:
        """Close the descriptor; the mapping ends with the last array."""
        self._pieces.close()

    def _arena_export(self) -> OwnedFd:
        raise AssertionError  # exportable says no


class VulkanCudaImage(TiledArena):
    """An image in the driver's own order, as CUDA arrays: one, or one a plane."""

    def __init__(
        self, description: ArenaDescription, arrays: tuple[ExternalArray, ...], ordinal: int
    ) -> None:
        super().__init__(description)
        self._arrays = arrays
        self.device = ordinal

    @classmethod
    def map(
        cls, description: ArenaDescription, memory: VulkanMemory, imported: ExternalMemory
    ) -> Self:
        """Map what was imported."""
        image = memory.image
        assert image is not None  # noqa: S101  the caller has looked
        arrays = tuple(
            imported.array(
                description.data_offset + offset,
                width,
                height,
                channels=channels,
                itemsize=itemsize,
                usage=image.usage,
            )
            for offset, (width, height, channels, itemsize) in zip(
                image.planes, _planes(memory), strict=True
            )
        )
        return cls(description, arrays, imported.ordinal)

    def copy_to(self, address: int, layout: FrameLayout, handle: int) -> None:
        """Queue a copy of all planes, laid out like `layout`, on a stream of the current GPU."""
        for array, plane in zip(self._arrays, layout.planes, strict=True):
            array.copy_to(address + plane.offset, plane.pitch, plane.row_bytes, plane.rows, handle)

    def close(self) -> None:
        """Let go of the arrays; copies of frames are on their own."""
        self._arrays = ()


def _planes(memory: VulkanMemory) -> list[tuple[int, int, int, int]]:
    """Return width, height, components and bytes of a component of each plane.

    Raises
    ------
    UnsupportedError
        For an image of several planes that was bound as a whole.
    """
    image = memory.image
    assert image is not None  # noqa: S101  the caller has looked
    pixels = next(name for name, numbers in FORMATS.items() if image.format in numbers)
    shapes = pixels.plane_shapes(image.width, image.height)
    if len(shapes) != len(image.planes):
        raise UnsupportedError(
            "the publisher's Vulkan image has several planes that were bound as a whole, and CUDA "
            "does not tell where each lies: make it with VK_IMAGE_CREATE_DISJOINT_BIT"
        )
    return [(s[1], s[0], s[2] if len(s) > 2 else 1, pixels.itemsize) for s in shapes]
