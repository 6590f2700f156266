"""Frames on the GPU from one process to another."""

import gc
import os
import signal
import subprocess
import time
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers import gpu as pixels
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.gpu import Latch


@pytest.fixture
def pub():
    with cf.Publisher("cam1", width=640, height=360, memory="cuda") as publisher:
        yield publisher


def publish(pub, stream=None):
    with stream or cp.cuda.Stream.null:
        slot = pub.acquire()
        pixels.fill(slot)
        return pub.publish(slot)


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


def test_info_says_how_the_memory_is_shared(pub):
    info = pub.info
    assert info.memory == "cuda-vmm"
    assert info.completion == "gpu", info.completion_reason
    assert info.device == cf.devices()[0].uuid


def test_auto_takes_the_gpu():
    with cf.Publisher("auto", width=64, height=64) as pub:
        assert pub.info.memory == "cuda-vmm"


def test_arrays_are_cupy_arrays_on_the_slot(pub):
    # lifetime.md, 4
    with cf.subscribe("cam1") as sub:
        publish(pub)
        with sub.next(5) as frame:
            assert isinstance(frame.y, cp.ndarray)
            assert frame.y.shape == (360, 640)
            assert frame.uv.shape == (180, 320, 2)
            assert frame.array.shape == (540, 640)
            assert frame.y.data.ptr == frame.array.data.ptr
            assert frame.y.strides == (768, 1)
            assert frame.uv.data.ptr - frame.y.data.ptr == 768 * 360
            assert frame.device == "cuda:0"
            assert pixels.wrong_pixels(frame) == 0


def test_both_processes_look_at_the_same_memory(pub):
    # What the publisher writes after the frame was taken shows in the subscriber's array: there is
    # no copy between them. (A publisher must not do this; here it proves the point.)
    with cf.subscribe("cam1") as sub:
        slot = pub.acquire()
        pixels.fill(slot)
        view = slot.y
        pub.publish(slot)
        frame = sub.next(5)
        y = frame.y
        view.fill(200)
        cp.cuda.runtime.deviceSynchronize()
        assert int(y.min()) == 200
        assert y.data.ptr != view.data.ptr  # two mappings of one allocation
        del frame, y, view, slot


