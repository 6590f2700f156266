"""Frames of another GPU where there is one GPU: it passes for both, and all is done as with two.

What only two can show is in test_two_gpus.py, whose processes these are.
"""

import threading
import time

import cupy as cp
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda.devices import activated, gpus
from cuframes_nb._memory.vmm import Home
from cuframes_nb._runtime import other_gpu
from cuframes_nb._runtime.cuda_backend import CudaBackend
from tests.gpu import test_two_gpus as programs
from tests.helpers import gpu as pixels
from tests.helpers.children import child

pytestmark = pytest.mark.process

SECONDS = 60
WAYS = ["peer", "copied"]


def force(way):
    """Have frames mapped into, or copied to, the GPU that holds them; return what undoes it."""
    gpu = gpus()[0]
    before = other_gpu.for_subscriber

    def forced(uuid, device, *, peer, copy_to):
        del device, peer, copy_to
        if way == "peer":
            return other_gpu.PeerBackend(gpu, "forced", Home(uuid, gpu.ordinal))
        return other_gpu.CopyBackend(gpu, CudaBackend(gpu, "forced"))

    other_gpu.for_subscriber = forced
    return lambda: setattr(other_gpu, "for_subscriber", before)


def on_one(link, program, way, *arguments):
    """Run a program of test_two_gpus.py so."""
    force(way)
    getattr(programs, program)(link, *arguments)


@pytest.fixture
def pub():
    with programs.publishing(0) as publisher:
        yield publisher


@pytest.fixture
def copied(pub):
    """Subscribe for copies."""
    undo = force("copied")
    try:
        with cf.subscribe("cam1") as subscriber:
            yield subscriber
    finally:
        undo()


def publish(pub):
    """Publish a frame, once there is room for one."""
    deadline = time.monotonic() + 20
    while True:
        try:
            slot = pub.acquire()
            break
        except cf.RingFullError:
            assert time.monotonic() < deadline, "no slot is free"
    pixels.fill(slot)
    pub.publish(slot)


def warm_up(pub, copied, *streams):
    """Take a frame on each stream, so that kernels are loaded and memory is in the pool."""
    for stream in streams:
        with stream, copied.next(10) as frame:
            pixels.wrong_pixels(frame)
        stream.synchronize()
        publish(pub)


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.001)


# --- Asked for where it is not needed -------------------------------------------------------------


@pytest.mark.parametrize("wish", [{}, {"peer": True}, {"peer": True, "device": 0}, {"copy_to": 0}])
def test_on_their_own_gpu_frames_are_neither_mapped_elsewhere_nor_copied(pub, wish):
    uuid = pub.info.device
    with child(programs.read, seconds=SECONDS, **wish) as it:
        programs.check_read(it.expect("read"), uuid, "descriptor", [uuid])


def test_without_any_gpu_a_wish_for_one_is_refused(pub):
    env = {"CUDA_VISIBLE_DEVICES": ""}
    for wish in ({"peer": True}, {"copy_to": 0}):
        with child(programs.read, env=env, seconds=SECONDS, **wish) as it:
            refused = it.expect("refused")
        assert "CUDA_VISIBLE_DEVICES=''" in refused["error"]
        assert (refused["contexts"], refused["memory"]) == ([], [])


def test_a_process_that_sees_none_is_not_told_of_peer_mapping(pub):
    with child(programs.read, env={"CUDA_VISIBLE_DEVICES": ""}, seconds=SECONDS) as it:
        assert "peer" not in it.expect("refused")["error"]


# --- As if there were two -------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_frames_are_right_and_used_in_every_way(pub, way):
    uuid = pub.info.device
    with child(on_one, "read", way, seconds=SECONDS) as it:
        seen = it.expect("read")
        programs.check_read(seen, uuid, way, [uuid])
        assert "(cuda:0)" in seen["reason"]


