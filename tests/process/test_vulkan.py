"""Vulkan programs and our subscribers, in processes of their own, with a real driver on the CPU."""

import contextlib
import gc
from pathlib import Path

import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers import vulkan_programs
from tests.helpers.children import child
from tests.helpers.vulkan import lavapipe, make, noise, write

pytestmark = [
    pytest.mark.process,
    pytest.mark.foreign_fds("Mesa's driver opens what it needs"),
]


@pytest.fixture(scope="module", autouse=True)
def driver():
    with lavapipe():
        yield


def check(planes, format_, size, seed):
    """Compare a frame's planes with the noise of a seed."""
    expected = noise(cf.FrameLayout.make(format_, *size), seed)
    for plane, values in zip(planes, expected, strict=True):
        np.testing.assert_array_equal(plane, values)


@pytest.mark.parametrize(
    ("kind", "format_", "size", "sharing"),
    [
        ("buffer", "nv12", (641, 363), "descriptor"),
        ("linear", "rgba32", (641, 363), "descriptor"),
        ("optimal", "rgba32", (641, 363), "copied"),
        ("optimal", "gray8", (33, 65), "copied"),
    ],
)
def test_frames_of_a_vulkan_program_are_read(kind, format_, size, sharing):
    with child(vulkan_programs.publish, "vk", kind, format_, size) as program:
        told = program.expect("ready")
        assert told["sharing"] == sharing
        assert "waits for its Vulkan queue" in told["completion"]
        with cf.subscribe("vk", timeout=20, mode="strict") as sub:
            for seed in range(7):
                program.send("frame", seed=seed)
                program.expect("published")
                with sub.next(timeout=20) as frame:
                    check(frame.planes, format_, size, seed)
                    assert frame.device == "cpu"
            assert sub.info.memory == "vulkan"
            assert sub.info.sharing == sharing
            how = "copied out of the driver's own order" if sharing == "copied" else "read-only"
            assert how in sub.info.memory_reason


def test_a_frame_that_is_held_does_not_change_and_its_buffer_is_not_free():
    with child(vulkan_programs.publish, "vk", "buffer", "rgba32", (64, 64)) as program:
        program.expect("ready")
        with cf.subscribe("vk", timeout=20) as sub:
            program.send("frame", seed=0)
            first = program.expect("published")["index"]
            frame = sub.next(timeout=20)
            for seed in range(1, 6):
                program.send("frame", seed=seed)
                assert program.expect("published")["index"] != first
            check(frame.planes, "rgba32", (64, 64), 0)


def test_copies_hold_no_buffer():
    with child(vulkan_programs.publish, "vk", "optimal", "rgba32", (64, 64)) as program:
        program.expect("ready")
        with cf.subscribe("vk", timeout=20) as sub:
            frames = []
            for seed in range(6):
                program.send("frame", seed=seed)
                program.expect("published")
                frames.append(sub.next(timeout=20))
            for seed, frame in enumerate(frames):
                check(frame.planes, "rgba32", (64, 64), seed)


@pytest.mark.parametrize(("kind", "format_"), [("buffer", "nv12"), ("linear", "rgba32")])
def test_vulkan_reads_what_vulkan_wrote_without_a_copy(kind, format_):
    seeds = list(range(5))
    with (
        child(vulkan_programs.publish, "vk", kind, format_, (129, 65)) as program,
        child(vulkan_programs.look, "vk", seeds) as reader,
    ):
        program.expect("ready")
        reader.expect("ready")
        for seed in seeds:
            program.send("frame", seed=seed)
            seq = program.expect("published")["seq"]
            assert reader.expect("seen") == {"equal": True, "seq": seq}


@pytest.mark.parametrize("kind", ["buffer", "optimal"])
def test_a_frame_outlives_its_program(kind):
    with child(vulkan_programs.publish, "vk", kind, "rgba32", (64, 64)) as program:
        program.expect("ready")
        with cf.subscribe("vk", timeout=20, reconnect=False) as sub:
            program.send("frame", seed=3)
            program.expect("published")
            frame = sub.next(timeout=20)
            array = frame.y
            program.kill()
            with pytest.raises(cf.PublisherGoneError):
                sub.next(timeout=20)
            check([array], "rgba32", (64, 64), 3)
            assert frame.rgb().shape == (64, 64, 3)
            del frame, array
            gc.collect()


