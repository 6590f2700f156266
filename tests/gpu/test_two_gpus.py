"""Frames on a GPU that is not the first: matched by UUID, never by ordinal; and read on another."""

import os
import select
import sys
import time

import cupy as cp
import numpy as np
import pynvml
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda.devices import activated, gpus, peers
from tests.helpers import gpu as pixels
from tests.helpers.children import child

pytestmark = pytest.mark.process

SECONDS = 90
"""For a process that makes contexts and compiles kernels."""


@pytest.fixture
def two():
    """Return the UUIDs of the first two GPUs."""
    found = gpus()
    if len(found) < 2:
        pytest.skip("there are fewer than two GPUs")
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        pytest.skip("what other processes see is counted from what CUDA_VISIBLE_DEVICES shows here")
    return [gpu.uuid_text for gpu in found[:2]]


@pytest.fixture
def reachable(two):
    """Skip where the two do not reach each other's memory."""
    if two[1] not in peers(0) or two[0] not in peers(1):
        pytest.skip("the two GPUs do not reach each other's memory")
    return two


def publishing(device):
    """Return a publisher on that GPU, with one frame."""
    publisher = cf.Publisher("cam1", width=640, height=360, memory="cuda", device=device)
    publish_one(publisher, device)
    return publisher


def publish_one(publisher, device):
    """Publish a frame that describes itself."""
    with activated(device):
        slot = publisher.acquire()
        pixels.fill(slot)
        publisher.publish(slot)


@pytest.fixture
def pub(two):
    with publishing(1) as publisher:
        yield publisher


@pytest.fixture(params=[0, 1])
def holder(request, two):
    """Publish on either GPU; return its ordinal here."""
    with publishing(request.param):
        yield request.param


# --- In other processes ---------------------------------------------------------------------------


def footprint():
    """Return where this process has contexts, by ordinal, and memory, by NVML's word and UUID."""
    from cuda.bindings import driver

    try:
        visible = gpus()
    except cf.DeviceError:  # none
        visible = []
    contexts = [
        gpu.ordinal
        for gpu in visible
        if driver.cuDevicePrimaryCtxGetState(driver.cuDeviceGet(gpu.ordinal)[1])[2]
    ]
    pynvml.nvmlInit()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        memory = [
            pynvml.nvmlDeviceGetUUID(handle)
            for handle in handles
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if process.pid == os.getpid()
        ]
    finally:
        pynvml.nvmlShutdown()
    return {"contexts": contexts, "memory": memory}


def read(link, **wish):
    """Subscribe as wished, use a frame in every way, and say what was seen or why not."""
    try:
        subscriber = cf.subscribe("cam1", timeout=20, **wish)
    except cf.DeviceError as error:
        link.say("refused", error=str(error), **footprint())
        return
    with subscriber, subscriber.next(20) as frame:
        ordinal = int(frame.device.removeprefix("cuda:"))
        # Not CuPy's own way to make a GPU current, which makes a context on the one before.
        with activated(ordinal):
            wrong = pixels.wrong_pixels(frame)
            own = frame.copy()
            same = bool((frame.rgb() == own.rgb()).all())
            tensor = frame.tensor((64, 64))
            there = {
                frame.y.device.id, own.y.device.id, tensor.device.id,
                cp.from_dlpack(frame.y).device.id, frame.y.__dlpack_device__()[1],
            }  # fmt: skip
        path = cf.snapshot(frame, f"{os.environ['CUFRAMES_RUNTIME_DIR']}/picture.jpg")
        link.say(
            "read", uuid=gpus()[ordinal].uuid_text, wrong=wrong, same=same,
            elsewhere=sorted(there - {ordinal}), jpeg=path.read_bytes()[:2].hex(),
            sharing=subscriber.info.sharing, reason=subscriber.info.memory_reason,
            copied=subscriber.stats.copied, current=cp.cuda.runtime.getDevice(), **footprint(),
        )  # fmt: skip


def seen_by(visible, two):
    """Return CUDA_VISIBLE_DEVICES, and the UUIDs that it shows."""
    value = visible.format(*two)
    shown = [two[int(entry)] if entry.isdecimal() else entry for entry in value.split(",") if entry]
    return {"CUDA_VISIBLE_DEVICES": value}, shown


VISIBLE = ["0", "1", "1,0", "{0}", "{1}", ""]


def check_read(seen, uuid, sharing, used):
    """Assert that frames were right, on that GPU, and nothing is on one that was not used."""
    assert (seen["uuid"], seen["sharing"]) == (uuid, sharing)
    assert (seen["wrong"], seen["same"], seen["elsewhere"]) == (0, True, [])
    assert seen["jpeg"] == "ffd8"
    assert seen["copied"] == (sharing == "copied")
    assert len(seen["contexts"]) == len(used)
    assert sorted(seen["memory"]) == sorted(used)
    assert seen["current"] == 0  # as it was