def copies_during(action):
    """Return the copies that the GPU made, by the profiler of torch (CUPTI), while `action` ran."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        action()
        cp.cuda.runtime.deviceSynchronize()
        torch.cuda.synchronize()
    # A copy shows twice: as the call ("cudaMemcpyAsync") and as what the GPU did ("Memcpy DtoH").
    return [event.name for event in seen.events() if event.name.startswith("Memcpy")]


@pytest.mark.foreign_fds("torch keeps descriptors of its own")
def test_the_driver_makes_no_copy_between_publish_and_the_array(pub):
    # lifetime.md, 4: counted, and the count is shown to count.
    with cf.subscribe("cam1") as sub:
        held = []

        def take():
            publish(pub)
            frame = sub.next(5)
            held.extend([frame, frame.y, frame.uv, frame.array])

        assert copies_during(take) == []
        assert len(copies_during(lambda: cp.asnumpy(held[1]))) == 1
        held.clear()


def test_a_frame_that_is_not_complete_is_not_handed_out(pub):
    # lifetime.md, 5
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.subscribe("cam1") as sub:
        publish(pub)
        assert sub.next(5).seq == 1
        latch = Latch(stream)
        assert publish(pub, stream) == 2  # returned although the stream is held
        with pytest.raises(cf.FrameTimeout):
            sub.next(0.2)
        assert sub.latest().seq == 1
        latch.open()
        with sub.next(10) as frame:
            assert frame.seq == 2
            assert pixels.wrong_pixels(frame) == 0


def test_a_slot_the_gpu_still_writes_is_not_acquired_again():
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.Publisher("cam1", width=64, height=64, memory="cuda", ring_size=3) as pub:
        latch = Latch(stream)
        for _ in range(3):
            publish(pub, stream)
        with pytest.raises(cf.RingFullError, match="GPU has not finished"):
            pub.acquire()
        latch.open()
        stream.synchronize()
        until(lambda: pub.write(np.zeros((96, 64), np.uint8)) is not None)


def test_a_discarded_slot_waits_for_its_work_too():
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.Publisher("cam1", width=64, height=64, memory="cuda", ring_size=2) as pub:
        publish(pub)
        latch = Latch(stream)
        with stream, pytest.raises(KeyError), pub.acquire() as slot:
            pixels.fill(slot)
            raise KeyError
        with pytest.raises(cf.RingFullError):
            pub.acquire()
        latch.open()
        stream.synchronize()
        until(lambda: pub.stats.slots_leased == 0)
        publish(pub)


def test_a_lease_with_queued_kernels_is_not_given_back(pub):
    # lifetime.md, 1: tested with a kernel that holds the stream.
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        latch = Latch(stream)
        with stream:
            wrong = pixels.check(frame)
            frame.release()
        del frame
        gc.collect()
        for _ in range(12):
            publish(pub)
        assert pub.stats.slots_leased == 1
        assert sub.stats.leases == 1
        latch.open()
        until(lambda: pub.stats.slots_leased == 0)
        assert int(wrong[0]) == 0


def test_the_stream_on_which_the_last_array_dies_counts(pub):
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        y = frame.y
        y.sum()  # a kernel's first use loads it, which waits for the whole GPU
        frame.release()
        latch = Latch(stream)
        with stream:
            total = y.sum()
            del y
        assert pub.stats.slots_leased == 1
        latch.open()
        until(lambda: pub.stats.slots_leased == 0)
        assert int(total) == 640 * 360


def test_a_recorded_stream_counts(pub):
    side = cp.cuda.Stream(non_blocking=True)
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        latch = Latch(side)
        frame.record_stream(side)
        frame.release()
        assert pub.stats.slots_leased == 1
        latch.open()
        until(lambda: pub.stats.slots_leased == 0)


def test_a_lease_without_work_goes_back_at_once(pub):
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        cp.cuda.runtime.deviceSynchronize()
        frame.release()
        assert pub.stats.slots_leased == 0


def test_results_of_computing_do_not_hold_the_slot(pub):
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        results = [frame.y + 1, frame.y.copy(), frame.y.astype(cp.float32), cp.sqrt(frame.y)]
        cp.cuda.runtime.deviceSynchronize()
        frame.release()
        until(lambda: pub.stats.slots_leased == 0)
        assert int(results[0][0, 0]) == 2


def test_slices_hold_the_slot(pub):
    # lifetime.md, 6
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        part = frame.y[10:20, ::2]
        frame.release()
        for _ in range(9):
            publish(pub)
        assert pub.stats.slots_leased == 1
        assert int(part.min()) == int(part.max()) == 1
        del part
        until(lambda: pub.stats.slots_leased == 0)


@pytest.mark.foreign_fds("torch keeps descriptors of its own")
def test_torch_gets_the_memory_and_its_stream_is_waited_for(pub):
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        with torch.cuda.stream(stream):
            tensor = torch.from_dlpack(frame.y)
            assert tensor.data_ptr() == frame.y.data.ptr
            tensor.sum()  # loads the kernel
            latch = Latch(cp.cuda.Stream.from_external(stream))
            total = tensor.sum()
        del tensor
        frame.release()
        del frame
        gc.collect()
        assert pub.stats.slots_leased == 1
        latch.open()
        until(lambda: pub.stats.slots_leased == 0)
        assert int(total) == 640 * 360


def test_jax_gets_the_memory(pub):
    jax = pytest.importorskip("jax")
    with cf.Publisher("tight", width=512, height=64, format="gray8", memory="cuda") as tight:
        publish(tight)
        with cf.subscribe("tight") as sub:
            frame = sub.next(5)
            array = jax.dlpack.from_dlpack(frame.y)
            assert int(array.max()) == 1
            assert array.unsafe_buffer_pointer() == frame.y.data.ptr
            del array
            frame.release()
            until(lambda: tight.stats.slots_leased == 0)


def test_a_write_needs_to_be_asked_for(pub):
    # lifetime.md, 9
    with cf.subscribe("cam1", writable=True) as sub:
        publish(pub)
        with sub.next(5) as frame:
            frame.y.fill(77)
            assert int(frame.y.min()) == 77


def write_without_asking(link):
    sub = cf.subscribe("cam1")
    frame = sub.next(10)
    try:
        frame.y.fill(3)
        cp.cuda.runtime.deviceSynchronize()
    except cp.cuda.runtime.CUDARuntimeError as error:
        link.say("refused", error=str(error))
        os._exit(0)  # its context is broken: nothing more can be done with that GPU here
    link.say("written")


def test_a_write_that_was_not_asked_for_harms_only_its_writer(pub):
    # lifetime.md, 9
    with cf.subscribe("cam1") as sub:
        publish(pub)
        with child(write_without_asking) as other:
            assert "illegal" in other.expect("refused", seconds=60)["error"].lower()
            with sub.next(5) as frame:
                assert pixels.wrong_pixels(frame) == 0
        publish(pub)
        with sub.next(5) as frame:
            assert pixels.wrong_pixels(frame) == 0


def test_reconfigure_and_kept_arrays(pub):
    with cf.subscribe("cam1") as sub:
        publish(pub)
        kept = sub.next(5).y
        pub.reconfigure(width=320, height=180)
        publish(pub)
        with sub.next(5) as frame:
            assert frame.y.shape == (180, 320)
            assert pixels.wrong_pixels(frame) == 0
        assert kept.shape == (360, 640)
        assert int(kept.min()) == int(kept.max()) == 1
        del kept


def test_arrays_outlive_subscriber_and_publisher():
    with cf.Publisher("cam1", width=64, height=64, memory="cuda") as pub:
        sub = cf.subscribe("cam1")
        publish(pub)
        y = sub.next(5).y
        sub.close()
    assert int(y.min()) == int(y.max()) == 1


@pytest.mark.parametrize("source", ["numpy rows", "numpy planes", "cupy rows", "torch", "rgb"])
def test_write_takes_frames_from_any_memory(pub, source):
    rows = np.arange(540 * 640, dtype=np.uint8).reshape(540, 640)
    y, uv = rows[:360], rows[360:].reshape(180, 320, 2)
    if source == "torch":
        torch = pytest.importorskip("torch")
    given = {
        "numpy rows": lambda: rows,
        "numpy planes": lambda: [np.pad(y, ((0, 0), (0, 7)))[:, :640], uv],
        "cupy rows": lambda: cp.asarray(rows),
        "torch": lambda: torch.from_numpy(rows.copy()).cuda(),
        "rgb": lambda: np.full((360, 640, 3), 128, np.uint8),
    }[source]()
    with cf.subscribe("cam1") as sub:
        assert pub.write(given) == 1
        with sub.next(5) as frame:
            if source == "rgb":
                assert abs(int(frame.uv.mean()) - 128) <= 1
            else:
                assert (cp.asnumpy(frame.array) == rows).all()


def test_write_copies_on_the_stream_it_is_given(pub):
    stream = cp.cuda.Stream(non_blocking=True)
    source = cp.zeros((540, 640), cp.uint8)
    cp.cuda.Device().synchronize()
    with cf.subscribe("cam1") as sub:
        latch = Latch(stream)
        with stream:
            source.fill(77)  # behind the latch: a copy on any other stream would come before it
        assert pub.write(source, stream=stream) == 1
        assert sub.latest() is None  # not complete yet
        latch.open()
        with sub.next(5) as frame:
            assert (cp.asnumpy(frame.array) == 77).all()
    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null


def test_a_subscriber_may_spin(pub):
    with cf.subscribe("cam1", spin_us=3000) as sub:
        for seq in range(1, 50):
            publish(pub)
            with sub.next(5) as frame:
                assert frame.seq == seq
                assert pixels.wrong_pixels(frame) == 0


def test_rgb_on_the_gpu_equals_the_cpu(pub):
    rows = np.random.default_rng(1).integers(0, 256, (540, 640), np.uint8)
    with cf.subscribe("cam1") as sub:
        pub.write(rows)
        frame = sub.next(5)
        from cuframes_nb import convert

        on_gpu = cp.asnumpy(frame.rgb()).astype(int)
        on_cpu = convert.to_rgb(
            [cp.asnumpy(p) for p in frame.planes], frame.format, frame.color
        ).astype(int)
        assert abs(on_gpu - on_cpu).max() <= 1
        stream = cp.cuda.Stream(non_blocking=True)
        again = frame.rgb(stream=stream)
        stream.synchronize()
        assert (cp.asnumpy(again) == on_gpu).all()
        again = frame.rgb(stream=stream.ptr)
        stream.synchronize()
        assert (cp.asnumpy(again) == on_gpu).all()
        copy = frame.copy()
        frame.release()
        publish(pub)
        assert (cp.asnumpy(copy.array) == rows).all()


def reader(link, *, slow, frames):
    """Check every frame that comes; say what was seen."""
    with cf.subscribe("cam1", timeout=30) as sub:
        link.say("ready")
        bad = cp.zeros(1, cp.uint32)
        seen = 0
        try:
            while seen < frames:
                frame = sub.next(20)
                bad += pixels.check(frame, repeat=400 if slow else 4)
                frame.release()
                seen += 1
        except cf.FrameTimeout:
            pass
        link.say("done", bad=int(bad[0]), seen=seen, stats=sub.stats._asdict())


def test_no_frame_is_torn_with_fast_slow_stopped_and_killed_readers():
    # lifetime.md, 1, 2 and 3
    with cf.Publisher("cam1", width=1280, height=720, memory="cuda", ring_size=6) as pub:
        stop = False
        names = [False, False, True]
        import contextlib
        import threading

        published = dropped = 0

        def run():
            nonlocal published, dropped
            stream = cp.cuda.Stream(non_blocking=True)
            while not stop:
                with stream:
                    try:
                        slot = pub.acquire()
                    except cf.RingFullError:
                        dropped += 1
                    else:
                        pixels.fill(slot)
                        pub.publish(slot)
                        published += 1
                time.sleep(0.003)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            with contextlib.ExitStack() as stack:
                good = [
                    stack.enter_context(child(reader, slow=slow, frames=300, seconds=120))
                    for slow in names
                ]
                doomed = [
                    stack.enter_context(child(reader, slow=True, frames=10**9)) for _ in range(2)
                ]
                for c in [*good, *doomed]:
                    c.expect("ready", seconds=60)
                doomed[0].signal(signal.SIGSTOP)
                time.sleep(0.2)
                doomed[1].kill()
                results = [c.expect("done", seconds=90) for c in good]
                before = published
                until(lambda: published > before + 20)
                doomed[0].kill()
        finally:
            stop = True
            thread.join()
        assert [r["bad"] for r in results] == [0, 0, 0]
        assert all(r["seen"] == 300 for r in results)
        until(lambda: pub.stats.slots_leased == 0)


def test_memory_of_a_ring_of_four_at_1080p_is_at_most_14_mib():
    free, _ = cp.cuda.runtime.memGetInfo()
    with cf.Publisher("cam1", width=1920, height=1080, memory="cuda"):
        assert free - cp.cuda.runtime.memGetInfo()[0] <= 14 * 2**20


def test_a_thousand_publishers_and_attachments_leave_nothing_behind():
    # lifetime.md, 12
    def rounds(count):
        for _ in range(count):
            with (
                cf.Publisher("cam1", width=1920, height=1080, memory="cuda") as pub,
                cf.subscribe("cam1") as sub,
            ):
                publish(pub)
                sub.next(5).release()
        cp.cuda.runtime.deviceSynchronize()
        gc.collect()

    def maps():
        return len(Path("/proc/self/maps").read_text().splitlines())

    rounds(20)
    free, mapped = cp.cuda.runtime.memGetInfo()[0], maps()
    rounds(1000)
    assert cp.cuda.runtime.memGetInfo()[0] >= free - 4 * 2**20
    assert maps() <= mapped + 5


def test_a_thousand_attachments_to_one_publisher_leave_nothing_behind(pub):
    # lifetime.md, 12
    def rounds(count):
        for _ in range(count):
            with cf.subscribe("cam1") as sub:
                sub.next(5).release()
        gc.collect()

    publish(pub)
    rounds(20)
    free = cp.cuda.runtime.memGetInfo()[0]
    rounds(1000)
    assert cp.cuda.runtime.memGetInfo()[0] >= free - 4 * 2**20
    assert pub.stats.slots_leased == 0


def publish_for_ever(link):
    with cf.Publisher("cam1", width=640, height=360, memory="cuda") as pub:
        link.say("up")
        while True:
            publish(pub)
            time.sleep(0.002)


def test_a_killed_publisher_leaves_its_frames_and_its_name():
    # lifetime.md, 3 and 6
    kept = []
    with child(publish_for_ever) as first:
        first.expect("up", seconds=60)
        sub = cf.subscribe("cam1")
        frame = sub.next(10)
        kept.append((frame.seq, frame.y))
        frame.release()
        first.kill()
    with child(publish_for_ever) as second:
        second.expect("up", seconds=60)
        frame = sub.next(20)
        assert pixels.wrong_pixels(frame) == 0
        assert sub.stats.connects == 2
        second.kill()
    for seq, y in kept:
        assert int(y.min()) == int(y.max()) == seq & 0xFF
    del frame, y
    kept.clear()
    sub.close()


def test_without_gpu_written_completion_publish_waits_and_says_so(monkeypatch):
    from cuframes_nb._runtime import cuda_backend

    def refuse(*_):
        raise cf.UnsupportedError("registration refused")

    monkeypatch.setattr(cuda_backend, "RegisteredWords", refuse)
    with cf.Publisher("cam1", width=64, height=64, memory="cuda") as pub, cf.subscribe("cam1") as s:
        assert pub.info.completion == "host"
        assert "registration refused" in pub.info.completion_reason
        publish(pub)
        with s.next(5) as frame:
            assert pixels.wrong_pixels(frame) == 0


def test_a_gpu_that_cannot_share_is_told_and_auto_takes_the_host(monkeypatch):
    from cuframes_nb._cuda.vmm import Allocation

    def refuse(*_):
        raise cf.CudaError("cuMemCreate", 801, "CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr(Allocation, "create", refuse)
    with pytest.raises(cf.UnsupportedError, match="cannot share memory"):
        cf.Publisher("cam1", width=64, height=64, memory="cuda")
    with cf.Publisher("cam1", width=64, height=64) as pub:
        assert pub.info.memory == "host"
        assert "CUDA_ERROR_NOT_SUPPORTED" in pub.info.memory_reason


def test_a_descriptor_that_is_no_gpu_memory_is_refused():
    from cuframes_nb._cuda import devices
    from cuframes_nb._memory.arena import Part
    from cuframes_nb._memory.vmm import VmmArena
    from cuframes_nb._os.fds import OwnedFd
    from cuframes_nb._wire.messages import ArenaDescription, MemoryKind

    gpu = devices.gpu(0)
    description = ArenaDescription(MemoryKind.CUDA_VMM, 2 << 20, device_uuid=gpu.uuid)
    with pytest.raises(cf.RemoteProtocolError, match="not memory of GPU"):
        VmmArena.attach([Part(description, OwnedFd(os.memfd_create("no")))], gpu)


def test_a_size_that_the_peer_invented_is_refused():
    from cuframes_nb._cuda import devices
    from cuframes_nb._memory.arena import Part
    from cuframes_nb._memory.vmm import VmmArena
    from cuframes_nb._wire.messages import ArenaDescription, MemoryKind

    gpu = devices.gpu(0)
    arena = VmmArena.create(1, gpu)
    for nbytes in (arena.nbytes * 100, arena.nbytes + 1, 0):
        lie = ArenaDescription(MemoryKind.CUDA_VMM, nbytes, device_uuid=gpu.uuid)
        with pytest.raises(cf.RemoteProtocolError):
            VmmArena.attach([Part(lie, arena.export())], gpu)
    arena.close()


def hidden(link):
    try:
        cf.subscribe("cam1")
    except cf.DeviceError as error:
        link.say("refused", error=str(error))


def test_a_hidden_gpu_has_its_own_error(pub):
    with child(hidden, env={"CUDA_VISIBLE_DEVICES": ""}) as other:
        assert "CUDA_VISIBLE_DEVICES" in other.expect("refused", seconds=60)["error"]


def test_a_gpu_that_is_not_here_has_its_own_error():
    from cuframes_nb._cuda import devices

    with pytest.raises(cf.DeviceError, match="not on this machine"):
        devices.find_by_uuid(bytes(range(16)))


def test_devices_are_named_in_every_way(monkeypatch):
    from cuframes_nb._cuda import devices

    first = cf.devices()[0]
    for wanted in (0, "0", first.uuid, first.uuid[:10], first.pci_bus_id):
        assert devices.select(wanted)[0].ordinal == 0
    with pytest.raises(cf.DeviceError, match="there is no GPU"):
        devices.select("99")
    monkeypatch.setenv("CUFRAMES_DEVICE", first.uuid)
    assert devices.select(None)[1] == "$CUFRAMES_DEVICE"


def read_one(link, key):
    with cf.subscribe(key, timeout=30) as sub:
        frame = sub.next(20)
        link.say("read", wrong=pixels.wrong_pixels(frame), seq=frame.seq)
        frame.release()


def read_in_namespaces(link, options):
    programs._go_on_in_namespaces(link, options, read_one, "cam1")


@pytest.mark.parametrize(
    "options",
    [
        ["--pid", "--fork", "--mount-proc"],
        ["--pid", "--ipc", "--net", "--mount", "--uts", "--fork", "--mount-proc"],
    ],
)
def test_namespaces_need_not_be_shared(pub, options):
    try:
        subprocess.run(["unshare", *options, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"namespaces cannot be made here: {error}")
    publish(pub)
    with child(read_in_namespaces, options, seconds=60) as reader:
        assert reader.expect("read") == {"wrong": 0, "seq": 1}


def test_a_lease_that_waits_does_not_break_a_graph_capture(pub):
    held, capturing = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(5)
        total = cp.zeros(1, cp.uint32)
        latch = Latch(held)
        with held:
            frame.release()
        del frame
        assert pub.stats.slots_leased == 1
        with capturing:
            capturing.begin_capture()  # the mode is global: any thread's forbidden call breaks it
            total += 1
            time.sleep(0.05)  # meanwhile the lease's events are looked at
            graph = capturing.end_capture()
            graph.launch()
        latch.open()
        until(lambda: pub.stats.slots_leased == 0)
        capturing.synchronize()
        assert int(total[0]) == 1


def test_a_frame_is_not_published_into_a_graph(pub):
    stream = cp.cuda.Stream(non_blocking=True)
    slot = pub.acquire()
    with stream:
        stream.begin_capture()
        with pytest.raises(cf.InvalidArgumentError, match="capturing a graph"):
            pub.publish(slot)
        stream.end_capture()
    pub.publish(slot)


def test_arrays_that_a_closed_publisher_gave_are_unmapped_with_the_last(pub):
    def mapped():
        return cp.cuda.runtime.memGetInfo()[0]

    with cf.Publisher("big", width=1920, height=1080, memory="cuda", ring_size=16) as big:
        slot = big.acquire()
        y = slot.y
        y.fill(3)
        big.publish(slot)
        before = mapped()
    assert int(y.min()) == 3
    del y, slot
    gc.collect()
    assert mapped() >= before + 40 * 2**20
