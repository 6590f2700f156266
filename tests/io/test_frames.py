"""Frames: zero copies, read-only, what they tell, what release does, copies."""

import gc
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers.frames import HEIGHT, WIDTH, check, fill, publish, publisher


def address(array):
    return array.__array_interface__["data"][0]


def pixel_mappings():
    """Return ``(start, end, inode, permissions)`` of each mapping of pixels in this process."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "memfd:cuframes:pixels" in line:
            span, permissions, _, _, inode, *_ = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            found.append((start, end, inode, permissions))
    return found


def mapping_of(array):
    low, high = np.lib.array_utils.byte_bounds(array)
    (found,) = (m for m in pixel_mappings() if m[0] <= low and high <= m[1])
    return found


def test_arrays_lie_in_the_shared_memory_itself():
    # lifetime.md, 4 and 9
    with publisher() as pub, cf.subscribe("cam") as sub:
        slot = pub.acquire()
        ours = [mapping_of(plane) for plane in (*slot.planes, slot.array)]
        fill(slot)
        written = address(slot.y) - ours[0][0]
        pub.publish(slot)
        with sub.next(timeout=10) as frame:
            theirs = [mapping_of(array) for array in (*frame.planes, frame.array)]
            assert address(frame.y) - theirs[0][0] == written
            assert {m[2] for m in ours} == {m[2] for m in theirs}  # one memory
            assert {m[3] for m in ours} == {"rw-s"}
            assert {m[3] for m in theirs} == {"r--s"}
            assert not {m[0] for m in ours} & {m[0] for m in theirs}


def test_all_arrays_of_a_slot_see_one_memory():
    # lifetime.md, 4
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=10) as frame:
            old = frame.y
        slot = pub.acquire()
        slot.y[:] = 9
        slot.uv[:] = 8
        slot.array[0, 0] = 7
        pub.publish(slot)
        with sub.next(timeout=10) as frame:
            assert frame.y[0, 0] == 7
            assert frame.y[0, 1] == 9
            assert (frame.array[HEIGHT:] == 8).all()
            assert (old == 1).all()


def test_arrays_cannot_be_written():
    # lifetime.md, 9
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        frame = sub.next(timeout=10)
        for array in (*frame.planes, frame.array):
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


def test_a_frame_tells_what_it_is():
    color = cf.ColorSpec("bt2020", "full")
    with publisher(color=color) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        frame = sub.next(timeout=10)
        assert (frame.key, frame.seq, frame.format) == ("cam", 1, "nv12")
        assert (frame.width, frame.height) == (WIDTH, HEIGHT)
        assert frame.color == color
        assert (frame.device, frame.xp) == ("cpu", np)
        assert 0 <= frame.age_ns == pytest.approx(cf.now_ns() - frame.pts_ns, abs=10**10)
        frame.record_stream(object())  # without effect on host memory


def test_a_released_frame_is_refused_and_its_arrays_are_not():
    # lifetime.md, 6
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=10) as frame:
            y = frame.y
        frame.release()
        assert frame.released
        for use in (
            lambda: frame.y,
            lambda: frame.uv,
            lambda: frame.planes,
            lambda: frame.array,
            lambda: frame.xp,
            lambda: frame.device,
            frame.rgb,
            frame.copy,
            frame.__enter__,
            lambda: frame.record_stream(0),
        ):
            with pytest.raises(cf.ClosedError, match="frame 1 of stream 'cam' was released"):
                use()
        assert frame.seq == 1
        assert (y == 1).all()
        assert pub.stats.slots_leased == 1
        del y
        assert pub.stats.slots_leased == 0


@pytest.mark.parametrize(
    "derive",
    [
        lambda frame: frame.y,
        lambda frame: frame.uv,
        lambda frame: frame.array,
        lambda frame: frame.y[4:, ::2],
        lambda frame: frame.uv.reshape(HEIGHT // 2, -1)[1:],
        lambda frame: frame.y.T.view(np.int8),
        lambda frame: np.asarray(frame.y),
        lambda frame: np.from_dlpack(frame.y),
        lambda frame: memoryview(frame.y),
        lambda frame: frame,
    ],
    ids=[
        "y",
        "uv",
        "array",
        "slice",
        "reshape",
        "view",
        "asarray",
        "dlpack",
        "memoryview",
        "frame",
    ],
)
def test_whatever_shows_the_pixels_keeps_the_slot(derive):
    # lifetime.md, 6
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        frame = sub.next(timeout=10)
        kept = derive(frame)
        if kept is not frame:
            before = np.array(kept, copy=True)
            frame.release()
        del frame
        publish(pub, 20)
        assert pub.stats.slots_leased == 1
        if isinstance(kept, cf.Frame):
            check(kept)
        else:
            assert (np.asarray(kept) == before).all()
        del kept
        assert pub.stats.slots_leased == 0


def test_kept_arrays_have_their_own_pixels_whatever_happens_around_them():
    # lifetime.md, 1 and 6
    with publisher(ring_size=8) as pub:
        sub = cf.subscribe("cam")
        kept = []
        for _ in range(6):
            publish(pub)
            with sub.next(timeout=10) as frame:
                kept.append((frame.seq, frame.planes, frame.array))
        publish(pub, 100)
        sub.close()
        publish(pub, 100)
        pub.reconfigure(width=32)
        publish(pub, 100)
        assert pub.stats.dropped == 0
    gc.collect()
    with publisher() as pub:  # the next one under this name
        publish(pub, 10)
    for seq, planes, rows in kept:
        assert {int(v) for p in planes for v in np.unique(p)} == {seq}
        assert (rows == seq).all()
    del planes, rows


def test_a_frame_may_be_released_on_any_thread():
    # lifetime.md, 6 and 10
    with publisher(ring_size=6) as pub, cf.subscribe("cam") as sub:
        for _ in range(20):
            frames = []
            for _ in range(4):
                publish(pub)
                frames.append(sub.next(timeout=10))
            threads = [threading.Thread(target=frame.release) for frame in frames]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert pub.stats.slots_leased == 0


def test_a_copy_is_yours_for_ever():
    with publisher(ring_size=3) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=10) as frame:
            copy = frame.copy()
            assert address(copy.y) != address(frame.y)
        assert pub.stats.slots_leased == 0
        copy.y[0, 0] = 1  # it can be written
        publish(pub, 20)
        sub.close()
        pub.close()
        check(copy, 1)
        assert (copy.seq, copy.pts_ns, copy.format) == (1, frame.pts_ns, "nv12")
        assert copy.array.shape == (HEIGHT * 3 // 2, WIDTH)
        again = copy.copy()
        copy.release()
        check(again, 1)
        with pytest.raises(cf.ClosedError):
            _ = copy.y


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_a_copy_of_an_odd_frame_is_whole(format_):
    with publisher(format=format_, width=33, height=17) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=10) as frame:
            copy = frame.copy()
        check(copy, 1)


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_rgb_is_converted_by_the_frame_s_own_colours(format_):
    is_yuv = format_ in {"nv12", "p010", "gray8"}
    color = cf.ColorSpec("bt709", "full") if is_yuv else cf.ColorSpec("rgb", "full")
    with publisher(format=format_, color=color) as pub, cf.subscribe("cam") as sub:
        with pub.acquire() as slot:
            for index, plane in enumerate(slot.planes):
                plane[...] = (512 << 6 if format_ == "p010" else 128) if index or is_yuv else 128
        with sub.next(timeout=10) as frame:
            rgb = frame.rgb()
            assert rgb.shape == (HEIGHT, WIDTH, 3)
            assert rgb.dtype == np.uint8
            assert np.abs(rgb.astype(int) - 128).max() <= 1
            small = frame.rgb(layout="chw", dtype="float32", size=(16, 8), crop=(2, 2, 32, 16))
            assert small.shape == (3, 8, 16)
            assert np.allclose(small, 128 / 255, atol=0.005)
        assert pub.stats.slots_leased == 0  # the result is not a view
        assert rgb[0, 0, 0] in {127, 128, 129}


def test_a_frame_is_collected_by_count():
    # lifetime.md, 6
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        frame = sub.next(timeout=10)
        assert sys.getrefcount(frame) == 2
        y = frame.y
        gc.disable()
        try:
            del frame, y
            assert pub.stats.slots_leased == 0
        finally:
            gc.enable()
