"""Host memory does what every kind of memory must."""

from pathlib import Path

import numpy as np
import pytest

from cuframes_nb._memory.host import HostArena
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.testing import ArenaConformance


class _Bytes:
    """An arena's bytes for NumPy, which keeps it alive by this."""

    def __init__(self, arena):
        self.arena = arena
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "data": (arena.address, not arena.writable),
            "shape": (arena.nbytes,),
        }


class TestHostArena(ArenaConformance):
    def create(self, nbytes):
        return HostArena.create(nbytes)

    def attach(self, description, fd):
        return HostArena.attach(description, fd)

    def view(self, arena):
        return np.asarray(_Bytes(arena))

    def available(self):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024

    def test_writing_is_refused_by_name(self):
        # lifetime.md, 9
        arena = HostArena.create(4096)
        with pytest.raises(UnsupportedError, match="sealed"):
            HostArena.attach(arena.describe(), arena.export(), writable=True)
        arena.close()
