"""Memory of a real Vulkan driver, from the program that makes it to the one that maps it."""

import dataclasses
import fcntl
import importlib.util
import mmap
import os

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._memory import vulkan_host
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime import vulkan_backend
from cuframes_nb._views.host import HostPlanes
from cuframes_nb._views.tiled import HostTiledPlanes
from cuframes_nb._wire.messages import Tiling
from cuframes_nb._wire.vulkan import pack, unpack
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError
from tests.helpers.vulkan import lavapipe, make, noise, write

pytestmark = pytest.mark.foreign_fds("Mesa's driver opens what it needs")


@pytest.fixture(scope="module")
def bridge():
    """Give the module under test, with lavapipe as its driver."""
    with lavapipe():
        from cuframes_nb.bridges import vulkan

        yield vulkan


@pytest.fixture
def device(bridge):
    with bridge.Device.open() as device:
        yield device


def attached(exported):
    """Map what is exported, as another process would; return arena and planes."""
    share = exported.__cuframes_share__(exported.layout)
    description, fd = share.arena.describe(), share.arena.export()
    share.arena.close()
    arena = vulkan_host.attach(description, fd, writable=False)
    if description.tiling is Tiling.OPTIMAL:
        source = HostTiledPlanes(arena, share.layout).copied()
    else:
        start = arena.address + description.data_offset + share.offset
        source = HostPlanes(start, share.layout, writable=False)
    return arena, [source.plane(index, arena) for index in range(len(share.layout.planes))]


@pytest.mark.parametrize("size", [(640, 480), (641, 363), (1, 1), (3, 257)])
@pytest.mark.parametrize(
    ("kind", "format_"),
    [
        ("buffer", "nv12"),
        ("buffer", "p010"),
        ("buffer", "rgb24"),
        ("buffer", "rgba32"),
        ("linear", "rgba32"),
        ("linear", "gray8"),
        ("optimal", "rgba32"),
        ("optimal", "gray8"),
    ],
)
def test_what_vulkan_writes_is_read(bridge, device, kind, format_, size):
    with make(device, kind, format_, size) as exported:
        planes = noise(exported.layout)
        write(device, exported, planes)
        arena, seen = attached(exported)
        for plane, found in zip(planes, seen, strict=True):
            np.testing.assert_array_equal(found, plane)
        arena.close()


@pytest.mark.parametrize("kind", ["buffer", "linear"])
def test_rows_of_bytes_are_not_copied(bridge, device, kind):
    with make(device, kind, "rgba32", (64, 64)) as exported:
        write(device, exported, noise(exported.layout, 1))
        arena, (seen,) = attached(exported)
        later = noise(exported.layout, 2)
        write(device, exported, later)
        np.testing.assert_array_equal(seen, later[0])
        assert arena.address <= seen.ctypes.data < arena.address + arena.nbytes
        assert not seen.flags.writeable


def test_a_tiled_image_is_copied_and_stays(bridge, device):
    with make(device, "optimal", "rgba32", (64, 64)) as exported:
        first = noise(exported.layout, 1)
        write(device, exported, first)
        arena, (seen,) = attached(exported)
        write(device, exported, noise(exported.layout, 2))
        np.testing.assert_array_equal(seen, first[0])
        arena.close()


def test_a_tiled_slot_is_never_shown(bridge, device):
    with make(device, "optimal", "rgba32", (64, 64)) as exported:
        share = exported.__cuframes_share__(exported.layout)
        with share.arena.export() as fd:
            arena = vulkan_host.attach(share.arena.describe(), fd, writable=False)
        slot = HostTiledPlanes(arena, share.layout)
        for look in (lambda: slot.plane(0, None), lambda: slot.rows(None), slot.on_gpu):
            with pytest.raises(LocalProtocolError, match="scrambled"):
                look()
        arena.close()
        share.arena.close()


def test_the_memory_begins_where_a_mark_is_found_in_the_file(bridge, device):
    with make(device, "buffer", "gray8", (64, 64)) as exported:
        mark = np.frombuffer(os.urandom(4096), np.uint8).reshape(64, 64)
        write(device, exported, [mark])
        share = exported.__cuframes_share__(exported.layout)
        description = share.arena.describe()
        with (
            share.arena.export() as fd,
            mmap.mmap(fd.fileno(), description.nbytes, prot=mmap.PROT_READ) as file,
        ):
            rows = [file.find(row.tobytes()) for row in mark]
        first = description.data_offset + share.offset
        assert rows == [first + row * exported.layout.planes[0].pitch for row in range(64)]
        share.arena.close()


