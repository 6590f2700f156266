"""What is said where Vulkan is not installed, and which GPU is chosen where there are several."""

import pickle
import sys

import pytest

from cuframes_nb._vulkan import calls, device
from cuframes_nb._vulkan.device import PhysicalDevice
from cuframes_nb.errors import DeviceError, UnsupportedError


@pytest.fixture
def forgotten():
    """Have the bindings be imported anew, and forget what came of it."""
    calls.vulkan.cache_clear()
    yield
    calls.vulkan.cache_clear()


class _NoLoader:
    """A finder that fails as the bindings do where no loader is."""

    def find_spec(self, name, path=None, target=None):
        if name == "vulkan":
            raise OSError("Cannot find Vulkan SDK version.")


def test_missing_bindings_are_named(forgotten, monkeypatch):
    monkeypatch.setitem(sys.modules, "vulkan", None)
    with pytest.raises(UnsupportedError, match=r"install 'cuframes-nb\[vulkan\]'"):
        calls.vulkan()


def test_a_missing_loader_is_named(forgotten, monkeypatch):
    monkeypatch.delitem(sys.modules, "vulkan", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NoLoader(), *sys.meta_path])
    with pytest.raises(UnsupportedError, match=r"libvulkan\.so\.1.*apt install libvulkan1"):
        calls.vulkan()


def test_a_lost_device_says_what_to_do():
    error = calls.VulkanError("vkQueueSubmit", "VkErrorDeviceLost")
    assert isinstance(error, DeviceError)
    assert "begin again with a new device and a new publisher" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.call, again.result, str(again)) == (error.call, error.result, str(error))


def physical(number, *, software=False, driver=1):
    return PhysicalDevice(
        None, f"device {number}", bytes([number] * 16), bytes([driver] * 16), software,
        not software, (1,), frozenset(),
    )  # fmt: skip


CPU, ONE, TWO = physical(9, software=True), physical(1), physical(2)


@pytest.mark.parametrize(
    ("uuid", "driver", "chosen"),
    [
        (None, None, ONE),
        (TWO.uuid, None, TWO),
        ("GPU-02020202-0202-0202-0202-020202020202", None, TWO),
        (CPU.uuid, CPU.driver_uuid, CPU),
    ],
)
def test_a_device_is_found(uuid, driver, chosen):
    assert device._choose([CPU, ONE, TWO], uuid, driver) is chosen


def test_a_cpu_is_taken_where_there_is_no_gpu():
    assert device._choose([CPU], None, None) is CPU


@pytest.mark.parametrize(
    ("found", "uuid", "driver", "says"),
    [
        ([], None, None, "install a driver"),
        (
            [ONE, CPU],
            TWO.uuid,
            None,
            "no Vulkan device GPU-0202.*here: device 1 GPU-0101.*device 9",
        ),
        ([ONE], ONE.uuid, bytes(16), "of the same driver and version here: device 1"),
        ([], TWO.uuid, None, "here: none"),
    ],
)
def test_what_is_not_here_is_named(found, uuid, driver, says):
    with pytest.raises(DeviceError, match=says):
        device._choose(found, uuid, driver)
