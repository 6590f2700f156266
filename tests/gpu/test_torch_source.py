"""Tensors of torch on a GPU as a source: what they show, and in which order it is read."""

import threading

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.sources import from_torch
from tests.helpers.gpu import Latch

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

pytestmark = pytest.mark.foreign_fds("torch keeps descriptors of its own")

WIDTH, HEIGHT = 64, 48


def published(source, memory="cuda", **options):
    """Return the planes of every frame of a source, as arrays of NumPy."""
    frames = []
    with source.publisher("made", memory=memory, **options) as pub, cf.subscribe("made") as sub:
        for _, frame in source.frames():
            source.fit(pub)
            with pub.acquire() as slot:
                source.write(slot, frame)
            with sub.next(10) as got:
                frames.append([cp.asnumpy(plane) for plane in got.planes])
    return frames


def random(*shape, seed=3):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 1.4 - 0.2


def as_bytes(tensor):
    return (tensor.clamp(0, 1) * 255).byte()


IMAGES = {
    "float chw": lambda place: random(3, HEIGHT, WIDTH).to(place),
    "float hwc": lambda place: random(HEIGHT, WIDTH, 3).to(place),
    "half chw": lambda place: random(3, HEIGHT, WIDTH).half().to(place),
    "uint8 hwc": lambda place: as_bytes(random(HEIGHT, WIDTH, 3)).to(place),
    "uint8 chw": lambda place: as_bytes(random(3, HEIGHT, WIDTH)).to(place),
    "odd": lambda place: random(3, HEIGHT - 1, WIDTH - 1).to(place),
    "every other column": lambda place: random(3, HEIGHT, 2 * WIDTH).to(place)[..., ::2],
}
GRAYS = {
    "float 1hw": lambda place: random(1, HEIGHT, WIDTH).to(place),
    "uint8 hw": lambda place: as_bytes(random(HEIGHT, WIDTH)).to(place),
}


def assert_close(found, expected, shift=0):
    for there, here in zip(found, expected, strict=True):
        assert there.shape == here.shape
        assert np.abs((there >> shift).astype(int) - (here >> shift)).max() <= 1


@pytest.mark.parametrize("format_", ["nv12", "p010", "rgb24"])
@pytest.mark.parametrize("name", IMAGES)
def test_frames_are_those_of_the_host(name, format_):
    images = IMAGES[name]
    [here] = published(from_torch([images("cpu")], format=format_), memory="host")
    [there] = published(from_torch([images("cuda")], format=format_))
    assert_close(there, here, shift=6 if format_ == "p010" else 0)


@pytest.mark.parametrize("name", GRAYS)
def test_gray_is_that_of_the_host(name):
    [here] = published(from_torch([GRAYS[name]("cpu")]), memory="host")
    [there] = published(from_torch([GRAYS[name]("cuda")]))
    assert_close(there, here)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_batch_is_as_many_frames(dtype):
    batch = random(4, 3, HEIGHT, WIDTH)
    batch = as_bytes(batch) if dtype == torch.uint8 else batch
    here = published(from_torch(batch), memory="host")
    there = published(from_torch(batch.cuda()))
    assert len(here) == len(there) == 4
    for found, expected in zip(there, here, strict=True):
        assert_close(found, expected)


def flat(level):
    """Return a uint8 image of one level on the GPU."""
    return torch.full((HEIGHT, WIDTH, 3), level, dtype=torch.uint8, device="cuda")


@pytest.fixture
def stream():
    """Return a subscriber, and what publishes a tensor; all kernels for it are loaded."""
    source = from_torch([flat(1)], format="rgb24")

    def publish(tensor):
        with pub.acquire() as slot:
            source.write(slot, tensor)

    with source.publisher("made", memory="cuda") as pub, cf.subscribe("made") as sub:
        publish(flat(1).fill_(2))
        sub.next(10).release()
        torch.cuda.synchronize()
        yield sub, publish