def test_memory_that_is_mapped_already_is_found_too(bridge, device):
    import vulkan as vk

    with make(device, "buffer", "rgba32", (64, 64)) as exported:
        mapped = vk.vkMapMemory(device.handle, exported.memory, 0, 4096, 0)
        address = int(vk.ffi.cast("uintptr_t", vk.ffi.from_buffer(mapped)))
        again = bridge.ExportedBuffer(
            device,
            exported.handle,
            exported._allocated._replace(mapped=address),
            exported.layout,
        )
        assert again._description == exported._description


def test_a_program_brings_its_own_handles_as_numbers(bridge, device):
    import vulkan as vk

    def number(handle):
        return int(vk.ffi.cast("uintptr_t", handle))

    with make(device, "linear", "rgba32", (65, 33)) as exported:
        adopted = bridge.Device.adopt(
            number(device.physical.handle), number(device.handle), number(device.queue)
        )
        assert adopted.uuid == device.uuid
        memory = exported._allocated._replace(memory=number(exported.memory))
        theirs = bridge.ExportedImage(
            adopted,
            number(exported.handle),
            memory,
            vk_format=37,
            width=65,
            height=33,
            tiling="linear",
            usage=0x3,
        )
        planes = noise(exported.layout)
        write(adopted, theirs, planes)
        _, seen = attached(theirs)
        np.testing.assert_array_equal(seen[0], planes[0])
        theirs.close()  # destroys nothing of the program's
        adopted.close()
        write(device, exported, planes)


def test_buffers_in_one_memory_are_one_arena(bridge, device):
    with make(device, "buffer", "rgba32", (64, 64)) as exported:
        twice = bridge.ExportedBuffer(
            device, exported.handle, exported._allocated, exported.layout, offset=0
        )
        one, two = (it.__cuframes_share__(exported.layout) for it in (exported, twice))
        assert one.arena.identity == two.arena.identity
        assert one.arena.describe() == two.arena.describe()
        one.arena.close()
        two.arena.close()


def test_the_pixels_outlive_the_program_s_handles(bridge, device):
    exported = make(device, "buffer", "rgba32", (64, 64))
    planes = noise(exported.layout)
    write(device, exported, planes)
    _, (seen,) = attached(exported)
    exported.close()
    exported.close()
    np.testing.assert_array_equal(seen, planes[0])


# --- What is refused ------------------------------------------------------------------------------


def test_frames_of_another_size_are_refused(bridge, device):
    with make(device, "buffer", "rgba32", (64, 64)) as exported:
        other = cf.FrameLayout.make("rgba32", 64, 65)
        with pytest.raises(cf.InvalidArgumentError, match=r"64x65 rgba32.*holds 64x64 rgba32"):
            exported.__cuframes_share__(other)


def test_a_frame_that_does_not_fit_its_memory_is_refused(bridge, device):
    with (
        make(device, "buffer", "rgba32", (64, 64)) as exported,
        pytest.raises(cf.InvalidArgumentError, match="from byte 4 on of a memory of 16384"),
    ):
        bridge.ExportedBuffer(
            device, exported.handle, exported._allocated, exported.layout, offset=4
        )


@pytest.mark.parametrize("kind", ["linear", "optimal"])
def test_an_image_that_does_not_fit_its_memory_is_refused(bridge, device, kind):
    with make(device, kind, "rgba32", (64, 64)) as exported:
        memory = exported._allocated._replace(nbytes=64 * 64 * 4 - 1)
        with pytest.raises(
            cf.InvalidArgumentError, match=r"the image takes .* of a memory of 16383"
        ):
            bridge.ExportedImage(
                device, exported.handle, memory, vk_format=37, width=64, height=64, tiling=kind,
                usage=3,
            )  # fmt: skip


