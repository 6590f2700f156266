"""Frames on a GPU that is not everybody's first: matched by UUID, never by ordinal."""

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers import gpu as pixels
from tests.helpers.children import child


@pytest.fixture
def pub():
    if sum(gpu.ordinal is not None for gpu in cf.devices()) < 2:
        pytest.skip("there are fewer than two GPUs")
    with cf.Publisher("cam1", width=640, height=360, memory="cuda", device=1) as publisher:
        with cp.cuda.Device(1):
            slot = publisher.acquire()
            pixels.fill(slot)
            publisher.publish(slot)
        yield publisher


def read(link):
    try:
        with cf.subscribe("cam1") as sub, sub.next(10) as frame:
            ordinal = int(frame.device.removeprefix("cuda:"))
            with cp.cuda.Device(ordinal):
                link.say("read", device=frame.device, wrong=pixels.wrong_pixels(frame))
            link.say("current", device=cp.cuda.runtime.getDevice())
    except cf.DeviceError as error:
        link.say("refused", error=str(error))


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


@pytest.mark.parametrize(("visible", "ordinal"), [(None, 1), ("0,1", 1), ("1,0", 0), ("1", 0)])
def test_a_subscriber_finds_it_under_any_numbering(pub, visible, ordinal):
    with child(read, env={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) as c:
        seen = c.expect("read", seconds=60)
        assert seen["device"] == f"cuda:{ordinal}"
        assert seen["wrong"] == 0
        assert c.expect("current")["device"] == 0


@pytest.mark.parametrize("visible", ["0", ""])
def test_a_subscriber_that_does_not_see_it_is_told(pub, visible):
    with child(read, env={"CUDA_VISIBLE_DEVICES": visible}) as c:
        assert "CUDA_VISIBLE_DEVICES" in c.expect("refused", seconds=60)["error"]


def test_another_gpu_than_the_frames_is_refused(pub):
    with pytest.raises(cf.DeviceError, match="is another one"):
        cf.subscribe("cam1", device=0)
