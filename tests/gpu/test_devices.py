"""Which GPU: NVML's words against CUDA's own, and ``CUDA_VISIBLE_DEVICES`` as a driver reads it."""

import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pynvml
import pytest

import cuframes_nb as cf
from cuframes_nb._core.visible_devices import read
from tests.helpers.children import child, child_env
from tests.helpers.commands import ran

pytestmark = [pytest.mark.gpu, pytest.mark.process]


@pytest.fixture
def uuids():
    """Return the machine's GPUs in the order of their PCI bus ids, by NVML's word."""
    pynvml.nvmlInit()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        yield [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


# --- What is told ---------------------------------------------------------------------------------


def test_nvml_and_cuda_tell_the_same(uuids):
    from cuda.bindings import driver

    found = cf.devices()
    assert {gpu.uuid for gpu in found} == set(uuids)
    for gpu in found:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        assert gpu.name == pynvml.nvmlDeviceGetName(handle)
        assert int(gpu.pci_bus_id.split(":")[1], 16) == pynvml.nvmlDeviceGetPciInfo(handle).bus
        assert 0 < gpu.free_bytes <= pynvml.nvmlDeviceGetMemoryInfo(handle).total
        assert list(gpu.compute_capability) == list(
            pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        )
        assert gpu.driver == pynvml.nvmlSystemGetDriverVersion()
        assert gpu.uuid not in gpu.peers
    for gpu in (gpu for gpu in found if gpu.ordinal is not None):
        device = driver.cuDeviceGet(gpu.ordinal)[1]
        assert gpu.total_bytes == int(driver.cuDeviceTotalMem(device)[1])
        assert gpu.uuid.replace("-", "")[3:] == bytes(driver.cuDeviceGetUuid(device)[1].bytes).hex()
        assert not gpu.hidden_by


def test_looking_again_opens_nothing(uuids):
    """The library keeps a descriptor from the first look on; after each test, others count."""
    for _ in range(10):
        assert {gpu.uuid for gpu in cf.devices()} == set(uuids)


def test_an_encoder_that_nvml_counts_none_of_is_not_told_of(uuids):
    for gpu in cf.devices():
        if gpu.encoders == 0:
            assert gpu.encodes == ()
        assert gpu.decoders is None or gpu.decoders >= 0


def look(link):
    """Look at everything there is to know of GPUs, then use one; tell who is on it meanwhile."""
    from cuda.bindings import driver

    from cuframes_nb._show.listings import DeviceTable

    pynvml.nvmlInit()
    chosen = cf.select_device()
    text = DeviceTable(cf.devices()).text()
    link.say("looked", here=on_gpus(), active=contexts(driver), told=chosen.uuid in text)
    with cf.Publisher("cam1", width=64, height=64, memory="cuda", device=chosen.uuid) as pub:
        link.say("used", here=on_gpus(), active=contexts(driver), ordinal=chosen.ordinal,
                 reason=pub.info.memory_reason)  # fmt: skip


def on_gpus():
    """Return how many bytes of each GPU NVML counts for this process."""
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        found += [
            process.usedGpuMemory
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if process.pid == os.getpid()
        ]
    return found


def contexts(driver):
    count = driver.cuDeviceGetCount()[1]
    return [
        ordinal
        for ordinal in range(count)
        if driver.cuDevicePrimaryCtxGetState(driver.cuDeviceGet(ordinal)[1])[2]
    ]


def test_looking_and_choosing_make_no_context_and_publishing_makes_one(uuids):
    with child(look, seconds=60) as it:
        seen = it.expect("looked")
        assert (seen["here"], seen["active"], seen["told"]) == ([], [], True)
        used = it.expect("used")
        assert used["active"] == [used["ordinal"]]
        assert len(used["here"]) == 1  # so the look before could have seen something
        assert used["here"][0] > 1 << 20
        assert "asked for" in used["reason"]


def test_a_choice_is_logged_and_shown(caplog):
    caplog.set_level(logging.INFO, "cuframes_nb")
    with cf.Publisher("cam1", width=64, height=64, memory="cuda") as pub:
        memory_reason = pub.info.memory_reason
    chosen = cf.select_device()
    assert chosen.reason in memory_reason
    assert f"{chosen.uuid} {chosen.pci_bus_id}: {chosen.reason}" in caplog.text


# --- CUDA_VISIBLE_DEVICES -------------------------------------------------------------------------

_ASK = """
from cuda.bindings import driver as d
status = d.cuInit(0)[0]
count = 0 if status else d.cuDeviceGetCount()[1]
print(int(status), *(bytes(d.cuDeviceGetUuid(d.cuDeviceGet(i)[1])[1].bytes).hex()
                     for i in range(count)))
"""


def asked(value):
    """Return what a driver that is started with the variable says: its status, and its GPUs."""
    run = subprocess.run(
        [sys.executable, "-c", _ASK], env=child_env(CUDA_VISIBLE_DEVICES=value), check=True,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    status, *found = run.stdout.split()
    return int(status), found


def test_it_is_read_as_the_driver_reads_it(uuids):
    """One GPU is enough for the grammar; with more, their order is CUDA's own."""
    uuid = uuids[0]
    past = len(uuids)
    values = [
        "0", "", "-1", f"{past}", f"0,{past}", "0,-1", f"{past},0", "0,0", "+0", "00", "-0", " 0",
        "0 ", "0abc", "0.5", "0;1", "0x0", "0,", ",0", "none", f"{uuid},0,0", uuid, uuid[:12],
        uuid[:5], "GPU-", uuid[4:], f" {uuid}", f"{uuid} ", f"{uuid}x", uuid.lower(),
        "GPU-" + uuid[4:].upper(), "MIG-" + uuid[4:], f"MIG-{uuid}/0/0", f"0,{uuid[:8]}",
        uuid[:12] + "x", uuid[:12] + uuid[13:17], uuid[:12] + "-zz", "0x1",
    ]  # fmt: skip
    if past > 1:
        pytest.skip("their order is CUDA's own")
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(values, pool.map(asked, values), strict=True))
    digits = [u[4:].replace("-", "") for u in uuids]
    wrong = {}
    for value, (status, found) in answers.items():
        reading = read(value, uuids)
        expected = [] if reading.repeats else [digits[place] for place in reading.order]
        if expected != found or (status == 0) != bool(expected):
            wrong[value] = (status, found, reading)
    assert wrong == {}


def attach(link):
    """Say what this process sees, and read a frame or tell why not."""
    found = [(gpu.ordinal, gpu.uuid, gpu.hidden_by) for gpu in cf.devices()]
    try:
        with cf.subscribe("cam1") as sub, sub.next(10) as frame:
            link.say("read", devices=found, device=frame.device, low=int(frame.y.min()))
    except cf.DeviceError as error:
        link.say("refused", devices=found, error=str(error))


@pytest.fixture
def pub():
    with cf.Publisher("cam1", width=64, height=64, memory="cuda") as publisher:
        with publisher.acquire() as slot:
            slot.y[:], slot.uv[:] = 77, 128
        yield publisher


@pytest.mark.parametrize("visible", ["{0}", "{uuid}", "{beginning}", "{0},77"])
def test_who_sees_the_gpu_reads(pub, visible):
    chosen = next(gpu for gpu in cf.devices() if gpu.uuid == pub.info.device)
    value = visible.format(chosen.ordinal, uuid=chosen.uuid, beginning=chosen.uuid[:12])
    with child(attach, env={"CUDA_VISIBLE_DEVICES": value}, seconds=60) as it:
        seen = it.expect("read")
        assert (seen["device"], seen["low"]) == ("cuda:0", 77)
        assert seen["devices"][0] == [0, chosen.uuid, ""]


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        ("", "CUDA_VISIBLE_DEVICES='': add it there"),
        ("77,0", "CUDA_VISIBLE_DEVICES='77,0', which ends at '77': that names no GPU here"),
        ("GPU-nothing", "which ends at 'GPU-nothing'"),
        ("0,0", "CUDA_VISIBLE_DEVICES='0,0', which names a GPU twice"),
    ],
)
def test_who_does_not_is_told_what_hides_it(pub, visible, words):
    with child(attach, env={"CUDA_VISIBLE_DEVICES": visible}, seconds=60) as it:
        seen = it.expect("refused")
        assert f"the frames are on GPU {pub.info.device}, which is hidden" in seen["error"]
        assert words in seen["error"]
        assert all(ordinal is None and by for ordinal, _, by in seen["devices"])


# --- The command ----------------------------------------------------------------------------------


def test_the_command_lists_them():
    code, out, err = ran("devices", "--json")
    assert (code, err) == (0, "")
    assert [gpu["uuid"] for gpu in json.loads(out)] == [gpu.uuid for gpu in cf.devices()]
    code, out, err = ran("devices")
    assert (code, err) == (0, "")
    assert "A publisher would use GPU" in out
    code, out, err = ran("devices", env={"CUDA_VISIBLE_DEVICES": ""})
    assert (code, err) == (0, "")
    assert "hidden from this process" in out
    assert "A publisher would use none of them" in out
