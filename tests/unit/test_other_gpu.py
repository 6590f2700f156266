"""Frames of another GPU, with a driver that keeps the books: mapped into a GPU, or copied to it."""

import gc
import os
import sys
import types

import pynvml
import pytest

import cuframes_nb as cf
from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._cuda import devices
from cuframes_nb._cuda import hidden as hiding
from cuframes_nb._cuda.vmm import Allocation
from cuframes_nb._memory.arena import Part
from cuframes_nb._memory.vmm import Home, VmmArena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime import other_gpu, select
from cuframes_nb._views.peers import PeerPlanes
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import RemoteProtocolError
from cuframes_nb.formats import FrameLayout
from tests.helpers import fake_cuda, fake_nvml
from tests.helpers.fake_cuda import GRANULE, READ, READ_WRITE, Gpu

A, B, LONELY = Gpu("a", reaches="b"), Gpu("b", reaches="a"), Gpu("c")
NOTHING = (0, {}, [])


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Return what starts the driver of a process that sees some of three GPUs.

    After the test nothing is held, and there is a context only where a test said so.
    """
    drivers = []

    def see(*visible, contexts=()):
        drivers.append((fake_cuda.install(monkeypatch, visible), contexts))
        return drivers[-1][0]

    boards = [fake_nvml.Board(g.name, g.uuid_text, f"0000:0{g.digit}:00.0") for g in (A, B, LONELY)]
    boards[0].links, boards[1].links = {B.uuid_text: (0, 1, 2)}, {A.uuid_text: (0, 1)}
    fake_nvml.install(monkeypatch, boards)
    monkeypatch.setattr(hiding, "_PROC", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "some")
    monkeypatch.delenv("CUFRAMES_DEVICE", raising=False)
    yield see
    gc.collect()
    for driver, contexts in drivers:
        assert driver.books() == NOTHING
        assert driver.contexts == set(contexts)
        assert driver.stack == []
    monkeypatch.undo()
    fake_cuda.forget()


@pytest.fixture(autouse=True)
def without_cupy(monkeypatch):
    """Stand in for the modules that import CuPy."""
    leases = types.ModuleType("stream_leases")
    leases.releaser = lambda ordinal: types.SimpleNamespace(ordinal=ordinal)
    leases.StreamLease = lambda releaser, *_: releaser.ordinal
    views = types.ModuleType("cuda")
    views.CudaPlanes = Planes
    for name, module in (("_runtime.stream_leases", leases), ("_views.cuda", views)):
        full = f"cuframes_nb.{name}"
        monkeypatch.setitem(sys.modules, full, module)
        parent, _, attribute = full.rpartition(".")
        monkeypatch.setattr(sys.modules[parent], attribute, module, raising=False)
    monkeypatch.setattr(other_gpu, "require_cupy", lambda: None)
    monkeypatch.setattr("cuframes_nb._runtime.cuda_backend.require_cupy", lambda: None)


class Planes:
    """Planes at an address, as far as they need no arrays."""

    def __init__(self, address, layout, ordinal, *, leased):
        assert leased
        first, last = layout.planes[0], layout.planes[-1]
        places = (address + first.offset, address + last.offset, first.pitch, last.pitch)
        self._on_gpu = GpuPlanes(ordinal, places)

    def on_gpu(self):
        return self._on_gpu


def sent(driver, gpu, nbytes=GRANULE):
    """Return an allocation of another process on `gpu`, as it came, and its content."""
    fd, data = driver.make(gpu, nbytes)
    description = ArenaDescription(MemoryKind.CUDA_VMM, nbytes, device_uuid=gpu.uuid)
    return Part(description, OwnedFd(fd)), data


def is_closed(part):
    return part.fd.closed


# --- Mapped ---------------------------------------------------------------------------------------

CASES = {
    "both": ((A, B), 1, Home(A.uuid, 0)),
    "the other way round": ((B, A), 0, Home(A.uuid, 1)),
    "its holder hidden": ((B,), 0, Home(A.uuid, None)),
    "its own": ((B, A), 1, Home(A.uuid, 1)),
}


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_memory_is_mapped_for_the_gpu_that_reads_and_no_other(process, case, writable):
    visible, reader, home = CASES[case]
    driver = process(*visible, contexts=[reader])
    part, data = sent(driver, A)
    data[:4] = b"abcd"
    arena = VmmArena.attach([part], devices.gpu(reader), writable=writable, home=home)
    assert (arena.device, arena.describe().device_uuid) == (reader, A.uuid)
    assert driver.read(arena.address, 4, reader) == b"abcd"
    assert driver.access[arena.address] == {reader: READ_WRITE if writable else READ}
    assert driver.calls() == [
        (name, reader)
        for name in (
            "cuMemGetAllocationGranularity", "cuMemImportFromShareableHandle",
            "cuMemGetAllocationPropertiesFromHandle", "cuMemAddressReserve", "cuMemMap",
            "cuMemSetAccess", "cuMemRelease",
        )
    ]  # fmt: skip
    # What no other interface of that GPU can import is not kept for it.
    assert is_closed(part) is (case != "its own")
    arena.close()
    assert is_closed(part)
    assert driver.books()[1:] == ({arena.address: GRANULE}, [arena.address])


def test_several_allocations_are_mapped_behind_each_other(process):
    driver = process(B, contexts=[0])
    parts, contents = zip(*[sent(driver, A, size * GRANULE) for size in (1, 2)], strict=True)
    contents[1][:2] = b"hi"
    arena = VmmArena.attach(parts, devices.gpu(0), home=Home(A.uuid, None))
    assert driver.read(arena.address + GRANULE, 2, 0) == b"hi"
    assert all(map(is_closed, parts))


STEPS = [
    ("cuMemImportFromShareableHandle", 1), ("cuMemImportFromShareableHandle", 2),
    ("cuMemGetAllocationPropertiesFromHandle", 2), ("cuMemAddressReserve", 1), ("cuMemMap", 1),
    ("cuMemMap", 2), ("cuMemSetAccess", 1),
]  # fmt: skip


@pytest.mark.parametrize("visible", [(A, B), (B,)])
@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_a_refusal_at_any_step_leaves_nothing_and_says_what_to_do(process, step, nth, visible):
    reader = len(visible) - 1
    driver = process(*visible, contexts=[reader])
    home = Home(A.uuid, 0 if A in visible else None)
    parts = [sent(driver, A)[0] for _ in range(2)]
    driver.fail(step, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", nth=nth)
    with pytest.raises(cf.DeviceError) as raised:
        VmmArena.attach(parts, devices.gpu(reader), home=home)
    told = str(raised.value)
    assert f"{step} failed with CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" in told
    assert f"({A.uuid_text}), and GPU {reader} (NVIDIA H200) cannot map them" in told
    assert f"copy_to='{driver.visible[reader].uuid_text}'" in told
    assert ("have CUDA_VISIBLE_DEVICES show it" in told) is (home.ordinal is None)
    assert driver.books() == NOTHING
    assert all(map(is_closed, parts))


def test_a_gpu_that_does_not_reach_the_memory_is_found_out_by_trying(process):
    driver = process(A, LONELY, contexts=[1])
    part, _ = sent(driver, A)
    with pytest.raises(cf.DeviceError, match="cuMemSetAccess failed with CUDA_ERROR_PEER_ACCESS"):
        VmmArena.attach([part], devices.gpu(1), home=Home(A.uuid, 0))
    assert driver.books() == NOTHING


@pytest.mark.parametrize(
    ("visible", "told", "is_on"),
    [
        ((A, B), Home(A.uuid, 0), B),
        ((B,), Home(A.uuid, None), B),
        ((A, B), Home(A.uuid, 0), LONELY),
    ],
)
def test_memory_that_is_elsewhere_than_said_is_refused(process, visible, told, is_on):
    """lifetime.md, 7: by the driver's own word."""
    reader = len(visible) - 1
    driver = process(*visible, contexts=[reader])
    part, _ = sent(driver, is_on)
    with pytest.raises(RemoteProtocolError, match="says that its memory is on"):
        VmmArena.attach([part], devices.gpu(reader), home=told)
    assert driver.books() == NOTHING
    assert is_closed(part)


