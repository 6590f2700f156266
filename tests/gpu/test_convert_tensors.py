"""Tensors made on the GPU: exact, on the stream that was meant, and with no other memory."""

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import Options, Picture, Pixels, from_rgb, placement_of, render, to_rgb
from cuframes_nb.convert.cuda import planes_of
from cuframes_nb.convert.reference import picture_reference, rgb_reference, yuv_reference
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat
from tests.helpers.gpu import Latch

cupy = pytest.importorskip("cupy")

NV12, P010, GRAY8, RGB24, RGBA32 = PixelFormat
BT709 = ColorSpec("bt709", "limited")
POISON = 0xA5
ATOL = {"uint8": 1, "float16": 5e-4, "bfloat16": 4e-3, "float32": 1e-5}


def pixels_of(*options):
    return Pixels.of(Options(*options))


def frame(fmt, width, height, paddings=(0, 0), *, offset=0, seed=0):
    """Return a picture of random codes on the device; rows are `paddings` items apart."""
    rng = np.random.default_rng(seed)
    planes = []
    for shape, padding in zip(fmt.plane_shapes(width, height), paddings, strict=False):
        itemsize = fmt.itemsize
        pitch = (int(np.prod(shape[1:])) + padding) * itemsize
        store = cupy.full(shape[0] * pitch + offset * itemsize, POISON, cupy.uint8)
        inner = np.cumprod([itemsize, *shape[:1:-1]])[::-1].tolist()
        plane = cupy.ndarray(shape, fmt.dtype, store[offset * itemsize :].data, (pitch, *inner))
        plane[...] = cupy.asarray(rng.integers(0, 2 ** (8 * itemsize), shape).astype(fmt.dtype))
        planes.append(plane)
    return Picture(tuple(planes), fmt, BT709 if fmt.is_yuv else ColorSpec("rgb", "full"))


def rendered(pictures, placements, pixels, out=None):
    """Render pictures whose planes are arrays."""
    placed = [picture._replace(planes=planes_of(picture.planes)) for picture in pictures]
    return render(placed, placements, pixels, out)


def poisoned(shape, dtype):
    itemsize = cupy.dtype(dtype).itemsize
    return cupy.full((*shape[:-1], shape[-1] * itemsize), POISON, cupy.uint8).view(dtype)


def expected(picture, placement, **options):
    planes = tuple(cupy.asnumpy(plane) for plane in picture.planes)
    return picture_reference(planes, picture.format, picture.color, placement, fill=114, **options)


def check(found, wanted, layout, dtype="float32"):
    """Compare one picture of a result with the reference."""
    picture = cupy.asnumpy(found).transpose([layout.index(axis) for axis in "hwc"])
    if dtype == "uint8":
        wanted = np.rint(wanted * 255)
    difference = np.abs(picture.astype(float) - wanted)
    assert difference.max() <= ATOL[dtype], np.argwhere(difference > ATOL[dtype])[:5]


CASES = [
    ("nearest", None, "stretch", (3, 2, 61, 39)),
    ("nearest", None, "stretch", None),
    ("bilinear", (80, 39), "letterbox", (2, 3, 61, 39)),
    ("nearest", (50, 37), "cover", (1, 2, 61, 39)),
    ("bilinear", (40, 40), "letterbox", (1, 2, 61, 39)),
    ("bilinear", (300, 90), "stretch", None),
    ("area", (20, 13), "stretch", (1, 2, 61, 39)),
    ("area", (100, 30), "letterbox", None),
]


