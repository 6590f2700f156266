"""JPEG made on the GPU: right in its colours, cuts and sizes, alone and beside others, for long."""

import contextlib
import io
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb import convert
from cuframes_nb._cuda.nvjpeg import pictures
from cuframes_nb._cuda.nvjpeg.binding import load
from cuframes_nb._cuda.nvjpeg.painter import Painter, Picture
from cuframes_nb._cuda.nvjpeg.pictures import PictureEncoder, own_pixels
from cuframes_nb._viewer.images import shown_pixels
from cuframes_nb._viewer.picture import Scaler
from tests.helpers.frames import until
from tests.helpers.gpu import Latch, memory_in_use
from tests.helpers.jpeg_reference import painted

try:
    load()
except cf.UnsupportedError as missing:
    pytest.skip(str(missing), allow_module_level=True)

Image = pytest.importorskip("PIL.Image")

FORMATS = list(cf.PixelFormat)
COLORS = [
    cf.ColorSpec(matrix, range_)
    for matrix, range_ in itertools.product(("bt601", "bt709", "bt2020"), ("limited", "full"))
]
RGB = cf.ColorSpec("rgb", "full")
PALETTE = np.array(list(itertools.product((0, 85, 170, 255), repeat=3)), np.uint8).reshape(8, 8, 3)
SIDE = 512
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """Load the kernel: a kernel that is loaded while another holds a stream waits for it."""
    with contextlib.closing(PictureEncoder(0)) as encoder:
        encoder.encode(picture_of(cp.zeros((16, 16, 3), cp.uint8)), 85)
    Latch(cp.cuda.Stream.null).open()
    cp.cuda.Stream.null.synchronize()


@pytest.fixture
def encoder():
    with contextlib.closing(PictureEncoder(0)) as made:
        yield made


def color_for(fmt, color):
    return color if fmt.is_yuv else RGB


def picture_of(pixels, size=None):
    """Return RGB pixels as a picture."""
    height, width = pixels.shape[:2]
    whole = (0, 0, width, height)
    return Picture((pixels,), cf.PixelFormat.RGB24, RGB, whole, size or whole[2:], is_queued=True)


def planes_of(rgb, fmt, color):
    """Return planes of a format in GPU memory that show RGB pixels in host memory."""
    planes = [cp.empty(shape, fmt.dtype) for shape in fmt.plane_shapes(rgb.shape[1], rgb.shape[0])]
    convert.from_rgb(cp.asarray(rgb), planes, fmt, color)
    return planes


def noise(fmt, width, height, seed=0):
    """Return planes of random codes whose rows do not follow each other."""
    rng = np.random.default_rng(seed)
    planes = []
    for shape in fmt.plane_shapes(width, height):
        room = rng.integers(0, 2 ** (8 * fmt.itemsize), (shape[0], shape[1] + 7, *shape[2:]))
        planes.append(cp.asarray(room.astype(fmt.dtype))[:, : shape[1]])
    return planes