def test_a_frame_that_is_larger_than_its_buffer_is_refused(bridge, device):
    with make(device, "buffer", "rgba32", (64, 64)) as exported:
        larger = cf.FrameLayout.make("rgba32", 64, 65)
        memory = exported._allocated._replace(nbytes=1 << 20)
        with pytest.raises(cf.InvalidArgumentError, match="of a buffer of 16384 bytes"):
            bridge.ExportedBuffer(device, exported.handle, memory, larger)


def test_formats_without_pixels_of_ours_are_refused(bridge, device):
    with (
        make(device, "linear", "rgba32", (64, 64)) as exported,
        pytest.raises(cf.UnsupportedError, match=r"VkFormat 44.*vkCmdBlitImage"),
    ):
        bridge.ExportedImage(
                device, exported.handle, exported._allocated, vk_format=44, width=64, height=64,
                tiling="linear", usage=3,
            )  # fmt: skip


def test_images_that_the_driver_has_not_are_refused(bridge, device):
    with pytest.raises(cf.UnsupportedError, match=r"no shareable .* images of rgb24"):
        make(device, "optimal", "rgb24", (64, 64))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"create_flags": 0x200}, cf.UnsupportedError, "all others without it"),
        ({"offset": (0, 0)}, cf.InvalidArgumentError, "2 offsets are given"),
        ({"tiling": "tiled"}, cf.InvalidArgumentError, "use optimal or linear"),
    ],
)
def test_an_image_that_cannot_be_is_refused(bridge, device, changes, error, says):
    with make(device, "linear", "rgba32", (64, 64)) as exported:
        arguments = {"vk_format": 37, "width": 64, "height": 64, "tiling": "linear", "usage": 3}
        with pytest.raises(error, match=says):
            bridge.ExportedImage(
                device, exported.handle, exported._allocated, **(arguments | changes)
            )


def test_a_joint_image_of_two_planes_is_refused(bridge, device):
    with (
        make(device, "optimal", "rgba32", (64, 64)) as exported,
        pytest.raises(cf.UnsupportedError, match="DISJOINT"),
    ):
        bridge.ExportedImage(
                device, exported.handle, exported._allocated, vk_format=1000156003, width=64,
                height=64, tiling="optimal", usage=3,
            )  # fmt: skip


@pytest.mark.parametrize("value", [0, "buffer", None, -1])
def test_what_is_no_handle_is_refused(bridge, device, value):
    with (
        make(device, "buffer", "rgba32", (64, 64)) as exported,
        pytest.raises(cf.InvalidArgumentError, match="is no VkBuffer"),
    ):
        bridge.ExportedBuffer(device, value, exported._allocated, exported.layout)


def test_a_device_that_is_not_here_is_named(bridge):
    with pytest.raises(cf.DeviceError, match=r"no Vulkan device GPU-0a.*here: llvmpipe"):
        bridge.Device.open(bytes([10] * 16))


def test_a_closed_device_says_so(bridge, device):
    device.close()
    device.close()
    with pytest.raises(cf.ClosedError, match="llvmpipe"):
        _ = device.handle


def test_a_lost_device_says_what_to_do(bridge, device, monkeypatch):
    import vulkan as vk

    def lost(*arguments):
        raise vk.VkErrorDeviceLost

    # No command makes lavapipe lose its device, so the binding says what a driver would.
    monkeypatch.setattr(vk, "vkQueueSubmit", lost)
    with pytest.raises(cf.DeviceError, match=r"vkQueueSubmit failed.*new publisher"):
        device.execute(lambda _: None)


# --- What a subscriber does not believe -----------------------------------------------------------


@pytest.fixture
def tiled(bridge, device):
    """Give the description and the descriptor of a tiled image."""
    with make(device, "optimal", "rgba32", (64, 64)) as exported:
        share = exported.__cuframes_share__(exported.layout)
        yield share.arena.describe(), share.arena.export
        share.arena.close()


def test_something_else_than_memory_is_refused(bridge, tiled):
    description, _ = tiled
    with pytest.raises(RemoteProtocolError, match="no memory file"):
        vulkan_host.attach(description, OwnedFd(os.open("/dev/null", os.O_RDWR)), writable=False)


def test_a_file_that_could_shrink_is_refused(bridge, tiled):
    description, _ = tiled
    fd = OwnedFd(os.memfd_create("unsealed", os.MFD_ALLOW_SEALING))
    os.truncate(fd.fileno(), description.nbytes)
    with pytest.raises(RemoteProtocolError, match="not sealed against shrinking"):
        vulkan_host.attach(description, fd, writable=False)


