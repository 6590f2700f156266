"""A software driver's memory files: read without Vulkan, and refused if they lie."""

import contextlib
import dataclasses
import fcntl
import mmap
import os
import sys

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._memory.arena import Share
from cuframes_nb._memory.vulkan_export import VulkanExport
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._vulkan import calls
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind, Tiling
from cuframes_nb._wire.vulkan import ImageDescription, VulkanMemory, pack
from cuframes_nb.errors import RemoteProtocolError

LAYOUT = cf.FrameLayout.make("gray8", 65, 33, pitch=80)
HEADER = 4096
NBYTES = HEADER + LAYOUT.nbytes


class File:
    """What a driver would share: a header, then the memory; `changes` are lies about it."""

    def __init__(self, *, seals=fcntl.F_SEAL_SHRINK, image=None, **changes):
        self.fd = os.memfd_create("driver", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self.fd, NBYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        memory = VulkanMemory(
            LAYOUT.nbytes, 0, b"d" * 16, b"v" * 16, host=True, memory_offset=HEADER, image=image
        )
        self.description = dataclasses.replace(
            ArenaDescription(
                MemoryKind.VULKAN,
                NBYTES,
                tiling=Tiling.OPTIMAL if image else Tiling.LINEAR,
                data_offset=HEADER,
                handle=pack(memory),
                external=True,
            ),
            **changes,
        )

    def __cuframes_share__(self, layout):
        arena = VulkanExport(OwnedFd(os.dup(self.fd)), self.description, None, id(self))
        return Share(arena, 0, LAYOUT)

    def write(self, pixels):
        with mmap.mmap(self.fd, NBYTES) as memory:
            rows = np.ndarray((33, 80), np.uint8, memory, HEADER)
            rows[:, :65] = pixels
            del rows


@contextlib.contextmanager
def published(**lies):
    """Publish a ring of three such files; give the publisher and the files."""
    files = [File(**lies) for _ in range(3)]
    try:
        with cf.Publisher(
            "vk", width=65, height=33, format="gray8", ownership="external", buffers=files
        ) as pub:
            yield pub, files
    finally:
        for file in files:
            os.close(file.fd)


@pytest.fixture
def without_vulkan(monkeypatch):
    """Have the bindings be missing."""
    monkeypatch.setitem(sys.modules, "vulkan", None)
    calls.vulkan.cache_clear()
    yield
    calls.vulkan.cache_clear()


def test_rows_of_bytes_are_read_without_vulkan(without_vulkan):
    with published() as (pub, files), cf.subscribe("vk", timeout=10) as sub:
        for number in range(7):
            index = pub.wait_free(timeout=10)
            files[index].write(number)
            pub.publish_buffer(index)
            with sub.next(timeout=10) as frame:
                assert frame.y.shape == (33, 65)
                assert (frame.y == number).all()
                assert not frame.y.flags.writeable
                assert frame.pitches == (80,)
        (info,) = cf.list_streams()
        assert (info.memory, info.sharing, info.ownership) == ("vulkan", "descriptor", "external")


def test_a_tiled_image_needs_vulkan(without_vulkan):
    image = ImageDescription(9, 65, 33, 0, 1, (0,))
    with (
        published(image=image),
        pytest.raises(cf.UnsupportedError, match="Vulkan bindings for Python are not installed"),
    ):
        cf.subscribe("vk", timeout=10)


@pytest.mark.parametrize(
    ("lies", "says"),
    [
        ({"seals": fcntl.F_SEAL_GROW}, "not sealed against shrinking"),
        ({"nbytes": NBYTES + 1}, "its memory has"),
        ({"data_offset": NBYTES}, "begins at byte"),
        ({"data_offset": NBYTES - 1}, "slot 0 ends at byte"),
        ({"data_offset": 0}, "begins at byte 0"),
        ({"handle": b""}, "has 0 bytes"),
        ({"handle": b"x" * 512}, "is of version"),
        ({"device_uuid": b"g" * 16}, "a GPU's"),
        ({"tiling": Tiling.OPTIMAL}, "tiling OPTIMAL"),
        ({"image": ImageDescription(9, 65, 34, 0, 1, (0,))}, "65x34 for frames of 65x33"),
        ({"image": ImageDescription(37, 65, 33, 0, 1, (0,))}, "VkFormat 37 for frames of gray8"),
        ({"image": ImageDescription(9, 65, 33, 0, 1, (600,))}, "from byte 600 on"),
    ],
)
def test_lies_end_the_connection_and_leave_nothing(lies, says):
    with published(**lies) as (pub, _):
        with pytest.raises(RemoteProtocolError, match=says):
            cf.subscribe("vk", timeout=10, reconnect=False)
        assert pub.publish_buffer(0) == 1  # the publisher goes on


def test_a_slot_is_written_through_vulkan_only():
    with published() as (pub, _):
        slot = pub.acquire()
        with pytest.raises(cf.UnsupportedError, match="write it through Vulkan"):
            _ = slot.y
        pub.discard(slot)