@pytest.mark.parametrize(
    ("fmt", "layout", "dtype", "channels"),
    [
        (NV12, "hwc", "uint8", "rgb"),
        (NV12, "chw", "float16", "bgr"),
        (P010, "chw", "uint8", "bgr"),
        (P010, "hwc", "float32", "rgb"),
        (RGB24, "hwc", "uint8", "gray"),
        (RGBA32, "chw", "float32", "rgb"),
        (GRAY8, "hwc", "float16", "rgb"),
    ],
)
@pytest.mark.parametrize("where", [((29, 30), 0), ((29, 60), 16), ((3, 5), 1)])
def test_every_way_through_the_kernel(fmt, layout, dtype, channels, where):
    picture = frame(fmt, 67, 43, where[0], offset=where[1])
    for interpolation, size, fit, crop in CASES:
        pixels = pixels_of(layout, dtype, channels, interpolation, "left", 114)
        placement = placement_of(67, 43, crop, size, fit)
        out = poisoned(pixels.shape(1, placement.size), dtype)
        assert rendered([picture], [placement], pixels, out) is out
        wanted = expected(picture, placement, channels=channels, interpolation=interpolation)
        check(out, wanted, layout, dtype)


@pytest.mark.parametrize("fmt", [NV12, P010])
@pytest.mark.parametrize("width", [1920, 1919, 1366])
def test_a_large_frame_is_exact_everywhere(fmt, width):
    height = 540
    picture = frame(fmt, width, height, (0, 0) if width % 2 else (128, 128))
    planes = tuple(cupy.asnumpy(plane) for plane in picture.planes)
    wanted = np.rint(rgb_reference(planes, fmt, BT709) * 255).clip(0, 255)
    for layout in ("hwc", "chw"):
        shape = (height, width, 3) if layout == "hwc" else (3, height, width)
        out = poisoned(shape, "uint8")
        to_rgb(picture.planes, fmt, BT709, layout=layout, out=out)
        found = cupy.asnumpy(out if layout == "hwc" else out.transpose(1, 2, 0))
        difference = np.abs(found.astype(int) - wanted.astype(int))
        assert difference.max() <= 1
        assert (difference != 0).mean() < 1e-3  # where a tie is rounded


@pytest.mark.parametrize("siting", ["left", "center", "topleft"])
def test_chroma_lies_where_the_siting_says(siting):
    picture = frame(NV12, 64, 48)
    pixels = pixels_of("hwc", "float32", "rgb", "bilinear", siting)
    placement = placement_of(64, 48, None, (40, 30))
    found = rendered([picture], [placement], pixels)
    check(found, expected(picture, placement, siting=siting), "hwc")


def test_mean_std_and_fill_of_a_network_s_input():
    picture = frame(NV12, 1280, 720, (0, 0))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pixels = pixels_of("nchw", "float32", "rgb", "bilinear", "left", 114, mean, std)
    placement = placement_of(1280, 720, None, (640, 640), "letterbox")
    found = rendered([picture], [placement], pixels)
    wanted = expected(picture, placement, mean=mean, std=std)
    np.testing.assert_allclose(cupy.asnumpy(found[0]).transpose(1, 2, 0), wanted, atol=2e-4)


def test_no_value_is_beyond_its_bounds_or_not_a_number():
    picture = frame(NV12, 256, 128)
    for dtype in ("float16", "float32"):
        pixels = pixels_of("nchw", dtype, "rgb", "bilinear", "left", 0, 0.5, 0.5)
        found = rendered([picture], [placement_of(256, 128, None, (300, 300), "letterbox")], pixels)
        assert float(found.min()) >= -1
        assert float(found.max()) <= 1


@pytest.mark.parametrize("count", [2, 16, 31])
def test_a_batch_is_what_its_frames_are(count):
    pictures = [frame(list(PixelFormat)[i % 5], 60 + i, 40 + i % 7, seed=i) for i in range(count)]
    placements = [
        placement_of(p.planes[0].shape[1], p.planes[0].shape[0], None, (64, 48), "letterbox")
        for p in pictures
    ]
    pictures[1], placements[1] = frame(NV12, 64, 48), placement_of(64, 48, None, None)
    pixels = pixels_of("nchw", "float32", "rgb", "bilinear", "left", 114)
    out = poisoned((count, 3, 48, 64), "float32")
    rendered(pictures, placements, pixels, out)
    for picture, placement, found in zip(pictures, placements, out, strict=True):
        check(found, expected(picture, placement), "chw")