# --- Where they are -------------------------------------------------------------------------------


def test_the_publisher_uses_the_gpu_it_was_told(pub):
    assert pub.info.device == cf.devices()[1].uuid
    slot = pub.acquire()
    assert slot.y.device.id == 1
    assert cp.cuda.runtime.getDevice() == 0  # the current device is as it was
    pub.discard(slot)


def test_everything_works_while_another_gpu_is_current(pub):
    rows = np.random.default_rng(2).integers(0, 256, (540, 640), np.uint8)
    with cp.cuda.Device(0), cf.subscribe("cam1") as sub:
        for source in (rows, cp.asarray(rows), np.full((360, 640, 3), 128, np.uint8)):
            assert pub.write(source)
            with sub.next(10) as frame:
                assert frame.device == "cuda:1"
                own, rgb = frame.copy(), frame.rgb()
                assert own.y.device.id == rgb.device.id == 1
                if source.ndim == 2:
                    assert (cp.asnumpy(frame.array) == rows).all()
                    assert (cp.asnumpy(own.y) == rows[:360]).all()
        assert cp.cuda.runtime.getDevice() == 0


@pytest.mark.parametrize("visible", VISIBLE)
def test_frames_are_read_where_they_are_or_it_is_told_why_not(holder, two, visible):
    env, shown = seen_by(visible, two)
    with child(read, env=env, seconds=SECONDS) as it:
        if two[holder] in shown:
            check_read(it.expect("read"), two[holder], "descriptor", [two[holder]])
            return
        refused = it.expect("refused")
    assert f"{two[holder]}, which is hidden from this process by CUDA_VISIBLE" in refused["error"]
    assert ("subscribe with peer=True" in refused["error"]) is bool(shown)
    assert (refused["contexts"], refused["memory"]) == ([], [])


def test_a_hidden_gpu_is_listed_with_what_hides_it(two):
    with child(look, env={"CUDA_VISIBLE_DEVICES": "0"}, seconds=SECONDS) as it:
        assert it.expect("devices")["found"] == [
            [0, two[0], ""], [None, two[1], "CUDA_VISIBLE_DEVICES='0'"],
        ]  # fmt: skip


def look(link):
    found = [[gpu.ordinal, gpu.uuid, gpu.hidden_by] for gpu in cf.devices()]
    link.say("devices", found=found[:2])


def test_another_gpu_than_the_frames_is_refused(pub):
    with pytest.raises(cf.DeviceError, match=r"is another one .*; or subscribe with peer=True"):
        cf.subscribe("cam1", device=0)


# --- Mapped into another --------------------------------------------------------------------------


@pytest.mark.parametrize("visible", VISIBLE)
def test_peer_mapping_without_a_wish_is_for_where_they_are_hidden(holder, two, reachable, visible):
    env, shown = seen_by(visible, two)
    with child(read, env=env, seconds=SECONDS, peer=True) as it:
        if not shown:
            assert "this process sees no GPU" in it.expect("refused")["error"]
        elif two[holder] in shown:
            check_read(it.expect("read"), two[holder], "descriptor", [two[holder]])
        else:
            check_read(it.expect("read"), shown[0], "peer", [shown[0]])


@pytest.mark.parametrize("visible", [None, "0,1", "1,0", "{0},{1}"])
def test_frames_are_mapped_into_the_gpu_that_was_asked_for(holder, two, reachable, visible):
    env, other = {}, two[1 - holder]
    if visible is not None:
        env, _ = seen_by(visible, two)
    with child(read, env=env, seconds=SECONDS, peer=True, device=other) as it:
        seen = it.expect("read")
        # The GPU that holds them gets no context, and no memory of this process.
        check_read(seen, other, "peer", [other])
        assert two[holder] in seen["reason"]


def test_a_gpu_is_not_asked_for_that_is_hidden(holder, two):
    env, _ = seen_by(f"{holder}", two)
    with child(read, env=env, seconds=SECONDS, peer=True, device=two[1 - holder]) as it:
        assert "is hidden from this process by CUDA_VISIBLE" in it.expect("refused")["error"]


def publish(link, device):
    """Publish frames until the parent has seen enough."""
    with cf.Publisher("cam1", width=1920, height=1080, memory="cuda", device=device) as publisher:
        link.say("ready")
        with activated(device):
            while not select.select([sys.stdin.buffer], [], [], 0.001)[0]:
                try:
                    slot = publisher.acquire()
                except cf.RingFullError:
                    continue
                pixels.fill(slot)
                publisher.publish(slot)