def test_on_its_own_gpu_a_refusal_is_the_publishers_fault(process):
    driver = process(A, contexts=[0])
    part = Part(
        ArenaDescription(MemoryKind.CUDA_VMM, GRANULE, device_uuid=A.uuid),
        OwnedFd(os.memfd_create("no memory of a GPU")),
    )
    with pytest.raises(RemoteProtocolError, match="the publisher's descriptor is not memory of"):
        VmmArena.attach([part], devices.gpu(0))
    assert is_closed(part)
    assert driver.books() == NOTHING


# --- Which way ------------------------------------------------------------------------------------


def backend(holder=A, device=None, kind=MemoryKind.CUDA_VMM, **wish):
    description = ArenaDescription(kind, GRANULE, device_uuid=holder.uuid)
    return select.subscriber_backend(description, device, **wish)


@pytest.mark.parametrize(
    ("visible", "wish", "expected", "words"),
    [
        ((A, B), {}, ("cuda:0", ""), "the frames are on NVIDIA H200"),
        ((A, B), {"peer": True}, ("cuda:0", ""), "the frames are on NVIDIA H200"),
        ((A, B), {"peer": True, "device": 0}, ("cuda:0", ""), "the frames are on NVIDIA H200"),
        ((A, B), {"peer": True, "device": 1}, ("cuda:1", "peer"), "(cuda:1) over PCI Express"),
        ((B,), {"peer": True}, ("cuda:0", "peer"),
         f"the only GPU, to read frames that are on NVIDIA H200 ({A.uuid_text}), mapped into"),
        ((LONELY,), {"peer": True}, ("cuda:0", "peer"), "mapped into NVIDIA H200 (cuda:0)"),
        ((B, A), {"copy_to": "cuda:0"}, ("cuda:0", "copied"), "each is copied to NVIDIA"),
        ((B, A), {"copy_to": A.uuid_text}, ("cuda:1", ""), "the frames are on NVIDIA H200"),
        ((B, A), {"copy_to": 0, "device": 1}, ("cuda:0", "copied"), "each is copied to"),
    ],
)  # fmt: skip
def test_how_frames_come_is_chosen_and_told(process, visible, wish, expected, words):
    process(*visible)
    chosen = backend(**wish)
    assert (chosen.device, chosen.sharing) == expected
    assert words in chosen.reason
    assert chosen.lease_maker(None, 0, None) == chosen.gpu.ordinal  # streams of that GPU