@pytest.fixture
def published():
    """Two cameras of different sizes and formats, each with one frame."""
    with (
        cf.Publisher("wide", width=320, height=180, memory="cuda") as wide,
        cf.Publisher("deep", width=160, height=120, format="p010", memory="cuda") as deep,
    ):
        rng = np.random.default_rng(1)
        for pub, shift in ((wide, 0), (deep, 8)):
            with pub.acquire() as slot:
                for plane in slot.planes:
                    codes = rng.integers(0, 255, plane.shape).astype(plane.dtype) << shift
                    plane[...] = cupy.asarray(codes)
        with (
            cf.subscribe("wide") as one,
            cf.subscribe("deep") as two,
            one.next(10) as first,
            two.next(10) as second,
        ):
            yield first, second


def test_cameras_are_stacked(published):
    both = cf.stack(published, (96, 96), dtype="float32")
    assert both.shape == (2, 3, 96, 96)
    for source, found in zip(published, both, strict=True):
        picture = Picture(source.planes, source.format, source.color)
        check(found, expected(picture, source.placement((96, 96))), "chw")
        single = source.tensor((96, 96), dtype="float32")[0]
        assert (single == found).all()


def test_nothing_is_allocated_but_the_result(published):
    class Count(cupy.cuda.MemoryHook):
        name = "count"

        def __init__(self):
            self.sizes = []

        def malloc_preprocess(self, **arguments):
            self.sizes.append(arguments["size"])

    out = published[0].tensor()
    with Count() as hook:
        published[0].tensor(out=out)
        cf.stack(published, (96, 96), out=cupy.empty((2, 3, 96, 96), cupy.float16))
        assert hook.sizes == [2 * 3 * 96 * 96 * 2]  # the array that the test itself made
        published[0].tensor()
        assert len(hook.sizes) == 2


@pytest.mark.parametrize("kind", ["named", "current", "per thread"])
def test_work_is_done_on_the_stream_that_is_meant(published, kind):
    source = published[0]
    expected = cupy.asnumpy(source.tensor((64, 64)))
    held = cupy.cuda.Stream(non_blocking=True)
    stream = cupy.cuda.Stream(non_blocking=True)
    if kind == "per thread":
        stream = cupy.cuda.Stream.ptds
    cupy.cuda.Device().synchronize()
    latch = Latch(held)  # whoever waits for this stream waits for ever
    try:
        if kind == "named":
            found = source.tensor((64, 64), stream=stream)
        else:
            with stream:
                found = source.tensor((64, 64))
        stream.synchronize()
        assert not held.done
    finally:
        latch.open()
    held.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(found), expected)


def test_it_is_queued_behind_the_work_of_its_stream(published):
    source = published[0].copy()
    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros((1, 3, 64, 64), cupy.float16)
    source.tensor((64, 64), out=out)
    source.copy().y.fill(0)  # so that its kernel is there: to load one waits for the whole GPU
    before = cupy.asnumpy(out)
    cupy.cuda.Device().synchronize()
    latch = Latch(stream)
    with stream:
        source.y.fill(16)
        source.uv.fill(128)
        source.tensor((64, 64), fill=0, out=out)
    assert not stream.done
    latch.open()
    stream.synchronize()
    assert before.any()
    assert cupy.asnumpy(out).max() < 1e-6  # black, but for the matrix's last bit


def test_a_graph_holds_it(published):
    source = published[0].copy()
    others = [entry.copy() for entry in published]
    one, two = (cupy.empty((n, 3, 64, 64), cupy.float16) for n in (1, 2))
    stream = cupy.cuda.Stream(non_blocking=True)

    def work():
        source.tensor((64, 64), fill=0, out=one)
        cf.stack(others, (64, 64), fill=0, out=two)

    with stream:
        work()  # compiles
        stream.synchronize()
        stream.begin_capture()
        work()
        graph = stream.end_capture()
        for entry in (source, *others):
            entry.y.fill(16 if entry.format == "nv12" else 64 << 6)
            entry.uv.fill(128 if entry.format == "nv12" else 512 << 6)
        one.fill(7)
        two.fill(7)
        graph.launch(stream)
    stream.synchronize()
    assert float(abs(one).max()) < 1e-3
    assert float(abs(two).max()) < 1e-3


