"""Vulkan and CUDA on one GPU: NVIDIA's own drivers, both ways."""

import contextlib
import dataclasses
import gc
import os
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda import devices
from cuframes_nb._memory import vulkan_cuda
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime import vulkan_backend
from cuframes_nb._wire.messages import Tiling
from cuframes_nb._wire.vulkan import pack, unpack
from cuframes_nb.errors import RemoteProtocolError
from tests.helpers import vulkan_programs
from tests.helpers.children import child
from tests.helpers.vulkan import fill_and_signal, make, noise, read_buffer, write

pytestmark = pytest.mark.foreign_fds("the drivers open what they need")


@pytest.fixture(scope="module")
def device():
    """Give the Vulkan device that is CUDA's first GPU."""
    vulkan = pytest.importorskip("cuframes_nb.bridges.vulkan")
    try:
        device = vulkan.Device.open(devices.gpu(0).uuid)
    except cf.CuframesError as error:
        pytest.skip(f"no Vulkan on this GPU: {error}")
    with device:
        yield device


@contextlib.contextmanager
def stream(device, kind, format_, size, *, count=4, key="vk"):
    """Give buffers or images, their publisher, and a subscriber."""
    with contextlib.ExitStack() as stack:
        buffers = [stack.enter_context(make(device, kind, format_, size)) for _ in range(count)]
        pub = stack.enter_context(
            cf.Publisher(
                key, width=size[0], height=size[1], format=format_, ownership="external",
                buffers=buffers,
            )
        )  # fmt: skip
        yield buffers, pub, stack.enter_context(cf.subscribe(key, timeout=10))


def check(planes, format_, size, seed):
    """Compare a frame's planes with the noise of a seed."""
    expected = noise(cf.FrameLayout.make(format_, *size), seed)
    for plane, values in zip(planes, expected, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(plane), values)


KINDS = [
    ("buffer", "nv12", (641, 363)),
    ("buffer", "p010", (641, 363)),
    ("buffer", "rgb24", (3, 5)),
    ("linear", "rgba32", (641, 363)),
    ("linear", "gray8", (641, 363)),
    ("linear", "nv12", (642, 362)),
    ("optimal", "rgba32", (641, 363)),
    ("optimal", "rgba32", (1920, 1080)),
    ("optimal", "rgba32", (3, 1)),
    ("optimal", "gray8", (641, 363)),
    ("optimal", "nv12", (642, 362)),
    ("optimal", "nv12", (1920, 1080)),
    ("optimal", "p010", (642, 362)),
]


@pytest.mark.parametrize(("kind", "format_", "size"), KINDS)
def test_what_vulkan_writes_cupy_reads(device, kind, format_, size):
    with stream(device, kind, format_, size) as (buffers, pub, sub):
        for seed in range(5):
            index = pub.wait_free(timeout=5)
            write(device, buffers[index], noise(buffers[index].layout, seed))
            pub.publish_buffer(index)
            with sub.next(timeout=5) as frame:
                assert frame.device == "cuda:0"
                check(frame.planes, format_, size, seed)
        assert sub.info.memory == "vulkan"
        assert sub.info.sharing == ("copied" if kind == "optimal" else "descriptor")
        assert sub.info.completion == "gpu"
        assert pub.info.device == sub.info.device


@pytest.mark.parametrize("kind", ["buffer", "linear"])
def test_rows_of_bytes_are_not_copied(device, kind):
    with stream(device, kind, "rgba32", (64, 64)) as (buffers, pub, sub):
        write(device, buffers[0], noise(buffers[0].layout, 1))
        pub.publish_buffer(0)
        array = sub.next(timeout=5).y
        write(device, buffers[0], noise(buffers[0].layout, 2))  # what no publisher may do
        check([array], "rgba32", (64, 64), 2)
        del array


