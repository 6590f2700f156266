"""GPU memory does what every kind of memory must."""

import cupy as cp

from cuframes_nb._cuda import devices
from cuframes_nb._memory.arena import Part
from cuframes_nb._memory.vmm import VmmArena
from cuframes_nb.testing import ArenaConformance


class TestVmmArena(ArenaConformance):
    def create(self, nbytes):
        return VmmArena.create(nbytes, devices.gpu(0))

    def attach(self, description, fd):
        return VmmArena.attach([Part(description, fd)], devices.gpu(0))

    def view(self, arena):
        memory = cp.cuda.UnownedMemory(arena.address, arena.nbytes, arena, 0)
        return cp.ndarray((arena.nbytes,), cp.uint8, cp.cuda.MemoryPointer(memory, 0))

    def available(self):
        return cp.cuda.runtime.memGetInfo()[0]