@pytest.mark.parametrize("way", WAYS)
def test_no_frame_is_torn_or_stale(way):
    """lifetime.md, 1."""
    with child(programs.publish, 0, seconds=SECONDS) as publisher:
        publisher.expect("ready")
        with child(on_one, "follow", way, 300, seconds=SECONDS) as reader:
            done = reader.expect("done")
    assert (done["wrong"], done["sharing"]) == (0, way)
    assert done["copied"] == (300 if way == "copied" else 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_frame_outlives_its_publisher(way):
    """lifetime.md, 6."""
    with child(programs.publish, 0, seconds=SECONDS) as publisher:
        publisher.expect("ready")
        with child(on_one, "hold", way, seconds=SECONDS) as reader:
            reader.expect("held")
            publisher.kill()
            reader.send("look")
            assert reader.expect("seen")["wrong"] == 0


# --- Copies ---------------------------------------------------------------------------------------


def test_a_slot_is_held_until_its_copy_is_made_and_no_longer(pub, copied):
    """lifetime.md, 1: also while the publisher goes on."""
    stream = cp.cuda.Stream(non_blocking=True)
    warm_up(pub, copied, stream)
    wait_until(lambda: pub.stats.slots_leased == 0)
    latch = pixels.Latch(stream)
    with stream:
        frame = copied.next(10)
        wrong = pixels.check(frame)
    assert pub.stats.slots_leased == 1
    for _ in range(20):
        publish(pub)
    assert pub.stats.slots_leased == 1
    latch.open()
    wait_until(lambda: pub.stats.slots_leased == 0)
    stream.synchronize()
    assert int(wrong[0]) == 0
    assert copied.stats.copied == copied.stats.received == 2


def test_whoever_reads_on_another_stream_waits_for_the_copy(pub, copied):
    made, reading, named = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    warm_up(pub, copied, made, reading)
    latch = pixels.Latch(made)
    with made:
        frame = copied.next(10)
    with reading:
        wrong = pixels.check(frame)
    frame.record_stream(named)  # waits, too
    assert not reading.done
    assert not named.done
    latch.open()
    reading.synchronize()
    named.synchronize()
    assert int(wrong[0]) == 0


def test_the_memory_of_a_copy_is_not_used_again_while_it_is_read(pub, copied):
    made, reading = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    warm_up(pub, copied, made, reading)
    with made:
        frame = copied.next(10)
    made.synchronize()
    latch = pixels.Latch(reading)
    with reading:
        wrong = pixels.check(frame)
    address = frame.y.data.ptr
    del frame
    publish(pub)
    with made:  # a copy that gets the same memory of CuPy's pool, on the stream that it is of
        assert copied.next(10).y.data.ptr == address
    latch.open()
    reading.synchronize()
    assert int(wrong[0]) == 0


def test_a_graph_captures_no_copy(pub, copied):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(cf.InvalidArgumentError, match="take it before the capture"):
                copied.next(10)
        finally:
            stream.end_capture()
        assert pixels.wrong_pixels(copied.latest()) == 0
    wait_until(lambda: pub.stats.slots_leased == 0)


def test_copies_leave_nothing_behind(pub, copied):
    """lifetime.md, 12."""

    def pass_frames(count):
        for _ in range(count):
            publish(pub)
            with copied.next(10) as frame:
                frame.rgb()
        cp.cuda.get_current_stream().synchronize()

    pass_frames(20)
    before = pixels.memory_in_use()
    pass_frames(300)
    assert pixels.memory_in_use() == before


# --- Which GPU is current -------------------------------------------------------------------------


def test_a_block_on_a_gpu_leaves_the_thread_as_it_was():
    """CuPy follows it inside, and no context is current afterwards that was not before."""
    from cuda.bindings import driver

    seen = []

    def look():
        seen.append(int(driver.cuCtxGetCurrent()[1]))
        with activated(0):
            seen.append(int(driver.cuCtxGetCurrent()[1]))
            cp.arange(8).sum().get()
            with activated(0):
                pass
            seen.append(cp.cuda.runtime.getDevice())
        seen.append(int(driver.cuCtxGetCurrent()[1]))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(SECONDS)
    assert seen[0] == seen[3] == 0
    assert seen[1] != 0
    assert seen[2] == 0
