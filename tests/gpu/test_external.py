"""Frames in GPU memory that the publisher's user made."""

import contextlib
import gc
import itertools
import os
import subprocess
import weakref

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda import devices
from cuframes_nb._cuda.driver import call, driver
from cuframes_nb._cuda.pointers import region_of
from cuframes_nb._cuda.vmm import Allocation, map_joined
from cuframes_nb._memory.ipc import IpcArena
from cuframes_nb._runtime.loans import LOANS
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CudaError
from tests.helpers import gpu as pixels
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import until
from tests.helpers.gpu import Latch

WIDTH, HEIGHT = 640, 360
ROWS = HEIGHT * 3 // 2
ARGS = {"width": WIDTH, "height": HEIGHT, "ownership": "external"}

pytestmark = pytest.mark.foreign_fds("CUDA IPC and torch keep descriptors of their own")


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    gc.collect()
    until(lambda: not LOANS._ending, seconds=10)
    assert LOANS._live == ()


class Raw:
    """Memory of the driver's, as an object of no library."""

    def __init__(self, address, shape, strides, keep, typestr="|u1"):
        self.keep = keep
        self.__cuda_array_interface__ = {
            "version": 3, "typestr": typestr, "shape": shape, "strides": strides,
            "data": (address, False),
        }  # fmt: skip


class Allocated:
    """A piece of ``cuMemAlloc``."""

    def __init__(self, nbytes):
        with devices.activated(0):
            self.address = int(call("cuMemAlloc", nbytes))

    def __del__(self):
        with devices.activated(0):
            call("cuMemFree", self.address)


def raw(count, pitch=WIDTH, start=0):
    """Return frames in one allocation of the driver's, `start` bytes into it."""
    memory = Allocated(start + count * pitch * ROWS)
    return [
        Raw(memory.address + start + n * pitch * ROWS, (ROWS, WIDTH), (pitch, 1), memory)
        for n in range(count)
    ]


def virtual(count, sizes=(2 << 20,), start=0, apart=WIDTH * ROWS):
    """Return frames in virtual memory of several mappings, one behind the other."""
    made = [Allocation.create(size, 0) for size in sizes]
    mapped = map_joined(made, writable=True)
    for allocation in made:
        allocation.close()
    return [
        Raw(mapped.address + start + n * apart, (ROWS, WIDTH), (WIDTH, 1), mapped)
        for n in range(count)
    ]


def torch_tensors(count):
    torch = pytest.importorskip("torch")
    return [torch.zeros(ROWS, WIDTH, dtype=torch.uint8, device="cuda") for _ in range(count)]


MAKERS = {
    "cuMemAlloc": (raw, "cuda-ipc"),
    "CuPy": (lambda n: [cp.zeros((ROWS, WIDTH), cp.uint8) for _ in range(n)], "cuda-ipc"),
    "torch": (torch_tensors, "cuda-ipc"),
    "virtual": (lambda n: virtual(n, (2 << 20,)), "cuda-vmm"),
}


def array(buffer):
    return cp.asarray(buffer)


def publish(pub, number=None):
    """Publish a frame full of its own number; return it."""
    taken = pub.wait_free(number, timeout=20)
    array(pub.buffers[taken]).fill((pub.stats.published + 1) & 0xFF)
    return pub.publish_buffer(taken)


def look(link, key="cam1", count=1):
    """Say what frames hold, and then what the last array holds whenever asked."""
    with cf.subscribe(key, timeout=30) as sub:
        for _ in range(count):
            frame = sub.next(30)
            info = sub.info
            link.say(
                "sees", seq=frame.seq, wrong=pixels.wrong_pixels(frame), ownership=info.ownership,
                sharing=info.sharing, memory=info.memory,
            )  # fmt: skip
            link.hear("go on")
        y = frame.y
        frame.release()
        del frame
        with contextlib.suppress(EOFError):
            while True:
                link.hear("look")
                link.say("sees", low=int(y.min()), high=int(y.max()))
        del y