def follow(link, count, **wish):
    """Read frames while they are written as fast as can be; say how many bytes were wrong."""
    wrong = frames = 0
    with cf.subscribe("cam1", timeout=20, **wish) as subscriber:
        for frame in subscriber:
            with activated(int(frame.device.removeprefix("cuda:"))):
                wrong += pixels.wrong_pixels(frame)
            frames += 1
            if frames == count:
                break
        link.say(
            "done", wrong=wrong, sharing=subscriber.info.sharing, copied=subscriber.stats.copied
        )


@pytest.mark.parametrize("way", ["peer", "copied"])
def test_no_frame_is_torn_or_stale_on_another_gpu(two, reachable, way):
    """lifetime.md, 1."""
    wish = {"peer": True, "device": two[1]} if way == "peer" else {"copy_to": two[1]}
    with child(publish, 0, seconds=SECONDS) as publisher:
        publisher.expect("ready")
        with child(follow, 300, seconds=SECONDS, **wish) as reader:
            done = reader.expect("done")
    assert (done["wrong"], done["sharing"]) == (0, way)
    assert done["copied"] == (300 if way == "copied" else 0)


def hold(link, **wish):
    """Take a frame, and read it once more when its publisher is gone."""
    with cf.subscribe("cam1", timeout=20, **wish) as subscriber, subscriber.next(20) as frame:
        link.say("held")
        link.hear("look")
        with activated(int(frame.device.removeprefix("cuda:"))):
            link.say("seen", wrong=pixels.wrong_pixels(frame))


@pytest.mark.parametrize("way", ["peer", "copied"])
def test_a_frame_outlives_its_publisher_on_another_gpu(two, reachable, way):
    """lifetime.md, 6."""
    wish = {"peer": True, "device": two[1]} if way == "peer" else {"copy_to": two[1]}
    with child(publish, 0, seconds=SECONDS) as publisher:
        publisher.expect("ready")
        with child(hold, seconds=SECONDS, **wish) as reader:
            reader.expect("held")
            publisher.kill()
            reader.send("look")
            assert reader.expect("seen")["wrong"] == 0


def scribble(link, **wish):
    with (
        cf.subscribe("cam1", timeout=20, writable=True, **wish) as subscriber,
        subscriber.next(20) as frame,
        activated(int(frame.device.removeprefix("cuda:"))),
    ):
        frame.y[0, :8] = 201
        cp.cuda.get_current_stream().synchronize()
        link.say("written")


def test_what_is_written_through_a_peer_mapping_others_see(pub, two, reachable):
    """lifetime.md, 9: it has to be asked for."""
    with child(scribble, seconds=SECONDS, peer=True, device=two[0]) as it:
        it.expect("written")
        with cf.subscribe("cam1") as subscriber, subscriber.next(10) as frame, activated(1):
            assert cp.asnumpy(frame.y[0, :9]).tolist()[:8] == [201] * 8


# --- Copied to another ----------------------------------------------------------------------------


@pytest.mark.parametrize("visible", VISIBLE)
def test_frames_are_copied_to_the_gpu_that_was_asked_for(holder, two, visible):
    """Also where the two do not reach each other's memory."""
    env, shown = seen_by(visible, two)
    other = two[1 - holder]
    with child(read, env=env, seconds=SECONDS, copy_to=other) as it:
        if two[holder] not in shown:
            refused = it.expect("refused")["error"]
            assert f"{two[holder]}, which is hidden from this process" in refused
        elif other not in shown:
            refused = it.expect("refused")["error"]
            assert f"copy_to='{other}' is" in refused
            assert "which is hidden from this process" in refused
        else:
            check_read(it.expect("read"), other, "copied", [two[holder], other])


def test_frames_that_are_there_are_not_copied(holder, two):
    with child(read, seconds=SECONDS, copy_to=two[holder]) as it:
        check_read(it.expect("read"), two[holder], "descriptor", [two[holder]])


def test_a_slot_is_held_until_its_copy_is_made_and_no_longer(pub):
    """lifetime.md, 1."""
    with cf.subscribe("cam1", copy_to=0) as subscriber:
        stream = cp.cuda.Stream(non_blocking=True)
        with stream, subscriber.next(10) as frame:  # kernels are loaded, memory is in the pool
            assert pixels.wrong_pixels(frame) == 0
        stream.synchronize()
        publish_one(pub, 1)
        latch = pixels.Latch(stream)
        with stream:
            frame = subscriber.next(10)
            wrong = pixels.check(frame)
        assert frame.device == "cuda:0"
        assert pub.stats.slots_leased == 1
        latch.open()
        deadline = time.monotonic() + 20
        while pub.stats.slots_leased:
            assert time.monotonic() < deadline, "the slot does not come back"
            time.sleep(0.001)
        stream.synchronize()
        assert int(wrong[0]) == 0