def level_of(sub):
    with sub.next(20) as frame:
        pixels = cp.asnumpy(frame.planes[0])
    assert pixels.min() == pixels.max()
    return int(pixels[0, 0, 0])


def test_the_copy_waits_for_torchs_stream(stream):
    sub, publish = stream
    theirs = torch.cuda.Stream()
    with torch.cuda.stream(theirs):
        tensor = flat(10)
        theirs.synchronize()
        latch = Latch(cp.cuda.Stream.from_external(theirs))
        tensor.fill_(200)
        publish(tensor)
        with pytest.raises(cf.FrameTimeout):
            sub.next(0.2)
        latch.open()
        assert level_of(sub) == 200


@pytest.mark.parametrize("ours", ["default", "another"])
def test_the_copy_waits_for_a_conversion_on_torchs_stream(stream, ours):
    sub, publish = stream
    theirs = torch.cuda.Stream()
    copying = cp.cuda.Stream.null if ours == "default" else cp.cuda.Stream(non_blocking=True)
    with torch.cuda.stream(theirs), copying:
        tensor = torch.zeros((3, HEIGHT, WIDTH), device="cuda").fill_(0.5)
        images = from_torch([tensor, tensor], format="rgb24").frames()
        next(images)
        theirs.synchronize()
        latch = Latch(cp.cuda.Stream.from_external(theirs))
        tensor.fill_(1.0)
        _, frame = next(images)
        publish(frame)
        with pytest.raises(cf.FrameTimeout):
            sub.next(0.2)
        latch.open()
        assert level_of(sub) == 255


def test_the_first_tensor_is_waited_for_as_another_thread_may_play_it(stream):
    sub, publish = stream
    theirs = torch.cuda.Stream()
    with torch.cuda.stream(theirs):
        tensor = flat(10)
        theirs.synchronize()
        latch = Latch(cp.cuda.Stream.from_external(theirs))
        tensor.fill_(200)
        timer = threading.Timer(0.3, latch.open)
        timer.start()
        source = from_torch([tensor], format="rgb24")  # waits for the timer
        timer.join()
    [(_, frame)] = source.frames()
    publish(frame)
    assert level_of(sub) == 200


@pytest.mark.parametrize("theirs", ["default", "another"])
def test_torch_does_not_write_before_the_copy_is_done(stream, theirs):
    sub, publish = stream
    copying = cp.cuda.Stream(non_blocking=True)
    with torch.cuda.stream(None if theirs == "default" else torch.cuda.Stream()):
        tensor = flat(200)
        torch.cuda.synchronize()
        latch = Latch(copying)
        with copying:
            publish(tensor)
        tensor.fill_(7)
        latch.open()
        assert level_of(sub) == 200


def test_torch_does_not_give_the_memory_away_before_the_copy_is_done(stream):
    sub, publish = stream
    copying, making = cp.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    with torch.cuda.stream(making):
        tensor = flat(200)
    torch.cuda.synchronize()
    latch = Latch(copying)
    with copying:
        publish(tensor)
    del tensor
    with torch.cuda.stream(making):
        others = [flat(7) for _ in range(8)]
    latch.open()
    assert level_of(sub) == 200
    del others


def test_a_copy_to_host_memory_waits_for_torchs_stream():
    theirs = torch.cuda.Stream()
    with torch.cuda.stream(theirs):
        tensor = flat(10)
        source = from_torch([tensor] * 2, format="rgb24")
        with source.publisher("made", memory="host") as pub, cf.subscribe("made") as sub:
            for _, frame in source.frames():
                theirs.synchronize()
                latch = Latch(cp.cuda.Stream.from_external(theirs))
                tensor.fill_(200)
                timer = threading.Timer(0.3, latch.open)
                timer.start()
                with pub.acquire() as slot:
                    source.write(slot, frame)  # waits for the timer
                timer.join()
                with sub.next(10) as got:
                    assert got.array.min() == got.array.max() == 200
                tensor.fill_(10)