@pytest.mark.parametrize("kind", ["cuMemAlloc", "torch", "virtual"])
def test_each_kind_of_memory_reaches_another_process_uncopied(kind):
    # lifetime.md, 4
    make, shared = MAKERS[kind]
    buffers = make(4)
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub:
        assert pub.info.memory == shared
        assert pub.info.completion == "gpu"
        with child(look, count=3, seconds=60) as reader:
            until(lambda: pub.stats.subscribers == 1, seconds=60)
            for seq in range(1, 4):
                assert publish(pub) == seq
                seen = reader.expect("sees")
                assert (seen["seq"], seen["wrong"], seen["ownership"]) == (seq, 0, "external")
                assert seen["memory"] == shared
                assert seen["sharing"] == (
                    "legacy handle" if shared == "cuda-ipc" else "descriptor"
                )
                reader.send("go on")
            until(lambda: pub.stats.slots_leased == 1, seconds=20)
            with pytest.raises(cf.FrameTimeout):
                pub.wait_free(pub._ring._book._newest, timeout=0.05)
            # What the owner writes shows over there: there is no copy between. (A publisher must
            # not do this; here it proves the point.)
            array(buffers[pub._ring._book._newest]).fill(211)
            cp.cuda.runtime.deviceSynchronize()
            reader.send("look")
            assert reader.expect("sees") == {"low": 211, "high": 211}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_subscriber_in_the_same_process(kind):
    buffers = MAKERS[kind][0](4)
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub, cf.subscribe("cam1") as sub:
        for _ in range(9):
            seq = publish(pub)
            with sub.next(10) as frame:
                assert frame.seq == seq
                assert pixels.wrong_pixels(frame) == 0


def expandable(link):
    """Publish tensors of torch whose memory is mapped in pieces of 20 MiB."""
    import torch

    # Ten frames of 3 MB: some reach from one piece into the next.
    tensors = [torch.zeros(1620, 1920, dtype=torch.uint8, device="cuda") for _ in range(10)]
    with cf.Publisher(
        "cam1", width=1920, height=1080, ownership="external", buffers=tensors
    ) as pub:
        link.say("ready", kinds=[arena.kind.label for arena in pub._ring.description.arenas])
        until(lambda: pub.stats.subscribers == 1, seconds=60)
        for number, tensor in enumerate(tensors):
            pub.wait_free(tensor)
            tensor.fill_(pub.stats.published + 1)
            pub.publish_buffer(tensor, stream=torch.cuda.current_stream())
            link.say("published", number=number)
            link.hear("go on")
        link.wait()


def test_torch_with_expandable_segments_is_shared_by_descriptors():
    pytest.importorskip("torch")
    conf = "expandable_segments:True"
    env = {"PYTORCH_CUDA_ALLOC_CONF": conf, "PYTORCH_ALLOC_CONF": conf}
    with child(expandable, env=env, seconds=90) as publisher:
        kinds = publisher.expect("ready")["kinds"]
        assert len(kinds) > 1
        assert set(kinds) == {"cuda-vmm"}
        with cf.subscribe("cam1") as sub:
            info = sub.info
            assert (info.ownership, info.sharing) == ("external", "descriptor")
            for number in range(10):
                assert publisher.expect("published") == {"number": number}
                with sub.next(20) as frame:
                    assert frame.seq == number + 1
                    assert pixels.wrong_pixels(frame) == 0
                publisher.send("go on")


def test_a_frame_may_lie_across_mappings():
    # Three frames of 345,600 bytes, the second across the border of two mappings.
    buffers = virtual(3, sizes=(2 << 20, 4 << 20), start=(2 << 20) - 400_000)
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub, cf.subscribe("cam1") as sub:
        first, second = pub._ring.description.arenas
        assert (first.continues, second.continues) == (False, True)
        assert [place.arena for place in pub._ring.description.slots] == [0, 0, 0]
        for _ in range(6):
            publish(pub)
            with sub.next(10) as frame:
                assert pixels.wrong_pixels(frame) == 0


