"""What the doctor says of GPUs that are not here, and of drivers that promise too much."""

import contextlib
import types

import pynvml
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda import completion, ipc, vmm
from cuframes_nb._cuda import devices as cuda_devices
from cuframes_nb._doctor import gpu_trials, gpus
from cuframes_nb._doctor.checks import Status
from tests.helpers import fake_nvml

UUID = "GPU-11111111-1111-1111-1111-111111111111"
H200 = cf.DeviceInfo(0, "NVIDIA H200", UUID, "0000:01:00.0", 140 << 30, (9, 0), False, True)
OTHER = cf.DeviceInfo(
    None, "NVIDIA H200", UUID.replace("1", "2"), "0000:02:00.0", 140 << 30, (9, 0), None, None,
    hidden_by="something",
)  # fmt: skip


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Have one visible GPU on which all goes well."""

    def device_count():
        if fake.failure is not None:
            raise fake.failure
        return sum(device.ordinal is not None for device in fake.devices)

    def share(memory, ordinal):
        assert (memory, ordinal) == ("cuda", 0)
        if fake.refused is not None:
            raise fake.refused
        return types.SimpleNamespace(completion=fake.completion), "as it is"

    fake = types.SimpleNamespace(
        devices=[H200], failure=None, refused=None, completion="gpu", cuda="13.0", bindings="13.5.0"
    )
    monkeypatch.setattr(gpus, "devices", lambda: fake.devices)
    monkeypatch.setattr(cuda_devices, "device_count", device_count)
    monkeypatch.setattr(cuda_devices, "cuda_version", lambda: fake.cuda)
    monkeypatch.setattr(gpus, "kernel_driver", lambda: "580.95.05")
    monkeypatch.setattr(gpus, "_bindings_version", lambda: fake.bindings)
    monkeypatch.setattr(gpus, "share", share)
    monkeypatch.setattr(gpus, "TRIALS", ())
    for name in ("CUDA_VISIBLE_DEVICES", "CUFRAMES_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    fake_nvml.install(monkeypatch, [])
    return fake


def looked():
    checks = list(gpus.look_at_gpus())
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def test_a_machine_where_all_is_well(machine):
    checks = looked()
    assert list(checks) == ["driver", "NVML", "GPU 0"]
    assert checks["driver"].found == "CUDA 13.0, driver 580.95.05, 1 to be seen here"
    assert [checks[name].status for name in ("driver", "NVML", "GPU 0")] == [Status.OK] * 3
    machine.completion = "host"
    assert looked()["GPU 0"].status is Status.WARN


def test_a_driver_that_is_older_than_the_bindings(machine):
    machine.cuda = "12.2"
    check = looked()["driver"]
    assert check.status is Status.WARN
    assert "CUDA 12.2" in check.found
    assert "bindings 13.5.0 are for a newer one" in check.found
    assert "cuframes-nb[cuda12]" in check.advice
    machine.bindings = "12.9.4"
    assert looked()["driver"].status is Status.OK


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "start the machine again"),
        ("CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        ("CUDA_ERROR_STUB_LIBRARY", "LD_LIBRARY_PATH"),
        ("CUDA_ERROR_OUT_OF_MEMORY", "unused"),
    ],
)
def test_a_driver_that_does_not_start(machine, monkeypatch, name, advice):
    machine.failure, machine.devices = cf.CudaError("cuInit", 1, name), [OTHER]
    monkeypatch.setattr(gpus, "_on_machine", lambda: True)
    checks = looked()
    assert checks["driver"].status is Status.FAILED
    assert name in checks["driver"].found
    assert advice in checks["driver"].advice
    assert checks["GPU at 0000:02:00.0"].found.endswith("is hidden by something")


def test_a_machine_without_a_gpu(machine, monkeypatch):
    machine.failure, machine.devices = cf.DeviceError("there is no CUDA driver"), []
    monkeypatch.setattr(gpus, "_on_machine", lambda: False)
    monkeypatch.setattr(gpus, "kernel_driver", lambda: "")
    fake_nvml.refuse(monkeypatch, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    (check,) = gpus.look_at_gpus()
    assert (check.status, check.needed) == (Status.MISSING, False)
    assert "nothing, if this machine has no NVIDIA GPU" in check.advice


def test_a_management_library_that_is_of_another_version(machine, monkeypatch):
    fake_nvml.refuse(monkeypatch, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    check = looked()["NVML"]
    assert check.status is Status.MISSING
    assert "different versions" in check.found


@pytest.mark.parametrize(
    ("value", "status", "words"),
    [
        ("0", Status.OK, "'0' shows 1 of 2"),
        ("0,9,1", Status.WARN, "ends at '9'"),
        ("0,0", Status.FAILED, "names a GPU twice"),
    ],
)
def test_what_the_variable_comes_to(machine, monkeypatch, value, status, words):
    machine.devices = [H200, OTHER]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    check = looked()["$CUDA_VISIBLE_DEVICES"]
    assert (check.status, words in check.found) == (status, True)


def test_a_gpu_through_which_no_frame_comes(machine):
    machine.refused = cf.UnsupportedError("GPU cannot share memory as descriptors")
    check = looked()["GPU 0"]
    assert (check.status, check.advice) == (Status.FAILED, "memory='host' works without")


def test_a_trial_that_raises_takes_no_other_with_it(machine, monkeypatch):
    def fail(_):
        raise ZeroDivisionError("oh")

    well = (Status.OK, "well", "")
    monkeypatch.setattr(gpus, "TRIALS", (("first", fail), ("second", lambda _: well)))
    checks = looked()
    assert checks["GPU 0 first"].found == "ZeroDivisionError: oh"
    assert checks["GPU 0 second"].status is Status.OK


def test_the_one_that_is_chosen(machine, monkeypatch):
    monkeypatch.setenv("CUFRAMES_DEVICE", "GPU-9")

    def refuse(_):
        raise cf.DeviceError("there is no GPU GPU-9")

    monkeypatch.setattr(cuda_devices, "select", refuse)
    assert looked()["$CUFRAMES_DEVICE"].status is Status.FAILED


# --- Single trials --------------------------------------------------------------------------------


def refuse_with(name):
    def refuse(*_):
        raise cf.CudaError("cuMemCreate", 801, name)

    return refuse


@pytest.mark.parametrize(
    ("promised", "words"), [(True, "the driver says that it can, and it cannot"), (False, "as it")]
)
def test_a_driver_that_promises_what_it_cannot(monkeypatch, promised, words):
    """As under WSL 2: the attribute says yes, the call says no."""
    monkeypatch.setattr(vmm.Allocation, "create", refuse_with("CUDA_ERROR_NOT_SUPPORTED"))
    monkeypatch.setattr(cuda_devices, "gpu", lambda _: types.SimpleNamespace(can_share=promised))
    status, found, advice = gpu_trials._descriptors(0)
    assert status is Status.FAILED
    assert found.startswith(words)
    assert "CUDA_ERROR_NOT_SUPPORTED" in found
    assert "memory='host'" in advice


def test_completion_that_no_gpu_writes(monkeypatch):
    def refuse(*_):
        raise cf.UnsupportedError("the GPU cannot write to shared memory: not permitted")

    monkeypatch.setattr(completion, "RegisteredWords", refuse)
    status, found, _ = gpu_trials._completion(0)
    assert status is Status.WARN
    assert "not permitted" in found


def test_handles_that_nobody_opens(monkeypatch):
    freed = []
    calls = {"cuMemAlloc": 4096, "cuMemFree": None, "cuMemsetD32": None, "cuCtxSynchronize": None}
    monkeypatch.setattr(
        "cuframes_nb._cuda.driver.call",
        lambda name, *_: freed.append(name) or calls[name],
    )
    monkeypatch.setattr(cuda_devices, "activated", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(ipc, "handle_of", lambda *_: bytes(64))
    # The real process, on a machine without a GPU: it says why it opened nothing.
    status, found, advice = gpu_trials._handles(0)
    assert status is Status.MISSING
    assert found
    assert "Traceback" not in found
    assert "frames go by descriptors" in advice
    assert freed[-1] == "cuMemFree"


def test_others_are_told_by_the_drivers_word(monkeypatch):
    others = [types.SimpleNamespace(ordinal=i, uuid_text=f"GPU-{i}") for i in range(3)]
    monkeypatch.setattr(cuda_devices, "gpus", lambda: others)
    monkeypatch.setattr(cuda_devices, "peers", lambda _: ("GPU-2",))
    assert "not tried: GPU 1: no, GPU 2: yes" in gpu_trials._peers(0)[1]
    del others[1:]
    assert gpu_trials._peers(0)[1] == "there is no other GPU to reach"


def test_a_gpu_that_vulkan_does_not_open(monkeypatch):
    from cuframes_nb._vulkan.device import Device

    def refuse(uuid):
        assert uuid == bytes(16)
        raise cf.DeviceError("no Vulkan device has that UUID")

    monkeypatch.setattr(cuda_devices, "gpu", lambda _: types.SimpleNamespace(uuid=bytes(16)))
    monkeypatch.setattr(Device, "open", refuse)
    assert gpu_trials._vulkan(0)[:2] == (Status.MISSING, "no Vulkan device has that UUID")
    device = types.SimpleNamespace(name="It", close=lambda: None)
    monkeypatch.setattr(Device, "open", lambda _: device)
    assert gpu_trials._vulkan(0)[0] is Status.OK
