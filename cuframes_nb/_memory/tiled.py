"""What a subscriber has of memory whose pixels are in a driver's own order."""

from __future__ import annotations

from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind

__all__ = ["TiledArena"]


class TiledArena(Arena):
    """An image that has no address: its frames are copied out of it, each once."""

    kind = MemoryKind.VULKAN
    address = 0
    writable = False

    def __init__(self, description: ArenaDescription) -> None:
        self._description = description
        self.nbytes = description.nbytes

    @property
    def exportable(self) -> bool:
        return False

    def describe(self) -> ArenaDescription:
        return self._description

    def _arena_export(self) -> OwnedFd:
        raise AssertionError  # exportable says no