@pytest.mark.foreign_fds("torch keeps descriptors of its own")
@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_torch_tensors_are_written_to(published, dtype):
    torch = pytest.importorskip("torch")
    source = published[0]
    stream = torch.cuda.Stream()
    out = torch.zeros((1, 3, 64, 64), dtype=getattr(torch, dtype), device="cuda")
    torch.cuda.synchronize()
    address = out.data_ptr()
    assert source.tensor((64, 64), dtype=out.dtype, out=out, stream=stream) is out
    stream.synchronize()
    assert out.data_ptr() == address
    picture = Picture(source.planes, source.format, source.color)
    wanted = expected(picture, source.placement((64, 64)))
    check(cupy.asarray(out[0].float()), wanted, "chw", dtype)


@pytest.mark.foreign_fds("torch keeps descriptors of its own")
def test_torch_tensors_of_any_memory_format_are_written_to(published):
    torch = pytest.importorskip("torch")
    source = published[0]
    out = torch.zeros((1, 3, 64, 64), dtype=torch.float32, device="cuda")
    last = torch.empty_like(out, memory_format=torch.channels_last).zero_()
    source.tensor((64, 64), dtype="float32", out=out)
    source.tensor((64, 64), dtype="float32", out=last)
    torch.cuda.synchronize()
    assert torch.equal(out, last)
    with pytest.raises(InvalidArgumentError, match="pass all in one memory"):
        source.tensor((64, 64), dtype="float32", out=out.cpu())


@pytest.mark.foreign_fds("torch keeps descriptors of its own")
def test_torch_and_jax_take_results_without_a_copy(published):
    found = published[0].tensor((64, 64))
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(found).data_ptr() == found.data.ptr
    jax = pytest.importorskip("jax")
    assert jax.dlpack.from_dlpack(found).unsafe_buffer_pointer() == found.data.ptr


def test_numba_s_interface_is_enough():
    class Bare:
        def __init__(self, array):
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    picture = frame(NV12, 64, 48)
    out = cupy.zeros((48, 64, 3), cupy.uint8)
    bare = Bare(out)
    assert to_rgb(picture.planes, NV12, BT709, out=bare) is bare
    assert (out == to_rgb(picture.planes, NV12, BT709)).all()


def test_bfloat16_arrays_of_cupy():
    pytest.importorskip("ml_dtypes")
    picture = frame(NV12, 64, 48)
    found = to_rgb(picture.planes, NV12, BT709, dtype="bfloat16")
    assert found.dtype.name == "bfloat16"
    bits = cupy.asnumpy(found.view(cupy.uint16)).astype(np.uint32) << 16
    exact = cupy.asnumpy(to_rgb(picture.planes, NV12, BT709, dtype="float32"))
    np.testing.assert_allclose(bits.view(np.float32), exact, rtol=2**-8, atol=1e-30)


def test_host_memory_is_no_place_for_a_result():
    picture = frame(NV12, 16, 8)
    with pytest.raises(InvalidArgumentError, match="pass all in one memory"):
        to_rgb(picture.planes, NV12, BT709, out=np.empty((8, 16, 3), np.uint8))


@pytest.mark.parametrize("fmt", [NV12, P010, GRAY8])
@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("width", [640, 641])
def test_frames_are_made_of_rgb(fmt, channels, width):
    rng = np.random.default_rng(2)
    rgb = rng.integers(0, 256, (360, width, channels), dtype=np.uint8)
    planes = [poisoned(shape, fmt.dtype) for shape in fmt.plane_shapes(width, 360)]
    from_rgb(cupy.asarray(rgb), planes, fmt, BT709)
    shift = 6 if fmt is P010 else 0
    for plane, wanted in zip(planes, yuv_reference(rgb[..., :3] / 255, fmt, BT709), strict=True):
        found = (cupy.asnumpy(plane) >> shift).astype(int)
        assert np.abs(found - (wanted >> shift)).max() <= 1
