"""Semaphores of a driver that does not share them: the CPU waits, and says so."""

import threading

import pytest

import cuframes_nb as cf
from tests.helpers.vulkan import fill_and_signal, lavapipe, make

pytestmark = pytest.mark.foreign_fds("Mesa's driver opens what it needs")


@pytest.fixture(scope="module")
def bridge():
    with lavapipe():
        from cuframes_nb.bridges import vulkan

        yield vulkan


@pytest.fixture
def device(bridge):
    with bridge.Device.open() as device:
        yield device


def test_after_returns_when_the_work_is_done(bridge, device):
    import vulkan as vk

    with (
        make(device, "buffer", "gray8", (640, 480)) as one,
        make(device, "buffer", "gray8", (640, 480)) as two,
        cf.Publisher(
            "vk", width=640, height=480, format="gray8", ownership="external", buffers=[one, two]
        ) as pub,
        cf.subscribe("vk", timeout=10) as sub,
        bridge.Semaphore(device) as semaphore,
    ):
        assert semaphore.how.startswith("the CPU waits: ")
        assert "Semaphore.after" in pub.info.completion_reason
        for count in range(1, 6):
            index = pub.wait_free(timeout=10)
            pool = fill_and_signal(device, pub.buffers[index], count, semaphore, count)
            pub.publish_buffer(index, stream=semaphore.after(count))
            with sub.next(timeout=10) as frame:
                assert frame.y.min() == frame.y.max() == count
            vk.vkDestroyCommandPool(device.handle, pool, None)


def test_after_waits_for_what_is_signalled_later(bridge, device):
    import vulkan as vk

    with bridge.Semaphore(device) as semaphore:
        signal = vk.VkSemaphoreSignalInfo(semaphore=semaphore.handle, value=3)
        timer = threading.Timer(0.1, vk.vkSignalSemaphore, (device.handle, signal))
        timer.start()
        assert semaphore.after(3) is None
        timer.join()
        assert vk.vkGetSemaphoreCounterValue(device.handle, semaphore.handle) == 3


def test_a_semaphore_that_nobody_signals_is_an_error(bridge, device, monkeypatch):
    from cuframes_nb.bridges.vulkan import semaphores

    monkeypatch.setattr(semaphores, "_SECONDS", 0.05)
    with (
        bridge.Semaphore(device) as semaphore,
        pytest.raises(cf.DeviceError, match="did not come to 1 within"),
    ):
        semaphore.after(1)


def test_a_program_s_own_semaphore_stays_its_own(bridge, device):
    import vulkan as vk

    with bridge.Semaphore(device) as made:
        with bridge.Semaphore(device, made.handle) as theirs:
            assert theirs.handle == made.handle
        vk.vkSignalSemaphore(
            device.handle, vk.VkSemaphoreSignalInfo(semaphore=made.handle, value=1)
        )
        assert made.after(1) is None


def test_a_binary_semaphore_needs_a_gpu(bridge, device):
    with pytest.raises(cf.UnsupportedError, match="use a timeline semaphore"):
        bridge.Semaphore(device, timeline=False)


@pytest.mark.parametrize("value", [0, -1])
def test_values_that_are_reached_already_are_refused(bridge, device, value):
    with (
        bridge.Semaphore(device) as semaphore,
        pytest.raises(cf.InvalidArgumentError, match="waited for"),
    ):
        semaphore.after(value)