def test_nvlink_is_told(process):
    process(B, A)
    assert backend(B, 1, peer=True).reason.endswith("mapped into NVIDIA H200 (cuda:1) over NVLink")


@pytest.mark.parametrize(
    ("visible", "wish", "words"),
    [
        ((B,), {}, f"{A.uuid_text}, which is hidden from this process by CUDA_VISIBLE_DEVICES="),
        ((B,), {}, "; or subscribe with peer=True, which maps them into a GPU that this process"),
        ((B,), {"copy_to": 0}, "hidden from this process by"),
        ((A, B), {"device": 1}, "is another one (1 NVIDIA H200"),
        ((A, B), {"device": 1}, "; or subscribe with peer=True"),
        ((), {"peer": True}, "sees no GPU"),
        ((B,), {"peer": True, "device": A.uuid_text}, "is hidden from this process by"),
        ((A, B), {"copy_to": 7}, "there is no GPU 7"),
        ((A, B), {"copy_to": LONELY.uuid_text}, f"copy_to='{LONELY.uuid_text}' is NVIDIA H200, wh"),
        ((B,), {"holder": Gpu("d"), "peer": True}, "which is not on this machine"),
    ],
)
def test_what_cannot_be_is_told(process, visible, wish, words):
    process(*visible)
    with pytest.raises(cf.DeviceError) as raised:
        backend(**wish)
    assert words in str(raised.value)