def test_a_tiled_image_is_copied_and_holds_nothing(device):
    with stream(device, "optimal", "rgba32", (64, 64)) as (buffers, pub, sub):
        frames = []
        for seed in range(6):
            index = pub.wait_free(timeout=5)
            write(device, buffers[index], noise(buffers[index].layout, seed))
            pub.publish_buffer(index)
            frames.append(sub.next(timeout=5))
        for seed, frame in enumerate(frames):
            check(frame.planes, "rgba32", (64, 64), seed)


def test_tiled_memory_read_as_rows_is_a_scrambled_picture(device):
    """What this package never does, and the proof that the tests above would see it."""
    with make(device, "optimal", "gray8", (640, 480)) as image:
        planes = noise(image.layout, 1)
        write(device, image, planes)
        share = image.__cuframes_share__(image.layout)
        memory = dataclasses.replace(unpack(share.arena.describe()), image=None, dedicated=False)
        lie = dataclasses.replace(share.arena.describe(), tiling=Tiling.LINEAR, handle=pack(memory))
        arena = vulkan_cuda.attach(lie, share.arena.export(), devices.gpu(0))
        rows = cp.ndarray(
            (480, 640),
            cp.uint8,
            cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(arena.address, arena.nbytes, arena, 0), 0),
        )
        assert (cp.asnumpy(rows) == planes[0]).mean() < 0.1
        del rows
        arena.close()
        share.arena.close()


def test_a_copy_is_there_before_another_stream_reads_it(device):
    other, busy = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    work = cp.ones((4096, 4096), np.float32)
    with stream(device, "optimal", "rgba32", (640, 360)) as (buffers, pub, sub):
        write(device, buffers[0], noise(buffers[0].layout, 1))
        pub.publish_buffer(0)
        with busy:  # the copy comes behind this
            for _ in range(20):
                work = work @ work * 0
            frame = sub.next(timeout=5)
        with other:
            taken = frame.y.copy()
        other.synchronize()
        check([taken], "rgba32", (640, 360), 1)
        rgb = frame.rgb(stream=other)
        other.synchronize()
        expected = noise(cf.FrameLayout.make("rgba32", 640, 360), 1)[0][..., :3]
        np.testing.assert_array_equal(cp.asnumpy(rgb), expected)


# --- Ordering -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeline", [True, False])
def test_a_frame_is_complete_behind_its_semaphore(device, timeline):
    import vulkan as vk

    from cuframes_nb.bridges.vulkan import Semaphore

    pools = []
    with (
        stream(device, "buffer", "rgba32", (1920, 1080)) as (buffers, pub, sub),
        Semaphore(device, timeline=timeline) as semaphore,
    ):
        assert semaphore.how == "the GPU waits for the semaphore"
        for count in range(1, 9):
            index = pub.wait_free(timeout=5)
            value = count if timeline else 0
            pools.append(fill_and_signal(device, buffers[index], count, semaphore, value))
            pub.publish_buffer(
                index, stream=semaphore.after(value) if timeline else semaphore.after()
            )
            with sub.next(timeout=5) as frame:
                assert int(frame.y.min()) == int(frame.y.max()) == count
        vk.vkQueueWaitIdle(device.queue)
        for pool in pools:
            vk.vkDestroyCommandPool(device.handle, pool, None)


def test_publish_does_not_wait_for_a_semaphore(device):
    import vulkan as vk

    from cuframes_nb.bridges.vulkan import Semaphore

    with (
        stream(device, "buffer", "rgba32", (64, 64)) as (buffers, pub, sub),
        Semaphore(device) as semaphore,
    ):
        pub.publish_buffer(0, stream=semaphore.after(1))
        with pytest.raises(cf.FrameTimeout):
            sub.next(timeout=0.2)
        pool = fill_and_signal(device, buffers[0], 7, semaphore, 1)
        assert int(sub.next(timeout=5).y.max()) == 7
        vk.vkQueueWaitIdle(device.queue)
        vk.vkDestroyCommandPool(device.handle, pool, None)


# --- The other way --------------------------------------------------------------------------------


