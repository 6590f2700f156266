"""Buffers in host memory that share themselves: a user's own memory, where there is no GPU."""

import os

import numpy as np

import cuframes_nb as cf
from cuframes_nb._memory.arena import Share
from cuframes_nb._memory.host import HostArena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.memfd import create_sealed
from cuframes_nb.formats import FrameLayout
from tests.helpers.frames import HEIGHT, WIDTH, value

__all__ = ["HostBuffer", "Pool", "fill", "lend", "pool", "publish"]


class _PoolArena(HostArena):
    """A pool's memory; several may be open at a time."""

    def __init__(self, pool):
        super().__init__(pool.mapping, OwnedFd(os.dup(pool.fd.fileno())))
        self.pool = pool

    @property
    def identity(self):
        return id(self.pool)


class Pool:
    """One allocation with room for frames, `apart` bytes from one to the next."""

    def __init__(self, count, layout, apart=None, start=0):
        self.layout = layout
        self.apart = layout.nbytes if apart is None else apart
        self.fd, self.mapping = create_sealed("pool", start + self.apart * count, inherit=True)
        self.fd.let_drop()
        self.buffers = [HostBuffer(self, start + number * self.apart) for number in range(count)]


class HostBuffer:
    """Room for one frame."""

    def __init__(self, pool, offset):
        self.pool = pool
        self.offset = offset

    def data_ptr(self):
        return self.pool.mapping.address + self.offset

    def __cuframes_share__(self, layout):
        return Share(_PoolArena(self.pool), self.offset, self.pool.layout)

    @property
    def planes(self):
        """The planes as writable arrays that keep the memory."""
        layout = self.pool.layout
        whole = np.asarray(self.pool.mapping.view())
        planes = []
        for plane in layout.planes:
            start = self.offset + plane.offset
            part = whole[start : start + plane.end - plane.offset].view(layout.format.dtype)
            planes.append(np.lib.stride_tricks.as_strided(part, plane.shape, plane.strides))
        return planes


def pool(count=4, *, width=WIDTH, height=HEIGHT, fmt="nv12", pitch=None, **changes):
    """Return a pool of `count` frames."""
    return Pool(count, FrameLayout.make(fmt, width, height, pitch=pitch), **changes)


def lend(buffers, key="cam", **changes):
    """Return a publisher of buffers, which may be of several pools."""
    layout = buffers[0].pool.layout
    arguments = {"width": layout.width, "height": layout.height, "format": layout.format, **changes}
    return cf.Publisher(key, ownership="external", buffers=buffers, **arguments)


def fill(buffer, seq):
    """Write frame `seq` into a buffer, as `tests.helpers.frames.check` expects it."""
    for index, plane in enumerate(buffer.planes):
        plane[...] = value(seq, index, plane.dtype.itemsize)


def publish(pub, number=None, count=1):
    """Publish frames that describe themselves; return the last one's sequence number."""
    seq = 0
    for _ in range(count):
        taken = pub.wait_free(number, timeout=10)
        fill(pub.buffers[taken], pub._ring.next_seq)
        seq = pub.publish_buffer(taken)
    return seq