def test_a_gpu_that_nobody_tells_of_is_tried(process, monkeypatch):
    """As under WSL 2: hidden or not there, only the driver knows."""
    driver = process(B, contexts=[0])
    fake_nvml.refuse(monkeypatch, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    chosen = backend(peer=True)
    assert chosen.sharing == "peer"
    part, _ = sent(driver, A)
    arena = chosen.attach_arena([part], writable=False)
    assert driver.access[arena.address] == {0: READ}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")  # then nothing can hide it
    with pytest.raises(cf.DeviceError, match="not on this machine"):
        backend(peer=True)


@pytest.mark.parametrize("kind", [MemoryKind.CUDA_IPC, MemoryKind.VULKAN])
def test_other_kinds_of_memory_are_read_where_they_are(process, monkeypatch, kind):
    process(A, B)
    monkeypatch.setattr(
        "cuframes_nb._runtime.vulkan_backend.unpack", lambda _: types.SimpleNamespace(host=False)
    )
    assert backend(kind=kind, peer=True).device == "cuda:0"
    with pytest.raises(
        cf.DeviceError, match=f"peer=True and copy_to= are for .* of kind {kind.label}"
    ):
        backend(device=1, kind=kind, peer=True)
    with pytest.raises(cf.DeviceError) as raised:
        backend(device=1, kind=kind)
    assert "peer" not in str(raised.value)
    with pytest.raises(cf.UnsupportedError, match="subscribe without copy_to= and copy with CuPy"):
        backend(kind=kind, copy_to=1)


def test_host_memory_has_no_gpu_and_needs_no_peer():
    description = ArenaDescription(MemoryKind.HOST, 4096)
    assert select.subscriber_backend(description, None, peer=True).device == "cpu"
    for wish in ({"device": 0}, {"device": None, "copy_to": 0}):
        with pytest.raises(cf.InvalidArgumentError, match="host memory, which has no device"):
            select.subscriber_backend(description, **wish)


def test_both_ways_at_once_and_pipelines_are_refused():
    with pytest.raises(cf.InvalidArgumentError, match="say one of them"):
        cf.subscribe("cam1", peer=True, copy_to=0)
    for wish in ({"peer": True}, {"copy_to": 0}):
        with pytest.raises(cf.UnsupportedError, match="not for the frames of a pipeline"):
            cf.subscribe("gst:///tmp/nobody", **wish)


# --- Copied ---------------------------------------------------------------------------------------


def target(driver, ordinal, nbytes):
    """Return the address of memory on a GPU of this process, and what keeps it."""
    allocation = Allocation.create(nbytes, ordinal)
    mapped = allocation.map(writable=True)
    allocation.close()
    return mapped.address, mapped


@pytest.mark.parametrize(
    ("layout", "runs"),
    [
        (FrameLayout.make("nv12", 64, 48), 1),
        (FrameLayout.make("nv12", 63, 47, pitch=[70, 80]), 1),
        (FrameLayout.make("p010", 64, 48, pitch=[128, 256], offsets=[512, 65536]), 2),
        (FrameLayout.make("rgb24", 64, 48, offsets=[100]), 1),
    ],
)
def test_a_frame_is_copied_whole_in_as_few_pieces_as_can_be(process, layout, runs):
    driver = process(B, A, contexts=[0, 1])
    part, data = sent(driver, A)
    data[:] = os.urandom(GRANULE)
    chosen = backend(copy_to=0)
    arena = chosen.attach_arena([part], writable=False)
    assert driver.access[arena.address] == {1: READ}
    slot = chosen.planes(arena, 4096, layout)
    assert isinstance(slot, PeerPlanes)
    assert (slot.device, [plane.pitch for plane in slot.layout.planes]) == (
        "cuda:0", [plane.pitch for plane in layout.planes],
    )  # fmt: skip
    address, kept = target(driver, 0, GRANULE)
    with devices.activated(0):
        slot.queue(address, 5)
    assert [copy[3] for copy in driver.copies] == [5] * runs
    for source, copy in zip(layout.planes, slot.layout.planes, strict=True):
        there = data[4096 + source.offset : 4096 + source.end]
        assert driver.read(address + copy.offset, len(there), 0) == there
    assert sum(copy[2] for copy in driver.copies) <= slot.layout.nbytes
    assert kept.ordinal == 0


def test_a_copy_that_the_driver_refuses_is_told(process):
    driver = process(B, A, contexts=[0, 1])
    driver.fail("cuMemcpyPeerAsync", "CUDA_ERROR_INVALID_VALUE")
    slot = PeerPlanes(GpuPlanes(1, (0, 0, 64, 64)), FrameLayout.make("gray8", 64, 48), 0)
    with devices.activated(0), pytest.raises(cf.CudaError, match="cuMemcpyPeerAsync"):
        slot.queue(4096, 5)


def test_a_slot_that_is_copied_shows_nothing_itself():
    slot = PeerPlanes(GpuPlanes(1, (0, 0, 64, 64)), FrameLayout.make("gray8", 64, 48), 0)
    for show in (lambda: slot.plane(0, None), lambda: slot.rows(None), slot.on_gpu):
        with pytest.raises(cf.ProtocolError, match="each frame is to be copied"):
            show()