@pytest.mark.parametrize(("format_", "size"), [("nv12", (641, 363)), ("rgba32", (1920, 1080))])
def test_our_frames_are_vulkan_buffers(device, format_, size):
    from cuframes_nb.bridges.vulkan import import_frame

    with (
        cf.Publisher("cam", width=size[0], height=size[1], format=format_, memory="cuda") as pub,
        cf.subscribe("cam", timeout=5) as sub,
    ):
        for seed in range(3):
            with pub.acquire() as slot:
                planes = noise(cf.FrameLayout.make(format_, *size), seed)
                for plane, values in zip(slot.planes, planes, strict=True):
                    plane[...] = cp.asarray(values)
                del plane
            frame = sub.next(timeout=5)
            with import_frame(frame, device) as imported:
                frame.release()
                seen = read_buffer(device, imported.buffer, imported.offset, imported.layout)
                assert sub.stats.leases == 1
            check(seen, format_, size, seed)
            del frame
            gc.collect()


def test_a_vulkan_program_s_buffer_is_a_vulkan_buffer_again(device):
    from cuframes_nb.bridges.vulkan import import_frame

    for kind in ("buffer", "linear"):
        with stream(device, kind, "rgba32", (641, 363)) as (buffers, pub, sub):
            write(device, buffers[0], noise(buffers[0].layout, 4))
            pub.publish_buffer(0)
            with import_frame(sub.next(timeout=5), device) as imported:
                seen = read_buffer(device, imported.buffer, imported.offset, imported.layout)
            check(seen, "rgba32", (641, 363), 4)


def test_what_vulkan_cannot_have_is_refused(device):
    from cuframes_nb.bridges.vulkan import import_frame

    with stream(device, "optimal", "rgba32", (64, 64)) as (buffers, pub, sub):
        write(device, buffers[0], noise(buffers[0].layout))
        pub.publish_buffer(0)
        with pytest.raises(cf.UnsupportedError, match="or a copy"):
            import_frame(sub.next(timeout=5), device)
    with (
        cf.Publisher("host", width=64, height=64, memory="host") as pub,
        cf.subscribe("host", timeout=5) as sub,
    ):
        pub.write(np.zeros((96, 64), np.uint8))
        with pytest.raises(cf.UnsupportedError, match="may only read"):
            import_frame(sub.next(timeout=5), device)


# --- What is not believed -------------------------------------------------------------------------


@pytest.fixture
def told(device):
    """Give what a publisher says of a buffer and of an image, each with what exports it."""
    with (
        make(device, "buffer", "rgba32", (640, 480)) as buffer,
        make(device, "optimal", "rgba32", (640, 480)) as image,
    ):
        shares = [it.__cuframes_share__(it.layout) for it in (buffer, image)]
        yield [(share.arena.describe(), share.arena.export) for share in shares]
        for share in shares:
            share.arena.close()


def test_more_memory_than_there_is_is_refused(told):
    # The buffer's: of an image's memory the driver checks the extent, as the next test does.
    description, export = told[0]
    memory = dataclasses.replace(unpack(description), allocation_nbytes=1 << 30)
    lie = dataclasses.replace(description, nbytes=1 << 30, handle=pack(memory))
    fd = export()
    with fd, pytest.raises(RemoteProtocolError, match="is not Vulkan memory of GPU"):
        vulkan_cuda.attach(lie, fd, devices.gpu(0))


def test_an_image_that_is_larger_than_its_memory_is_refused(told):
    description, export = told[1]
    memory = unpack(description)
    for size in ((640, 4800), (6400, 480)):
        larger = dataclasses.replace(memory.image, width=size[0], height=size[1])
        lie = dataclasses.replace(
            description, handle=pack(dataclasses.replace(memory, image=larger))
        )
        fd = export()
        with fd, pytest.raises(RemoteProtocolError, match="with what the publisher says"):
            vulkan_cuda.attach(lie, fd, devices.gpu(0))