def test_a_subscriber_that_dies_gives_its_buffer_back():
    with (
        child(vulkan_programs.publish, "vk", "buffer", "rgba32", (64, 64)) as program,
        child(vulkan_programs.hold, "vk") as holder,
    ):
        program.expect("ready")
        seq = 0
        while not seq:  # the holder may subscribe after the first frame
            program.send("frame", seed=0)
            program.expect("published")
            seq = holder.expect("holding")["seq"]
        holder.send("die")
        holder.kill()
        for seed in range(1, 7):  # every buffer comes round twice
            program.send("frame", seed=seed)
            program.expect("published")


def test_a_new_size_is_a_new_epoch():
    from cuframes_nb.bridges.vulkan import Device

    with Device.open() as device, contextlib.ExitStack() as stack:
        small, large = (
            [stack.enter_context(make(device, kind, "rgba32", size)) for _ in range(3)]
            for kind, size in (("optimal", (64, 64)), ("linear", (129, 65)))
        )
        pub = stack.enter_context(
            cf.Publisher(
                "vk", width=64, height=64, format="rgba32", ownership="external", buffers=small
            )
        )
        sub = stack.enter_context(cf.subscribe("vk", timeout=20))
        write(device, small[0], noise(small[0].layout, 1))
        pub.publish_buffer(0)
        first = sub.next(timeout=20)
        pub.reconfigure(width=129, height=65, buffers=large)
        write(device, large[0], noise(large[0].layout, 2))
        pub.publish_buffer(large[0])
        second = sub.next(timeout=20)
        check(first.planes, "rgba32", (64, 64), 1)
        check(second.planes, "rgba32", (129, 65), 2)
        assert sub.info.sharing == "descriptor"
        first.release()
        second.release()


def test_nothing_grows():
    from cuframes_nb.bridges.vulkan import Device

    def once(device):
        for kind in ("buffer", "optimal"):
            with contextlib.ExitStack() as stack:
                buffers = [
                    stack.enter_context(make(device, kind, "rgba32", (64, 64))) for _ in range(3)
                ]
                pub = stack.enter_context(
                    cf.Publisher(
                        "vk", width=64, height=64, format="rgba32", ownership="external",
                        buffers=buffers,
                    )
                )  # fmt: skip
                sub = stack.enter_context(cf.subscribe("vk", timeout=20))
                pub.publish_buffer(0)
                sub.next(timeout=20).release()
        gc.collect()
        return (
            len(list(Path("/proc/self/fd").iterdir())),
            Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd"),
        )

    with Device.open() as device:
        once(device)
        before = once(device)
        for _ in range(20):
            after = once(device)
        assert after == before


def test_what_is_in_other_memory_is_a_vulkan_buffer_too():
    from cuframes_nb.bridges.vulkan import Device, import_frame
    from tests.helpers.vulkan import read_buffer

    with (
        Device.open() as device,
        cf.Publisher("cam", width=641, height=363, memory="host") as pub,
        cf.subscribe("cam", timeout=20) as sub,
    ):
        planes = noise(cf.FrameLayout.make("nv12", 641, 363), 9)
        with pub.acquire() as slot:
            for plane, values in zip(slot.planes, planes, strict=True):
                plane[...] = values
            del plane
        frame = sub.next(timeout=20)
        copy = frame.copy()
        for taken in (frame, copy):
            with import_frame(taken, device) as imported:
                taken.release()
                seen = read_buffer(device, imported.buffer, imported.offset, imported.layout)
                check(seen, "nv12", (641, 363), 9)
            with pytest.raises(cf.ClosedError, match="was closed"):
                _ = imported.buffer


def test_an_import_that_is_dropped_is_told_and_closed():
    from cuframes_nb.bridges.vulkan import Device, import_frame

    with (
        Device.open() as device,
        cf.Publisher("cam", width=64, height=64, memory="host", ring_size=3) as pub,
        cf.subscribe("cam", timeout=20) as sub,
    ):
        pub.write(np.zeros((96, 64), np.uint8))
        imported = import_frame(sub.next(timeout=20), device)
        with pytest.warns(ResourceWarning, match="unclosed ImportedFrame"):
            del imported
        assert sub.stats.leases == 0


def test_a_frame_is_held_while_vulkan_has_it():
    from cuframes_nb.bridges.vulkan import Device, import_frame

    with (
        Device.open() as device,
        cf.Publisher("cam", width=64, height=64, memory="host", ring_size=3) as pub,
        cf.subscribe("cam", timeout=20) as sub,
    ):
        pub.write(np.zeros((96, 64), np.uint8))
        with import_frame(sub.next(timeout=20), device):
            gc.collect()
            assert sub.stats.leases == 1
        assert sub.stats.leases == 0