def waves(width=1920, height=1080, seed=0):
    """Return RGB pixels as a camera might see them."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    rgb = np.stack(
        [128 + 90 * np.sin(x / (40 + 9 * i + seed) + y / (70 - 9 * i)) for i in range(3)], -1
    )
    return (rgb + np.random.default_rng(seed).normal(0, 4, rgb.shape)).clip(0, 255).astype(np.uint8)


def decoded(data):
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "JPEG"
        return np.asarray(image.convert("RGB")).astype(int)


def decoders():
    """Yield what decodes, by each library that is installed."""
    yield decoded
    with contextlib.suppress(ImportError):
        import cv2

        yield lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), 1)[..., ::-1].astype(int)
    with contextlib.suppress(ImportError):
        import simplejpeg

        yield lambda data: simplejpeg.decode_jpeg(data).astype(int)


def insides(pixels):
    """Return of each of 8 x 8 patches a pixel of a block that no other patch reaches into."""
    step = len(pixels) // 8
    return pixels[step // 4 :: step, step // 4 :: step].astype(int)


# --- The kernel -----------------------------------------------------------------------------------


def paint(picture):
    """Return the three planes that the kernel makes, in host memory."""
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Stream.null.synchronize()
    painter = Painter(0, stream)
    canvas = painter.paint(picture)
    stream.synchronize()
    width, height = canvas.size
    made = []
    shapes = [(height, width), *[(-(-height // 2), -(-width // 2))] * 2]
    for (rows, columns), address, pitch in zip(
        shapes, canvas.addresses, canvas.pitches, strict=True
    ):
        memory = cp.cuda.UnownedMemory(address, rows * pitch, painter)
        plane = cp.ndarray((rows, columns), cp.uint8, cp.cuda.MemoryPointer(memory, 0), (pitch, 1))
        made.append(plane.get())
    return made


def check_painted(fmt, color, frame, crop, size):
    planes = noise(fmt, *frame)
    made = paint(Picture(planes, fmt, color, crop, size, is_queued=False))
    wanted = painted([plane.get() for plane in planes], fmt, color, crop, size)
    for plane, reference in zip(made, wanted, strict=True):
        assert plane.shape == reference.shape
        assert abs(plane - np.clip(reference, 0, 255)).max() <= 0.55


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("color", COLORS, ids=lambda c: f"{c.matrix}-{c.range}")
def test_planes_are_those_of_exact_arithmetic(fmt, color):
    color = color_for(fmt, color)
    for frame in ((320, 240), (321, 239)):
        for size in (frame, (160, 120), (101, 77), (480, 300)):
            check_painted(fmt, color, frame, (0, 0, *frame), size)
    for crop in ((64, 32, 128, 100), (3, 7, 101, 55), (319, 237, 1, 1)):
        for size in (crop[2:], (50, 31)):
            check_painted(fmt, color, (320, 240), crop, size)


# --- Colours and sizes ----------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS)
def test_colors_are_those_of_the_frame(encoder, fmt):
    rgb = PALETTE.repeat(SIDE // 8, 0).repeat(SIDE // 8, 1)
    for color in {color_for(fmt, color) for color in COLORS}:
        planes = planes_of(rgb, fmt, color)
        wanted = insides(convert.to_rgb(planes, fmt, color).get())
        for side, quality in itertools.product((SIDE, SIDE // 2), (80, 100)):
            picture = Picture(planes, fmt, color, (0, 0, SIDE, SIDE), (side, side), is_queued=True)
            data = encoder.encode(picture, quality)
            for decode in decoders():
                assert abs(insides(decode(data)) - wanted).max() <= 3, (color, side, quality)


SIZES = [
    (1, 1), (2, 2), (3, 1), (1, 3), (2, 1), (7, 5), (8, 8), (15, 17), (16, 16), (17, 16), (33, 17),
    (34, 18), (1, 1000), (1000, 1), (4096, 2), (2, 999), (1919, 1079),
]  # fmt: skip


@pytest.mark.parametrize("fmt", FORMATS)
def test_pictures_of_any_size_are_whole(encoder, fmt):
    color = color_for(fmt, cf.ColorSpec("bt709", "limited"))
    for width, height in SIZES:
        rgb = np.full((height, width, 3), (180, 90, 40), np.uint8)
        planes = planes_of(rgb, fmt, color)
        wanted = convert.to_rgb(planes, fmt, color)[0, 0].get().astype(int)
        for size in ((width, height), (33, 17), (max(1, width // 2), max(1, height // 3))):
            whole = Picture(planes, fmt, color, (0, 0, width, height), size, is_queued=True)
            for decode in decoders():
                found = decode(encoder.encode(whole, 90))
                assert found.shape == (size[1], size[0], 3)
                assert abs(found - wanted).max() <= 3, (width, height, size)


def test_nothing_behind_an_edge_is_seen(encoder):
    """Sizes that shrink leave larger pictures in the memory behind the planes."""
    for width, height in itertools.product((1, 2, 15, 16, 17, 33, 47), repeat=2):
        encoder.encode(picture_of(cp.full((64, 64, 3), 255, cp.uint8)), 90)
        found = decoded(encoder.encode(picture_of(cp.full((height, width, 3), 128, cp.uint8)), 90))
        assert abs(found - 128).max() <= 1


@pytest.mark.parametrize("fmt", [cf.PixelFormat.NV12, cf.PixelFormat.RGB24])
def test_a_cut_shows_its_pixels(encoder, fmt):
    color = color_for(fmt, cf.ColorSpec("bt709", "limited"))
    y, x = np.mgrid[:96, :128]
    rgb = np.repeat((50 + 150 * ((x // 16 + y // 16) % 2)).astype(np.uint8)[..., None], 3, -1)
    planes = planes_of(rgb, fmt, color)
    for left, top in itertools.product((16, 31, 32, 45), repeat=2):
        crop = (left, top, 33, 31)
        data = encoder.encode(Picture(planes, fmt, color, crop, (33, 31), is_queued=True), 100)
        wanted = rgb[top : top + 31, left : left + 33].astype(int)
        assert abs(decoded(data) - wanted).max() <= 12
        assert abs(decoded(data) - wanted).mean() <= 2


def test_quality_means_what_it_means_elsewhere(encoder):
    rgb = waves(640, 480)
    sizes = []
    for quality in (1, 10, 50, 75, 85, 92, 100):
        data = encoder.encode(picture_of(cp.asarray(rgb)), quality)
        other = io.BytesIO()
        Image.fromarray(rgb).save(other, "jpeg", quality=quality)
        with Image.open(io.BytesIO(data)) as ours, Image.open(other) as theirs:
            assert ours.quantization == theirs.quantization
            assert [layer[1:3] for layer in ours.layer] == [(2, 2), (1, 1), (1, 1)]
        sizes.append(len(data))
        assert quality < 50 or 0.8 < len(data) / len(other.getvalue()) < 1.1
    assert sizes == sorted(sizes)


# --- Threads and streams --------------------------------------------------------------------------


def in_thread(act):
    """Return what `act` returns on another thread."""
    box = []
    thread = threading.Thread(target=lambda: box.append(act()))
    thread.start()
    thread.join(60)
    return box[0]


def test_any_thread_may_encode(encoder):
    picture = picture_of(cp.asarray(waves()))
    cp.cuda.Stream.null.synchronize()
    wanted = encoder.encode(picture, 85)
    assert in_thread(lambda: encoder.encode(picture, 85)) == wanted

    def own():
        with contextlib.closing(PictureEncoder(0)) as other:
            return other.encode(picture, 85)

    assert in_thread(own) == wanted


def test_encoders_work_side_by_side():
    made = [picture_of(cp.asarray(waves(seed=seed))) for seed in range(8)]
    cp.cuda.Stream.null.synchronize()
    with contextlib.closing(PictureEncoder(0)) as encoder:
        wanted = [encoder.encode(picture, 85) for picture in made]
    assert len(set(wanted)) == 8
    wrong, start = [], threading.Barrier(8)

    def work(i):
        with contextlib.closing(PictureEncoder(0)) as encoder:
            start.wait(30)
            wrong.extend(i for _ in range(60) if encoder.encode(made[i], 85) != wanted[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_others_work_is_not_waited_for(encoder):
    pixels = cp.asarray(waves(640, 360))
    cp.cuda.Stream.null.synchronize()
    picture = picture_of(pixels)._replace(is_queued=False)
    wanted = encoder.encode(picture, 85)
    for stream in (cp.cuda.Stream.null, cp.cuda.Stream(), cp.cuda.Stream(non_blocking=True)):
        latch = Latch(stream)
        try:
            assert encoder.encode(picture, 85) == wanted
            assert not stream.done
        finally:
            latch.open()
            stream.synchronize()


def test_what_the_current_stream_still_writes_is_waited_for(encoder):
    pixels = cp.zeros((360, 640, 3), cp.uint8)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Stream.null.synchronize()
    latch = Latch(stream)
    timer = threading.Timer(0.3, latch.open)
    timer.start()
    with stream:
        pixels.fill(200)
        found = decoded(encoder.encode(picture_of(pixels), 90))
    timer.join()
    assert abs(found - 200).max() <= 1


def test_a_frame_is_read_before_it_can_be_written_over(encoder):
    """Each frame is of one value, and given back as soon as it is encoded."""
    stop = threading.Event()
    with cf.Publisher("cam", width=1280, height=720, memory="cuda", ring_size=3,
                      color=cf.ColorSpec("bt601", "full")) as pub:  # fmt: skip

        def publish():
            while not stop.wait(0.0002):
                with contextlib.suppress(cf.RingFullError), pub.acquire() as slot:
                    slot.y.fill(slot.seq % 256)
                    slot.uv.fill(128)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            with cf.subscribe("cam") as sub:
                for _ in range(300):
                    with sub.next(10) as frame:
                        drawn = Scaler(lambda _: True).frame(frame, (0, 0, 1280, 720), (640, 360))
                        value = frame.seq % 256
                    data = encoder.encode(drawn, 90)
                    del drawn
                    found = decoded(data)
                    assert abs(found - value).max() <= 1
        finally:
            stop.set()
            thread.join()
        until(lambda: pub.stats.slots_leased == 0)


# --- For long -------------------------------------------------------------------------------------


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def repeat(work, times):
    for _ in range(times):
        work()


def check_flat(work, times, warm, repeat=repeat):
    """Do it so often and look at the memory of the host and of the GPU."""
    repeat(work, warm)
    host, device = resident(), memory_in_use()
    repeat(work, times)
    assert resident() - host < 8 * MIB
    assert memory_in_use() - device < 8 * MIB


def encoding():
    """Return what encodes pictures, ten of each size and quality: changes cost nvJPEG time."""
    encoder = PictureEncoder(0)
    pixels = [cp.asarray(waves(seed=seed)) for seed in range(3)]
    # None much smaller: pictures of few pixels take nvJPEG several times as long as large ones.
    sizes = [(1920, 1080), (640, 360), (1100, 618), (321, 181)]
    looks = zip(itertools.cycle(sizes), itertools.cycle(range(40, 96)))
    turns = zip(itertools.cycle(pixels), (look for look in looks for _ in range(10)))
    cp.cuda.Stream.null.synchronize()

    def work():
        pixels, (size, quality) = next(turns)
        encoder.encode(picture_of(pixels, size), quality)

    return encoder, work


@pytest.mark.parametrize("thread", ["main", "another"])
def test_memory_stays_flat(thread):
    encoder, work = encoding()
    check = lambda: check_flat(work, 3000, 300) or True  # noqa: E731
    assert check() if thread == "main" else in_thread(check)
    encoder.close()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_memory_stays_flat_for_hours_of_pictures():
    with ThreadPoolExecutor(8) as pool, contextlib.ExitStack() as stack:
        cameras = [encoding() for _ in range(8)]
        for encoder, _ in cameras:
            stack.callback(encoder.close)

        def side_by_side(works, times):
            list(pool.map(repeat, works, [times] * len(works)))

        check_flat([work for _, work in cameras], 200_000 // 8, 500, side_by_side)


def test_encoders_leave_nothing():
    picture = picture_of(cp.asarray(waves()))

    def work():
        with contextlib.closing(PictureEncoder(0)) as encoder:
            encoder.encode(picture, 85)

    check_flat(work, 60, 10)
    check_flat(lambda: in_thread(work), 30, 10)


def test_an_encoder_is_closed_once_and_says_so():
    encoder = PictureEncoder(0)
    for _ in range(3):
        encoder.close()
    with pytest.raises(cf.ClosedError):
        encoder.encode(picture_of(cp.zeros((16, 16, 3), cp.uint8)), 85)


def test_what_cannot_be_encoded_is_told_and_the_next_is_encoded(encoder):
    good = picture_of(cp.full((16, 16, 3), 90, cp.uint8))
    swapped = cp.zeros((3, 16, 16), cp.uint8).transpose(1, 2, 0)
    with pytest.raises(cf.InvalidArgumentError, match="strides"):
        encoder.encode(picture_of(swapped), 85)
    with pytest.raises(cf.DeviceError, match="nvjpeg"):
        encoder.encode(good, 1000)
    assert abs(decoded(encoder.encode(good, 90)) - 90).max() <= 1


# --- What is shown --------------------------------------------------------------------------------


@pytest.mark.foreign_fds("torch opens the device when it is first used")
@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 3), (48, 64, 4)])
def test_what_process_returns_is_encoded_where_it_is(encoder, library, shape):
    host = np.full(shape, 60, np.uint8)
    host[:, 32:] = 200
    value = cp.asarray(host)
    if library == "torch":
        value = pytest.importorskip("torch").from_dlpack(value)
    pixels = shown_pixels(value)
    assert isinstance(pixels, cp.ndarray)
    drawn = Scaler(lambda device: device == "cuda:0").pixels(pixels[8:40], (32, 16))
    assert isinstance(drawn, Picture)
    found = decoded(encoder.encode(drawn, 95))
    assert found.shape == (16, 32, 3)
    assert abs(found[:, :12] - 60).max() <= 3
    assert abs(found[:, 20:] - 200).max() <= 3
    assert isinstance(Scaler().pixels(pixels, (64, 48)), np.ndarray)


def test_what_is_no_picture_of_8_bits_goes_by_the_host():
    for value in (np.zeros((4, 4), np.uint8), cp.zeros((4, 4), cp.float32), cp.zeros(4, cp.uint8),
                  cp.zeros((3, 8, 8), cp.uint8), None, "text"):  # fmt: skip
        assert own_pixels(value) is None
    first = cp.zeros((4, 4), cp.uint8)
    assert own_pixels(first).data.ptr != first.data.ptr
    assert isinstance(shown_pixels(cp.zeros((8, 8), cp.float32)), np.ndarray)


def test_a_view_s_encoder_takes_frames_of_a_gpu():
    pytest.importorskip("simplejpeg")
    from cuframes_nb._viewer.encoders import JpegEncoder

    encoder = JpegEncoder()
    scaler = Scaler(encoder.takes)
    with cf.Publisher("cam", width=640, height=360, memory="cuda") as pub:
        pub.write(np.full((540, 640), 128, np.uint8))
        with cf.subscribe("cam") as sub, sub.next(5) as frame:
            drawn = scaler.frame(frame, (0, 0, 640, 360), (320, 180))
            assert abs(decoded(encoder.encode(drawn, 90)) - 130).max() <= 2
            del drawn
    assert encoder.takes("cuda:0")
    assert not encoder.takes("cpu")
    assert encoder.name == "JPEG (nvJPEG)"
    assert scaler.name == "the GPU"
    encoder.rest()


def test_a_view_shows_frames_of_a_gpu():
    pytest.importorskip("simplejpeg")
    from tests.helpers.pages import looking

    with cf.Publisher("cam", width=640, height=360, memory="cuda") as pub, looking("cam") as page:
        pub.write(np.full((540, 640), 128, np.uint8))
        page.hello()
        assert abs(page.wait_for(1).pixels.astype(int) - 130).max() <= 2
        assert page.status["encoder"] == "JPEG (nvJPEG), scaled by the GPU"


def test_without_the_library_the_cpu_does_it_and_says_why(monkeypatch, tmp_path):
    def nothing():
        raise cf.UnsupportedError("nvJPEG is not installed: install it")

    monkeypatch.setattr(pictures, "load", nothing)
    with cf.Publisher("cam", width=640, height=360, memory="cuda") as pub:
        pub.write(np.full((540, 640), 128, np.uint8))
        with cf.subscribe("cam") as sub, sub.next(5) as frame:
            path = cf.snapshot(frame, tmp_path / "a.jpg")
            assert abs(decoded(path.read_bytes()) - 130).max() <= 2
            pytest.importorskip("simplejpeg")
            from cuframes_nb._viewer.encoders import JpegEncoder

            encoder = JpegEncoder()
            drawn = Scaler(encoder.takes).frame(frame, (0, 0, 640, 360), (640, 360))
            assert isinstance(drawn, np.ndarray)
            assert encoder.name == "JPEG (libjpeg-turbo; nvJPEG is not installed: install it)"


# --- Snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS)
def test_snapshots_are_encoded_on_the_gpu(monkeypatch, tmp_path, fmt):
    monkeypatch.setattr("cuframes_nb.sinks.snapshots.jpeg", None)  # what would do it on the CPU
    rgb = waves(641, 359)
    color = color_for(fmt, cf.ColorSpec("bt709", "limited"))
    with cf.Publisher("cam", width=641, height=359, memory="cuda", format=fmt, color=color) as pub:
        with pub.acquire() as slot:
            convert.from_rgb(cp.asarray(rgb), slot.planes, fmt, color)
        with cf.subscribe("cam") as sub, sub.next(5) as frame:
            wanted = frame.rgb().get().astype(int)
            path = cf.snapshot(frame, tmp_path / "a.jpg")
            copy = frame.copy()
        data = path.read_bytes()
        assert cf.snapshot("cam", tmp_path / "b.jpeg").read_bytes() == data
        assert cf.snapshot(copy, tmp_path / "c.jpg").read_bytes() == data
        until(lambda: pub.stats.slots_leased == 0)
    difference = abs(decoded(data) - wanted)
    other = io.BytesIO()
    Image.fromarray(wanted.astype(np.uint8)).save(other, "jpeg", quality=92)
    assert difference.mean() < 1.1 * abs(decoded(other.getvalue()) - wanted).mean() + 0.3