def test_a_file_that_is_too_small_is_refused(bridge, tiled):
    description, export = tiled
    more = dataclasses.replace(description, nbytes=description.nbytes + 1)
    with pytest.raises(RemoteProtocolError, match="bytes, but its memory has"):
        vulkan_host.attach(more, export(), writable=False)


def test_what_is_written_before_the_memory_is_not_believed(bridge, device):
    with make(device, "optimal", "rgba32", (641, 363)) as exported:
        planes = noise(exported.layout)
        write(device, exported, planes)
        share = exported.__cuframes_share__(exported.layout)
        description = share.arena.describe()
        lie = OwnedFd(os.memfd_create("lie", os.MFD_ALLOW_SEALING))
        with share.arena.export() as fd, lie:
            content = os.pread(fd.fileno(), description.nbytes, 0)
            header = unpack(description).memory_offset
            os.write(lie.fileno(), b"\xff" * header + content[header:])
            fcntl.fcntl(lie.fileno(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            arena = vulkan_host.attach(description, lie, writable=False)
        seen = HostTiledPlanes(arena, share.layout).copied()
        np.testing.assert_array_equal(seen.plane(0, None), planes[0])
        arena.close()
        share.arena.close()


def test_a_subscriber_s_descriptor_is_for_reading_only(bridge, device):
    for kind in ("buffer", "optimal"):
        with make(device, kind, "rgba32", (64, 64)) as exported:
            share = exported.__cuframes_share__(exported.layout)
            with share.arena.export() as fd:
                assert fcntl.fcntl(fd.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
                assert os.fstat(fd.fileno()).st_mode & 0o777 == 0o400
                with pytest.raises(PermissionError):
                    mmap.mmap(fd.fileno(), 4096)  # for writing
            share.arena.close()


def test_an_image_of_another_extent_is_refused(bridge, tiled):
    description, export = tiled
    memory = unpack(description)
    larger = dataclasses.replace(memory.image, width=64, height=128)
    lie = dataclasses.replace(description, handle=pack(dataclasses.replace(memory, image=larger)))
    with pytest.raises(RemoteProtocolError, match=r"takes .* bytes, and is said to lie in"):
        vulkan_host.attach(lie, export(), writable=False)


def test_an_image_that_the_driver_would_not_make_is_refused(bridge, tiled):
    description, export = tiled
    memory = unpack(description)
    odd = dataclasses.replace(memory.image, usage=0x21)  # of depths, in a format of colours
    lie = dataclasses.replace(description, handle=pack(dataclasses.replace(memory, image=odd)))
    with pytest.raises(RemoteProtocolError, match="cannot be made here"):
        vulkan_host.attach(lie, export(), writable=False)


def test_a_driver_that_is_not_here_is_named(bridge, tiled):
    description, export = tiled
    memory = dataclasses.replace(unpack(description), driver_uuid=bytes(16))
    lie = dataclasses.replace(description, handle=pack(memory))
    with pytest.raises(cf.DeviceError, match="of the same driver and version"):
        vulkan_host.attach(lie, export(), writable=False)


def test_a_device_named_for_host_memory_is_refused(tiled):
    with pytest.raises(cf.InvalidArgumentError, match="by a software Vulkan driver"):
        vulkan_backend.for_subscriber(tiled[0], 0)


@pytest.mark.skipif(bool(importlib.util.find_spec("cupy")), reason="CuPy is installed")
def test_a_gpu_s_memory_needs_cupy(tiled):
    memory = dataclasses.replace(unpack(tiled[0]), host=False, memory_offset=0)
    theirs = dataclasses.replace(
        tiled[0],
        device_uuid=memory.device_uuid,
        nbytes=memory.allocation_nbytes,
        data_offset=0,
        handle=pack(memory),
    )
    with pytest.raises(cf.UnsupportedError, match="CuPy"):
        vulkan_backend.for_subscriber(theirs, None)


def test_writing_is_refused(bridge, tiled):
    description, export = tiled
    with pytest.raises(cf.UnsupportedError, match="without writable=True"):
        vulkan_host.attach(description, export(), writable=True)