def test_offset_and_pitch():
    buffers = raw(4, pitch=1024, start=12_345 * 4)
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub, cf.subscribe("cam1") as sub:
        assert [plane.pitch for plane in pub.layout.planes] == [1024, 1024]
        assert pub._ring.description.slots[0].offset == 12_345 * 4
        assert len(pub._ring.description.arenas) == 1
        publish(pub)
        with sub.next(10) as frame:
            assert frame.y.strides == (1024, 1)
            assert frame.array.shape == (ROWS, WIDTH)
            assert pixels.wrong_pixels(frame) == 0


@pytest.mark.parametrize("fmt", ["nv12", "p010", "rgba32", "gray8"])
def test_planes_of_any_format(fmt):
    layout = cf.formats.FrameLayout.make(fmt, 321, 123, pitch=2048)
    size = layout.format.itemsize

    def frame():
        whole = cp.zeros((1 << 20) // size, layout.format.dtype)
        return [
            cp.ndarray(p.shape, whole.dtype, whole.data + 4096 + 2 * p.offset, strides=p.strides)
            for p in layout.planes
        ]

    buffers = [frame() for _ in range(3)]
    with (
        cf.Publisher(
            "cam1", width=321, height=123, format=fmt, ownership="external", buffers=buffers
        ) as pub,
        cf.subscribe("cam1") as sub,
    ):
        number = pub.wait_free()
        for index, plane in enumerate(buffers[number]):
            plane.fill(30 + index)
        assert pub.publish_buffer(buffers[number]) == 1
        with sub.next(10) as got:
            assert [int(p.min()) for p in got.planes] == [30 + i for i in range(len(got.planes))]
            assert [int(p.max()) for p in got.planes] == [30 + i for i in range(len(got.planes))]
            assert [p.data.ptr for p in got.planes] == [p.data.ptr for p in buffers[number]]


def test_a_buffer_is_found_by_its_address():
    torch = pytest.importorskip("torch")
    tensors = torch_tensors(3)
    with cf.Publisher("cam1", **ARGS, buffers=tensors) as pub:
        assert pub.wait_free(tensors[2]) == 2
        assert pub.publish_buffer(tensors[2].view(-1)) == 1
        assert pub.publish_buffer(cp.from_dlpack(tensors[0])) == 2
        assert pub.publish_buffer(torch.from_dlpack(tensors[1])) == 3
        with pytest.raises(cf.InvalidArgumentError, match="is none of the 3 buffers"):
            pub.publish_buffer(tensors[1][1:])
        with pytest.raises(cf.InvalidArgumentError, match="is none of the 3 buffers"):
            pub.publish_buffer(torch.zeros(4))


# --- The pools of decoders ------------------------------------------------------------------------

SPARE = 4
"""Surfaces that a decoder has to itself: the most frames that one packet yields."""


@pytest.fixture
def film(tmp_path):
    """Return a film whose frames do not come in the order of its packets."""
    pytest.importorskip("av")
    from tests.helpers.films import make_film

    options = {"preset": "medium", "bf": "2"}
    return make_film(tmp_path / "film.mp4", WIDTH, HEIGHT, frames=100, options=options)


def compare_with_the_cpu(link, path):
    """Say how many frames of a film came, and how many are not what the CPU decodes."""
    import av

    frames, wrong = 0, 0
    with cf.subscribe("film", mode="strict", timeout=30) as sub, av.open(path) as container:
        for decoded in container.decode(video=0):
            with sub.next(30) as frame:
                frames += frame.seq == frames + 1
                wanted = decoded.reformat(format="nv12").planes
                for plane, pixels_ in zip((frame.y, frame.uv), wanted, strict=True):
                    rows = np.frombuffer(pixels_, np.uint8).reshape(pixels_.height, -1)
                    found = cp.asnumpy(plane).reshape(pixels_.height, WIDTH)
                    wrong += not np.array_equal(found, rows[:, :WIDTH])
                del plane
    link.say("saw", frames=frames, wrong=wrong)


def pynvvideocodec(path):
    """Return a film's packets, a decoder, and the stream that it works on."""
    codec = pytest.importorskip("PyNvVideoCodec")
    demuxer = codec.CreateDemuxer(filename=str(path))
    stream = cp.cuda.Stream(non_blocking=True)
    decoder = codec.CreateDecoder(
        gpuid=0, codec=demuxer.GetNvCodecId(), cudastream=stream.ptr, usedevicememory=True
    )
    return iter(demuxer), decoder, stream


class Surface(Raw):
    """A surface of PyNvVideoCodec's, which goes back to its decoder when nobody has this."""

    def __init__(self, address, decoder):
        super().__init__(address, (ROWS, WIDTH), None, decoder)
        self.address = address

    def __del__(self):
        self.keep.UnlockFrame(self.address)  # one that is locked would never be freed


class Pool:
    """A decoder of PyNvVideoCodec whose surfaces are the buffers of a publisher."""

    def __init__(self, path, count):
        self.packets, self.decoder, self.stream = pynvvideocodec(path)
        self.first = []
        while len(self.first) < count:
            self.first += self.decode(next(self.packets))
        self.number = {address: number for number, address in enumerate(self.first)}
        self.spare = set()

    def buffers(self):
        return [Surface(address, self.decoder) for address in self.first]

    def decode(self, packet):
        """Return the surfaces that a packet filled. The decoder does not touch them now."""
        return [
            self.decoder.GetLockedFrame() for _ in range(self.decoder.GetNumDecodedFrame(packet))
        ]

    def play(self, pub):
        """Publish each frame, from the first on."""
        self.publish(pub, self.first)
        for packet in self.packets:
            while len(self.spare) < SPARE:
                number = pub.wait_free(timeout=20)
                self.decoder.UnlockFrame(self.first[number])
                self.spare.add(number)
            self.publish(pub, self.decode(packet))

    def publish(self, pub, addresses):
        for address in addresses:
            number = self.number[address]
            self.spare.discard(number)
            pub.publish_buffer(number, stream=self.stream)


def test_surfaces_of_pynvvideocodec_are_shared_where_they_are(film):
    pool = Pool(film, 12)
    args = {**ARGS, "policy": "strict-wait", "buffers": pool.buffers()}
    with (
        cf.Publisher("film", **args) as pub,
        child(compare_with_the_cpu, str(film), seconds=60) as reader,
    ):
        assert pub.info.sharing == "legacy handle"
        until(lambda: pub.stats.subscribers == 1, seconds=60)
        pool.play(pub)
        assert reader.expect("saw") == {"frames": 100, "wrong": 0}
        assert pub.stats.published == 100


def test_a_decoder_that_its_user_lets_go_stays_while_a_surface_is_read(film):
    pool = Pool(film, 6)
    pub = cf.Publisher("cam1", **ARGS, buffers=pool.buffers())
    with cf.subscribe("cam1") as sub:
        pool.publish(pub, pool.first[:1])
        frame = sub.next(10)
        before = frame.array.copy()
        pub.close()
        decoder, surfaces = weakref.ref(pool.decoder), pool.first
        del pool, pub
        gc.collect()
        others = [cp.full((ROWS, WIDTH), 222, cp.uint8) for _ in range(64)]
        assert bool((frame.array == before).all())
        assert decoder() is not None
        frame.release()
        del frame, others
    until(lambda: gc.collect() is not None and decoder() is None, seconds=20)
    for address in surfaces:
        with pytest.raises(CudaError):
            region_of(address, 0)


def unlocked(film, way, request):
    """Yield frames of PyNvVideoCodec as its other calls give them."""
    codec = pytest.importorskip("PyNvVideoCodec")
    if way == "Decode":
        packets, decoder, _stream = pynvvideocodec(film)
        for packet in packets:
            yield from decoder.Decode(packet)
    elif way == "SimpleDecoder":
        decoder = codec.SimpleDecoder(str(film), gpu_id=0, use_device_memory=True)
        yield from (decoder[number] for number in range(40))
    else:
        decoder = codec.ThreadedDecoder(str(film), 4, gpu_id=0, use_device_memory=True)
        request.addfinalizer(decoder.end)
        while True:
            yield from decoder.get_batch_frames(1)


@pytest.mark.parametrize("way", ["Decode", "SimpleDecoder", "ThreadedDecoder"])
def test_surfaces_that_are_not_locked_are_written_again(film, way, request):
    """Why they cannot be shared: what is read is another frame soon."""
    frames = unlocked(film, way, request)
    first = next(frames)
    address = first.GetPtrToPlane(0)
    luma = cp.asarray(Raw(address, (HEIGHT, WIDTH), None, first))
    cp.cuda.runtime.deviceSynchronize()
    before = luma.copy()
    seen = [frame.GetPtrToPlane(0) for frame in itertools.islice(frames, 30)]
    cp.cuda.runtime.deviceSynchronize()
    assert address in seen
    assert bool((luma != before).any())


def test_surfaces_that_are_not_locked_are_copied(film):
    packets, decoder, stream = pynvvideocodec(film)
    args = {"width": WIDTH, "height": HEIGHT, "memory": "cuda", "policy": "strict-wait"}
    with (
        cf.Publisher("film", **args) as pub,
        child(compare_with_the_cpu, str(film), seconds=60) as reader,
    ):
        until(lambda: pub.stats.subscribers == 1, seconds=60)
        for packet in packets:
            for frame in decoder.Decode(packet):
                # The decoder writes the next frame behind the copy, on the same stream.
                rows = Raw(frame.GetPtrToPlane(0), (ROWS, WIDTH), None, frame)
                pub.write(rows, stream=stream, timeout=20)
        assert reader.expect("saw") == {"frames": 100, "wrong": 0}


@contextlib.contextmanager
def decoded_by_ffmpeg(path):
    """Give the frames of a film as FFmpeg has them on the GPU."""
    import av
    from av.codec.hwaccel import HWAccel

    cp.cuda.runtime.free(0)  # makes CuPy's context, and has it current
    accel = HWAccel(
        "cuda", device="0", is_hw_owned=True, options={"primary_ctx": "0", "current_ctx": "1"}
    )
    with av.open(str(path), hwaccel=accel) as container:
        container.streams.video[0].codec_context.thread_count = 1
        yield container.decode(video=0)


def planes_of(frame):
    """Return a frame of FFmpeg's as a buffer, which keeps it."""
    y, uv = frame.planes
    return (
        Raw(y.buffer_ptr, (HEIGHT, WIDTH), (y.line_size, 1), frame),
        Raw(uv.buffer_ptr, (HEIGHT // 2, WIDTH // 2, 2), (uv.line_size, 2, 1), None),
    )


def test_surfaces_of_ffmpeg_are_shared_while_their_frames_are_held(film):
    pytest.importorskip("av")
    with decoded_by_ffmpeg(film) as frames, contextlib.ExitStack() as stack:
        buffers = [planes_of(frame) for frame in itertools.islice(frames, 12)]
        number = {y.__cuda_array_interface__["data"][0]: i for i, (y, _) in enumerate(buffers)}
        args = {**ARGS, "policy": "strict-wait", "buffers": buffers}
        pub = stack.enter_context(cf.Publisher("film", **args))
        reader = stack.enter_context(child(compare_with_the_cpu, str(film), seconds=60))
        until(lambda: pub.stats.subscribers == 1, seconds=60)
        for index in range(12):
            pub.publish_buffer(index, stream=cp.cuda.Stream.null)
        spare = set()

        def make_room():
            while len(spare) < SPARE:
                index = pub.wait_free(timeout=20)
                buffers[index][0].keep = None  # FFmpeg may have it back
                spare.add(index)

        make_room()
        for frame in frames:
            index = number[frame.planes[0].buffer_ptr]
            buffers[index][0].keep = frame
            spare.discard(index)
            pub.publish_buffer(index, stream=cp.cuda.Stream.null)
            del frame
            make_room()
        assert reader.expect("saw") == {"frames": 100, "wrong": 0}
        assert pub.stats.published == 100
        pub.close()


# --- When a buffer is free ------------------------------------------------------------------------


def test_publish_buffer_does_not_wait_for_the_gpu():
    # lifetime.md, 5
    buffers = MAKERS["CuPy"][0](3)
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub, cf.subscribe("cam1") as sub:
        buffers[0].fill(0)  # a kernel's first use loads it, which waits for the whole GPU
        cp.cuda.runtime.deviceSynchronize()
        latch = Latch(stream)
        with stream:
            buffers[0].fill(1)
        assert pub.publish_buffer(0, stream=stream) == 1
        with pytest.raises(cf.FrameTimeout):
            sub.next(0.1)
        with pytest.raises(cf.InUseError, match="the GPU has not finished"):
            pub.publish_buffer(0, stream=stream)
        with pytest.raises(cf.FrameTimeout):
            pub.wait_free(0, timeout=0.05)
        latch.open()
        with sub.next(10) as frame:
            assert pixels.wrong_pixels(frame) == 0
        assert pub.wait_free(0, timeout=20) == 0


def test_a_buffer_that_queued_work_reads_is_not_free():
    # lifetime.md, 1
    buffers = MAKERS["CuPy"][0](4)
    stream = cp.cuda.Stream(non_blocking=True)
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub, cf.subscribe("cam1") as sub:
        publish(pub, 0)
        frame = sub.next(10)
        latch = Latch(stream)
        with stream:
            wrong = pixels.check(frame)
            frame.release()
        del frame
        with pytest.raises(cf.FrameTimeout):
            pub.wait_free(0, timeout=0.05)
        with pytest.raises(cf.InUseError, match="a subscriber reads"):
            pub.publish_buffer(0)
        latch.open()
        assert pub.wait_free(0, timeout=20) == 0
        buffers[0].fill(99)
        assert int(wrong[0]) == 0


# --- How long memory lives ------------------------------------------------------------------------


def test_a_buffer_that_its_user_lets_go_is_kept():
    buffers = MAKERS["CuPy"][0](4)
    gone = [weakref.ref(buffer) for buffer in buffers]
    with cf.Publisher("cam1", **ARGS, buffers=buffers) as pub, cf.subscribe("cam1") as sub:
        publish(pub)
        frame = sub.next(10)
        del buffers
        gc.collect()
        assert all(ref() is not None for ref in gone)
        pub.close()
        others = [cp.full((ROWS, WIDTH), 222, cp.uint8) for _ in range(8)]
        assert pixels.wrong_pixels(frame) == 0
        frame.release()
        del frame, others
    until(lambda: gc.collect() is not None and all(ref() is None for ref in gone), seconds=20)


def test_virtual_memory_that_its_user_unmaps_stays_with_its_readers():
    buffers = virtual(3)
    mapped = buffers[0].keep
    with child(look, seconds=60) as reader, cf.Publisher("cam1", **ARGS, buffers=buffers) as pub:
        until(lambda: pub.stats.subscribers == 1, seconds=60)
        publish(pub)
        assert reader.expect("sees")["wrong"] == 0
        reader.send("go on")
        until(lambda: pub.stats.slots_leased == 1, seconds=20)
        cp.cuda.runtime.deviceSynchronize()
        with devices.activated(0):  # behind the back of everybody
            call("cuMemUnmap", mapped.address, mapped.nbytes)
        mapped._sizes = ()
        others = [cp.full((2 << 20,), 222, cp.uint8) for _ in range(8)]
        reader.send("look")
        assert reader.expect("sees") == {"low": 1, "high": 1}
        del others


def publish_and_hang(link, kind):
    buffers = MAKERS[kind][0](4)
    pub = cf.Publisher("cam1", **ARGS, buffers=buffers)
    publish(pub)
    link.say("ready")
    link.wait()


def outlive(link):
    """Say what becomes of a frame, and of an array on it, whose publisher is killed."""
    with cf.subscribe("cam1", reconnect=False) as sub:
        frame = sub.next(30)
        y = frame.y
        link.say("holds", wrong=pixels.wrong_pixels(frame))
        link.hear("it is gone")
        said = []
        for ask in (lambda: sub.next(20), lambda: frame.y, frame.copy):
            try:
                ask()
                said.append("fine")
            except cf.CuframesError as error:
                said.append(f"{error.code}: {error}")
        link.say("sees", said=said, array=[int(y.min()), int(y.max())])
        frame.release()


@pytest.mark.parametrize("kind", ["CuPy", "virtual"])
def test_what_a_reader_has_when_its_publisher_is_killed(kind):
    # lifetime.md, 6
    with (
        child(publish_and_hang, kind, seconds=60) as publisher,
        child(outlive, seconds=60) as reader,
    ):
        publisher.expect("ready")
        assert reader.expect("holds") == {"wrong": 0}
        publisher.kill()
        others = [cp.full((2 << 20,), 222, cp.uint8) for _ in range(64)]
        reader.send("it is gone")
        seen = reader.expect("sees")
        following, array_, copy = seen["said"]
        assert "ended without a word" in following
        if kind == "virtual":
            assert (array_, copy) == ("fine", "fine")
            assert seen["array"] == [1, 1]
        else:
            assert array_.startswith("publisher-gone: ")
            assert "legacy handle" in array_
            assert array_ == copy
            print("an array on memory that went:", seen["array"])  # noqa: T201  not defined
        del others


def look_in_namespaces(link, options, uid):
    if uid:
        os.environ.update(HOME="/tmp", CUDA_CACHE_DISABLE="1", CUPY_CACHE_IN_MEMORY="1")
        options = [*options, "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    programs._go_on_in_namespaces(link, options, look, "cam1")


@pytest.mark.parametrize(("kind", "uid"), [("CuPy", 0), ("CuPy", 12345), ("virtual", 12345)])
def test_a_subscriber_in_another_pid_namespace(kind, uid, runtime_dir, monkeypatch):
    options = ["--pid", "--fork", "--mount-proc"]
    try:
        subprocess.run(["unshare", *options, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"namespaces cannot be made here: {error}")
    group = uid or None
    if group:
        runtime_dir.chmod(0o755)
        monkeypatch.setenv("CUFRAMES_TRUSTED_UIDS", str(os.getuid()))
    buffers = MAKERS[kind][0](4)
    with (
        cf.Publisher("cam1", **ARGS, buffers=buffers, group=group) as pub,
        child(look_in_namespaces, options, uid, seconds=60) as reader,
    ):
        publish(pub)
        assert reader.expect("sees")["wrong"] == 0
        reader.send("go on")


# --- What is refused ------------------------------------------------------------------------------


def test_what_cannot_be_shared_is_refused_with_the_way_out():
    def made_by(allocator):
        with cp.cuda.using_allocator(allocator):
            return [cp.zeros((ROWS, WIDTH), cp.uint8) for _ in range(2)]

    pinned = cp.cuda.alloc_pinned_memory(WIDTH * ROWS)
    host = [Raw(pinned.ptr, (ROWS, WIDTH), None, pinned)] * 2
    for buffers, words in [
        (made_by(cp.cuda.MemoryAsyncPool().malloc), "stream-ordered pool"),
        (made_by(cp.cuda.malloc_managed), "managed memory"),
        (host, "host memory|CuPy cannot take"),
        ([np.zeros((ROWS, WIDTH), np.uint8)] * 2, "host memory"),
    ]:
        with pytest.raises(cf.UnsupportedError, match=words) as caught:
            cf.Publisher("cam1", **ARGS, buffers=buffers)
        assert "pub.write(array)" in str(caught.value)
    assert cf.list_streams() == []


def test_virtual_memory_without_shareable_handles_is_refused():
    properties = driver().CUmemAllocationProp()
    properties.type = driver().CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver().CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    with devices.activated(0):
        handle = call("cuMemCreate", 2 << 20, properties, 0)
    allocation = Allocation(handle, 2 << 20, 0)
    mapped = allocation.map(writable=True)
    allocation.close()
    buffers = [
        Raw(mapped.address + n * WIDTH * ROWS, (ROWS, WIDTH), None, mapped) for n in range(2)
    ]
    with pytest.raises(cf.UnsupportedError, match="did not ask for shareable handles"):
        cf.Publisher("cam1", **ARGS, buffers=buffers)


def test_arrays_that_are_no_frames_are_refused():
    good = MAKERS["CuPy"][0](3)
    for buffers, words in [
        ([*good, cp.zeros((ROWS, 700), cp.uint8)], r"buffer 3 has uint8 of shape \(540, 700\)"),
        ([*good, cp.zeros((ROWS, WIDTH), cp.int8)], "buffer 3 has int8"),
        ([*good, cp.zeros((ROWS, 2 * WIDTH), cp.uint8)[:, ::2]], "within a row"),
        ([*good, cp.zeros((ROWS, 700), cp.uint8)[:, :WIDTH]], "laid out otherwise than buffer 0"),
        ([*good, good[0]], "buffers 0 and 3 have bytes in common"),
        ([(good[0][:360],), (good[1][:360],)], "has 1 planes, and nv12 has 2"),
        ([(b[360:].reshape(180, 320, 2), b[:360]) for b in good], "of shape"),
    ]:
        with pytest.raises(cf.InvalidArgumentError, match=words):
            cf.Publisher("cam1", **ARGS, buffers=buffers)
    with pytest.raises(cf.InvalidArgumentError, match="memory='host' was asked for"):
        cf.Publisher("cam1", **ARGS, buffers=good, memory="host")


def test_planes_in_several_allocations_are_refused():
    def frame():
        first, second = Allocated(8 << 20), Allocated(8 << 20)
        low, high = sorted([first, second], key=lambda a: a.address)
        return [
            Raw(low.address, (HEIGHT, WIDTH), None, low),
            Raw(high.address, (HEIGHT // 2, WIDTH // 2, 2), None, high),
        ]

    def moved(plane, by):
        place = plane.__cuda_array_interface__
        return Raw(place["data"][0] + by, place["shape"], None, plane)

    one = frame()
    two = [moved(plane, 1 << 20) for plane in one]
    with pytest.raises(cf.UnsupportedError, match="several allocations"):
        cf.Publisher("cam1", **ARGS, buffers=[one, two])


def test_a_handle_that_is_none_is_an_error_that_names_the_way_out():
    gpu = devices.gpu(0)
    lie = ArenaDescription(
        MemoryKind.CUDA_IPC, 1 << 20, has_fd=False, device_uuid=gpu.uuid, handle=bytes(64)
    )
    with pytest.raises(cf.UnsupportedError, match="without ownership='external'"):
        IpcArena.attach(lie, gpu)
    short = ArenaDescription(MemoryKind.CUDA_IPC, 1, has_fd=False, handle=b"abc")
    with pytest.raises(cf.RemoteProtocolError, match="3 bytes, which have to be 64"):
        IpcArena.attach(short, gpu)


def test_a_size_that_the_peer_invented_is_refused():
    gpu = devices.gpu(0)
    memory = Allocated(1 << 20)
    arena = IpcArena.share(region_of(memory.address, 0), gpu, memory)
    lie = ArenaDescription(
        MemoryKind.CUDA_IPC, 1 << 21, has_fd=False, device_uuid=gpu.uuid,
        handle=arena.describe().handle,
    )  # fmt: skip
    with pytest.raises(cf.RemoteProtocolError, match="the driver says 1048576"):
        IpcArena.attach(lie, gpu)
