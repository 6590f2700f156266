"""What is made of the words of NVML and CUDA on machines that are not here."""

import logging
import sys
import types

import pynvml
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda import devices as cuda_devices
from cuframes_nb._cuda import hidden as hiding
from cuframes_nb._cuda import nvml
from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._show.listings import DeviceTable
from tests.helpers import fake_nvml
from tests.helpers.fake_nvml import Board, Part

GIB = 1 << 30
ENGINES = types.SimpleNamespace(encoderCount=0, decoderCount=7, jpegCount=7)


def uuid_of(digit):
    return f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}"


def server(digit, **rest):
    """Return a GPU of a data centre, as NVML tells of an H200."""
    facts = {
        "total": 140 * GIB, "free": 139 * GIB, "bus_type": 2, "mig": 0, "display": 0,
        "capability": (9, 0), "slices4": ENGINES, "encodes0": 100, "encodes1": 100,
    }  # fmt: skip
    return Board("NVIDIA H200", uuid_of(digit), f"0000:0{digit}:00.0", **{**facts, **rest})


def shown(ordinal, board, *, name="", uuid="", **rest):
    """Return a GPU as CUDA shows it."""
    digits = (uuid or board.uuid)[4:].replace("-", "")
    facts = {"total_bytes": 139 * GIB, "compute_capability": (9, 0), "integrated": False}
    return Gpu(
        ordinal, name or board.name, bytes.fromhex(digits), board.bus,
        **{**facts, "can_share": True, **rest},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """Have a machine: what CUDA shows (`visible`, or its `failure`), and a silent kernel."""

    def gpus():
        if fake.failure is not None:
            raise fake.failure
        return fake.visible

    fake = types.SimpleNamespace(visible=[], failure=None, proc=tmp_path / "gpus")
    monkeypatch.setattr(cuda_devices, "gpus", gpus)
    monkeypatch.setattr(cuda_devices, "gpu", lambda ordinal: fake.visible[ordinal])
    monkeypatch.setattr(cuda_devices, "cuda_version", lambda: "13.0")
    monkeypatch.setattr(cuda_devices, "peers", lambda _: ())
    monkeypatch.setattr(hiding, "_PROC", fake.proc)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUFRAMES_DEVICE", raising=False)
    fake_nvml.refuse(monkeypatch, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    return fake


def no_device():
    failure = cf.DeviceError("the CUDA driver sees no GPU")
    failure.__cause__ = cf.CudaError("cuInit", 100, "CUDA_ERROR_NO_DEVICE")
    return failure


# --- What NVML tells ------------------------------------------------------------------------------


def test_all_of_a_server_is_told(machine, monkeypatch):
    one, two = server("1"), server("2", mig=0)
    one.links, two.links = {two.uuid: (0, 1, 2)}, {one.uuid: (0, 1)}
    machine.visible = [shown(0, two), shown(1, one)]
    calls = fake_nvml.install(monkeypatch, [one, two])
    first, second = cf.devices()
    assert calls == ["init", "shutdown"]
    assert (first.ordinal, first.uuid, first.pci_bus_id) == (0, two.uuid, "0000:02:00.0")
    assert (first.total_bytes, first.free_bytes) == (139 * GIB, 139 * GIB)
    assert (first.hidden_by, first.parent, first.instances, first.display) == ("", "", (), False)
    assert (first.encodes, first.encoders, first.decoders, first.jpeg_decoders) == ((), 0, 7, 7)
    assert (first.peers, first.nvlink_peers) == ((one.uuid,), ())
    assert (second.peers, second.nvlink_peers) == ((two.uuid,), (two.uuid,))
    assert (first.driver, first.cuda, first.compute_capability) == ("580.95.05", "13.0", (9, 0))


def test_a_gpu_of_a_desktop_counts_no_engines_but_names_codecs(machine, monkeypatch):
    desktop = Board("GeForce", uuid_of("1"), "0000:01:00.0", total=8 * GIB, free=GIB, display=1,
                    capability=(8, 6), encodes0=100, encodes1=100)  # fmt: skip
    machine.visible = [shown(0, desktop)]
    fake_nvml.install(monkeypatch, [desktop])
    (told,) = cf.devices()
    assert (told.encodes, told.encoders, told.decoders) == (("h264", "hevc"), None, None)
    assert told.display is True


def test_what_nobody_tells_is_none(machine, monkeypatch):
    """As under WSL 2, where most of what one may ask is not supported."""
    silent = Board("Silent", uuid_of("1"), "0000:01:00.0")
    machine.visible = [shown(0, silent, integrated=True)]
    fake_nvml.install(monkeypatch, [silent])
    (told,) = cf.devices()
    assert (told.free_bytes, told.display, told.encodes, told.decoders) == (None,) * 4
    assert (told.total_bytes, told.integrated, told.peers) == (139 * GIB, True, ())


def test_a_lost_gpu_is_warned_of_and_takes_no_other_with_it(machine, monkeypatch, caplog):
    fake_nvml.install(monkeypatch, [server("1", lost=True), server("2")])
    machine.failure = no_device()
    assert [told.uuid for told in cf.devices()] == [uuid_of("2")]
    assert "GPU number 0 does not answer: GPU is lost" in caplog.text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "start the machine (or the container) again"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidia*"),
        (pynvml.NVML_ERROR_UNKNOWN, "does not start: Unknown Error"),
    ],
)
def test_why_nvml_does_not_start(error, words, monkeypatch):
    fake_nvml.refuse(monkeypatch, error)
    with pytest.raises(cf.DeviceError) as raised:
        nvml.look()
    assert words in str(raised.value)