def test_a_descriptor_of_something_else_is_refused(told):
    for description, _ in told:
        for fd in (OwnedFd(os.memfd_create("x")), OwnedFd(os.open("/dev/null", os.O_RDWR))):
            with fd, pytest.raises(RemoteProtocolError, match="is not Vulkan memory of GPU"):
                vulkan_cuda.attach(description, fd, devices.gpu(0))


def test_a_gpu_that_is_not_here_is_named(told, device):
    from cuframes_nb.bridges.vulkan import Device

    uuid = bytes(range(16))
    for description, _ in told:
        memory = dataclasses.replace(unpack(description), device_uuid=uuid)
        elsewhere = dataclasses.replace(description, device_uuid=uuid, handle=pack(memory))
        with pytest.raises(cf.DeviceError, match="GPU-00010203-0405"):
            vulkan_backend.for_subscriber(elsewhere, None)
    with pytest.raises(cf.DeviceError, match="no Vulkan device GPU-00010203"):
        Device.open(uuid)


# --- Processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "format_"), [("buffer", "nv12"), ("optimal", "rgba32"), ("optimal", "nv12")]
)
def test_a_program_in_another_process_that_is_killed(kind, format_):
    size = (642, 362)
    with child(vulkan_programs.publish, "vk", kind, format_, size) as program:
        program.expect("ready")
        with cf.subscribe("vk", timeout=20, reconnect=False) as sub:
            for seed in range(4):
                program.send("frame", seed=seed)
                program.expect("published")
                with sub.next(timeout=20) as frame:
                    check(frame.planes, format_, size, seed)
            program.send("frame", seed=9)
            program.expect("published")
            frame = sub.next(timeout=20)
            planes = frame.planes
            program.kill()
            with pytest.raises(cf.PublisherGoneError):
                sub.next(timeout=20)
            check(planes, format_, size, 9)
            check(frame.copy().planes, format_, size, 9)
            del frame, planes
            gc.collect()


def test_a_program_needs_no_cuda_and_a_subscriber_does(device):
    blind = {"CUDA_VISIBLE_DEVICES": ""}
    with child(vulkan_programs.publish, "vk", "buffer", "nv12", (642, 362), env=blind) as program:
        told = program.expect("ready")
        assert told["completion"].startswith("the program waits for its Vulkan queue")
        with cf.subscribe("vk", timeout=20) as sub:
            for seed in range(3):
                program.send("frame", seed=seed)
                program.expect("published")
                with sub.next(timeout=20) as frame:
                    check(frame.planes, "nv12", (642, 362), seed)
            assert sub.info.completion == "host"
        with child(vulkan_programs.ask, "vk", env=blind) as reader:
            assert reader.expect("refused")["code"] == "device"


def test_vulkan_reads_what_vulkan_wrote_in_another_process():
    seeds = list(range(3))
    with (
        child(vulkan_programs.publish, "vk", "linear", "rgba32", (641, 363)) as program,
        child(vulkan_programs.look, "vk", seeds) as reader,
    ):
        program.expect("ready")
        reader.expect("ready")
        for seed in seeds:
            program.send("frame", seed=seed)
            seq = program.expect("published")["seq"]
            assert reader.expect("seen") == {"equal": True, "seq": seq}


def test_nothing_grows(device):
    def once():
        for kind in ("buffer", "optimal"):
            with stream(device, kind, "rgba32", (1920, 1080)) as (_, pub, sub):
                pub.publish_buffer(0)
                sub.next(timeout=5).y.sum()
        gc.collect()
        cp.get_default_memory_pool().free_all_blocks()
        return cp.cuda.runtime.memGetInfo()[0], len(list(Path("/proc/self/fd").iterdir()))

    once()
    free, fds = once()
    for _ in range(10):
        free_now, fds_now = once()
    assert fds_now < fds + 5  # each round had eight, and as many buffers of 8 MiB
    assert free - free_now < 64 << 20