def test_without_the_package_that_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(cf.DeviceError, match="pip install nvidia-ml-py"):
        nvml.look()


# --- What is hidden -------------------------------------------------------------------------------


def test_hidden_gpus_come_last_with_what_hides_them(machine, monkeypatch):
    one, two = server("1"), server("2")
    fake_nvml.install(monkeypatch, [one, two])
    machine.visible = [shown(0, two)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    seen, hidden = cf.devices()
    assert (seen.ordinal, hidden.ordinal, hidden.uuid) == (0, None, one.uuid)
    assert hidden.hidden_by == "CUDA_VISIBLE_DEVICES='1'"
    assert (hidden.compute_capability, hidden.decoders, hidden.can_share) == ((9, 0), 7, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,x,0")
    assert "which ends at 'x'" in cf.devices()[1].hidden_by


def test_all_hidden(machine, monkeypatch):
    fake_nvml.install(monkeypatch, [server("1")])
    machine.failure = no_device()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (told,) = cf.devices()
    assert (told.ordinal, told.hidden_by) == (None, "CUDA_VISIBLE_DEVICES=''")
    with pytest.raises(cf.DeviceError, match="CUDA_VISIBLE_DEVICES='': add it there, or unset"):
        cf.select_device()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(
        cf.DeviceError, match="driver, which does not show it: 'cuframes-nb doctor'"
    ):
        cf.select_device()


def test_a_driver_that_does_not_start_is_told(machine, monkeypatch):
    machine.failure = cf.CudaError("cuInit", 999, "CUDA_ERROR_UNKNOWN")
    with pytest.raises(cf.CudaError, match="CUDA_ERROR_UNKNOWN"):  # there is nothing else to tell
        cf.select_device()
    fake_nvml.install(monkeypatch, [server("1")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(cf.DeviceError, match=r"does not start \(cuInit failed with CUDA_ERROR_UNK"):
        cf.select_device()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    with pytest.raises(cf.DeviceError, match="which names a GPU twice: name each GPU once"):
        cf.select_device()


def test_without_bindings_gpus_are_listed_and_none_is_chosen(machine, monkeypatch):
    fake_nvml.install(monkeypatch, [server("1")])
    machine.failure = cf.DeviceError("the CUDA bindings for Python are not installed")
    (told,) = cf.devices()
    assert told.hidden_by.startswith("CUDA, which cannot be asked: the CUDA bindings for Python")
    with pytest.raises(cf.DeviceError, match=r"^the CUDA bindings"):
        cf.select_device()


def test_a_gpu_that_mig_divides(machine, monkeypatch):
    parts = [Part(name="NVIDIA H200 MIG 1g.18gb", uuid=uuid_of(d).replace("GPU", "MIG"),
                  total=17 * GIB, free=16 * GIB) for d in "ab"]  # fmt: skip
    whole = server("1", mig=1)
    whole.parts = parts
    fake_nvml.install(monkeypatch, [whole])
    machine.visible = [shown(0, whole, name=parts[0].name, uuid=parts[0].uuid)]
    first, gpu, second = cf.devices()
    assert (first.uuid, first.parent, first.free_bytes) == (parts[0].uuid, whole.uuid, 16 * GIB)
    assert (gpu.uuid, gpu.instances) == (whole.uuid, (parts[0].uuid, parts[1].uuid))
    assert gpu.hidden_by == "MIG, which divides it"
    assert (second.uuid, second.parent) == (parts[1].uuid, whole.uuid)
    assert "does not show every MIG instance" in second.hidden_by
    assert cf.select_device().uuid == first.uuid
    with pytest.raises(cf.DeviceError, match="with CUDA_VISIBLE_DEVICES=MIG-bbbb"):
        cf.select_device("MIG-bbbb")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", first.uuid)
    assert cf.devices()[2].hidden_by == f"CUDA_VISIBLE_DEVICES={first.uuid!r}"


def test_without_nvml_the_kernels_driver_tells(machine, monkeypatch):
    for digit in "12":
        path = machine.proc / f"0000:0{digit}:00.0"
        path.mkdir(parents=True)
        (path / "information").write_text(
            f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\nGPU UUID: \t {uuid_of(digit)}\n"
        )
    machine.visible = [shown(0, server("2"))]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    seen, hidden = cf.devices()
    assert (seen.free_bytes, seen.cuda, seen.can_share) == (None, "13.0", True)
    assert (hidden.name, hidden.uuid, hidden.total_bytes) == ("NVIDIA H200", uuid_of("1"), 0)
    assert hidden.hidden_by == "CUDA_VISIBLE_DEVICES='1'"
    assert (hidden.integrated, hidden.compute_capability) == (None, (0, 0))


def test_where_nobody_tells_of_hidden_ones_the_error_says_both(machine, monkeypatch):
    machine.visible = [shown(0, server("2"))]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len(cf.devices()) == 1
    words = "hidden from this process by CUDA_VISIBLE_DEVICES='1', or not on this machine"
    with pytest.raises(cf.DeviceError, match=words):
        cf.select_device(frames_on=uuid_of("1"))


def test_no_gpu_at_all(machine):
    machine.failure = cf.DeviceError("there is no CUDA driver on this machine")
    assert cf.devices() == []
    with pytest.raises(cf.DeviceError, match="there is no CUDA driver"):
        cf.select_device()


# --- The choice -----------------------------------------------------------------------------------


def test_a_choice_is_told_with_its_reason_and_logged(machine, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "cuframes_nb")
    one, two = server("1"), server("2")
    machine.visible = [shown(0, one), shown(1, two)]
    chosen = cf.select_device()
    assert (chosen.ordinal, chosen.reason) == (
        0, "the discrete GPU with the most memory, the first of 2 such",
    )  # fmt: skip
    assert f"GPU 0 NVIDIA H200 {one.uuid} {one.bus}: the discrete GPU with" in caplog.text
    assert cf.select_device("GPU-2").reason == "asked for"
    monkeypatch.setenv("CUFRAMES_DEVICE", "02:00")
    assert (cf.select_device().ordinal, cf.select_device().reason) == (1, "$CUFRAMES_DEVICE")
    chosen = cf.select_device(frames_on=one.uuid)
    assert (chosen.ordinal, chosen.reason) == (0, "the frames are on NVIDIA H200")
    assert "$CUFRAMES_DEVICE" in caplog.text
    with pytest.raises(cf.DeviceError, match="device=1 is another one"):
        cf.select_device(1, frames_on=one.uuid)
    chosen = cf.select_device(1, frames_on=one.uuid, peer=True)
    assert (chosen.uuid, chosen.reason) == (
        two.uuid, f"asked for, to read frames that are on NVIDIA H200 ({one.uuid})",
    )  # fmt: skip
    assert cf.select_device(frames_on=one.uuid, peer=True).uuid == one.uuid
    assert cuda_devices.find_by_uuid(machine.visible[1].uuid) is machine.visible[1]


def test_while_one_fits_nobody_asks_for_hidden_ones(machine, monkeypatch):
    machine.visible = [shown(0, server("1"))]
    monkeypatch.setattr(cuda_devices, "unseen", lambda *_: pytest.fail("asked"))
    assert cuda_devices.select(0)[0].ordinal == 0


# --- How it is shown ------------------------------------------------------------------------------


def test_the_tables(machine, monkeypatch):
    one, two = server("1"), server("2", display=1)
    one.links = {two.uuid: (0, 1, 2)}
    fake_nvml.install(monkeypatch, [one, two])
    machine.visible = [shown(0, one)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    text = DeviceTable(cf.devices()).text()
    assert "1 GPU, driver 580.95.05, CUDA 13.0" in text
    assert f"0  {one.uuid}  0000:01:00.0" in text
    assert f"7 for video, 7 for JPEG  {two.uuid} by NVLink" in text
    assert "1 GPU hidden from this process" in text
    assert "0000:02:00.0  CUDA_VISIBLE_DEVICES='0'" in text
    assert all(len(line) <= 80 for line in DeviceTable(cf.devices()).text(80).splitlines())
    page = DeviceTable(cf.devices())._repr_html_()
    assert page.count("<table>") == 4
    assert "&#x27;0&#x27;" in page
