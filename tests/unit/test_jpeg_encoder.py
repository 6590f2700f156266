"""The encoder keeps its books: on a library that counts, and fails where it is told to."""

import ctypes

import pytest

from cuframes_nb._cuda.nvjpeg import binding as library_module
from cuframes_nb._cuda.nvjpeg.binding import Library, find, handle, load
from cuframes_nb._cuda.nvjpeg.encoder import PlaneEncoder
from cuframes_nb._cuda.nvjpeg.painter import Canvas
from cuframes_nb.errors import ClosedError, DeviceError, UnsupportedError

HANDLE = ctypes.c_void_p(55)
CANVAS = Canvas((1000, 2000, 3000), (256, 128, 128), (64, 48))


class Function:
    """A function as ctypes gives them: what it takes can be said."""

    def __init__(self, act):
        self._act = act

    def __call__(self, *arguments):
        assert len(arguments) == len(self.argtypes)
        return self._act(*arguments)


class Nvjpeg:
    """Stands in for the library: makes numbers for handles, and knows which live."""

    def __init__(self, data=b"\xff\xd8 picture \xff\xd9"):
        self.data = data
        self.calls = []
        self.live = []
        self.failing = {}
        self.encoded = []
        self._made = 100

    def __getattr__(self, name):
        if not name.startswith("nvjpeg") or name in self.failing.get("absent", ()):
            raise AttributeError(name)
        function = Function(lambda *arguments: self._run(name, arguments))
        setattr(self, name, function)
        return function

    def _run(self, name, arguments):
        self.calls.append(name)
        if status := self.failing.get(name):
            return status
        for ending, act in (
            ("CreateSimple", self._create), ("Create", self._create), ("Destroy", self._destroy),
            ("EncodeYUV", self._encode), ("Bitstream", self._retrieve),
            ("Property", self._property),
        ):  # fmt: skip
            if name.endswith(ending):
                return act(name, arguments) or 0
        return 0

    def _create(self, name, arguments):
        made = arguments[0 if name == "nvjpegCreateSimple" else 1]._obj
        self._made += 1
        made.value = self._made
        self.live.append(self._made)

    def _destroy(self, _, arguments):
        assert self.live.pop() == arguments[0].value, "the last made is to go first"

    def _encode(self, _, arguments):
        assert arguments[0] is HANDLE
        image = arguments[3]._obj
        planes = [(image.channel[i], image.pitch[i]) for i in range(3)]
        self.encoded.append((planes, arguments[4:]))

    def _retrieve(self, _, arguments):
        buffer, length = arguments[2], arguments[3]._obj
        if buffer is not None:
            if length.value < len(self.data):
                return 2
            ctypes.memmove(buffer, self.data, len(self.data))
        length.value = len(self.data)
        return 0

    def _property(self, _, arguments):
        arguments[1]._obj.value = (13, 3, 2)[arguments[0]]


class Stream:
    ptr = 77
    waits = 0

    def synchronize(self):
        self.waits += 1


@pytest.fixture
def nvjpeg():
    return Nvjpeg()


@pytest.fixture
def stream():
    return Stream()


def encoder_of(nvjpeg, stream):
    return PlaneEncoder(Library(nvjpeg, "libnvjpeg.so"), HANDLE, stream)


@pytest.fixture
def encoder(nvjpeg, stream):
    made = encoder_of(nvjpeg, stream)
    yield made
    made.close()
    assert nvjpeg.live == []


def test_planes_become_bytes(encoder, nvjpeg, stream):
    assert encoder.encode(CANVAS, 85) == nvjpeg.data
    planes = [(1000, 256), (2000, 128), (3000, 128)]
    assert nvjpeg.encoded == [(planes, (2, 64, 48, 77))]
    assert stream.waits


def test_the_quality_is_set_when_it_changes(encoder, nvjpeg):
    for quality in (85, 85, 40, 85, 85):
        encoder.encode(CANVAS, quality)
    assert nvjpeg.calls.count("nvjpegEncoderParamsSetQuality") == 3
    nvjpeg.failing["nvjpegEncoderParamsSetQuality"] = 2
    with pytest.raises(DeviceError, match="INVALID_PARAMETER"):
        encoder.encode(CANVAS, 40)
    del nvjpeg.failing["nvjpegEncoderParamsSetQuality"]
    encoder.encode(CANVAS, 40)
    assert nvjpeg.calls.count("nvjpegEncoderParamsSetQuality") == 5


def test_large_pictures_find_room(encoder, nvjpeg):
    for size in (10, 3 << 20, 5 << 20, 100):
        nvjpeg.data = bytes(range(256)) * (size // 256 + 1)
        assert encoder.encode(CANVAS, 85) == nvjpeg.data


def test_closing_destroys_once(nvjpeg, stream):
    encoder = encoder_of(nvjpeg, stream)
    assert len(nvjpeg.live) == 2
    for _ in range(3):
        encoder.close()
    assert nvjpeg.live == []
    assert sum(name.endswith("Destroy") for name in nvjpeg.calls) == 2
    with pytest.raises(ClosedError):
        encoder.encode(CANVAS, 85)


@pytest.mark.parametrize(
    "name",
    [
        "nvjpegEncoderStateCreate", "nvjpegEncoderParamsCreate",
        "nvjpegEncoderParamsSetSamplingFactors", "nvjpegEncoderParamsSetOptimizedHuffman",
    ],
)  # fmt: skip
def test_what_cannot_be_made_leaves_nothing(nvjpeg, stream, name):
    nvjpeg.failing[name] = 5
    with pytest.raises(DeviceError, match=f"{name} .*ALLOCATOR_FAILURE .5.*memory"):
        encoder_of(nvjpeg, stream)
    assert nvjpeg.live == []


@pytest.mark.parametrize("name", ["nvjpegEncodeYUV", "nvjpegEncodeRetrieveBitstream"])
def test_after_a_failure_the_encoder_goes_on(encoder, nvjpeg, name):
    nvjpeg.failing[name] = 6
    with pytest.raises(DeviceError, match="EXECUTION_FAILED"):
        encoder.encode(CANVAS, 85)
    del nvjpeg.failing[name]
    assert encoder.encode(CANVAS, 85) == nvjpeg.data


def test_what_cannot_be_destroyed_does_not_keep_the_rest(nvjpeg, stream):
    encoder = encoder_of(nvjpeg, stream)
    nvjpeg.failing["nvjpegEncoderParamsDestroy"] = 8
    nvjpeg.live.pop()
    with pytest.raises(DeviceError):
        encoder.close()
    assert nvjpeg.live == []
    encoder.close()


# --- The library ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(2, DeviceError), (4, UnsupportedError), (7, UnsupportedError), (9, UnsupportedError)],
)
def test_a_status_is_an_error_that_says_what_failed(nvjpeg, status, kind):
    nvjpeg.failing["nvjpegEncodeYUV"] = status
    with pytest.raises(kind, match=rf"nvjpegEncodeYUV of libnvjpeg.so failed .*\({status}\): \w+"):
        Library(nvjpeg, "libnvjpeg.so").call("nvjpegEncodeYUV", *[0] * 8)


def test_a_status_of_tomorrow_is_an_error_too(nvjpeg):
    assert "unknown status (99)" in str(Library(nvjpeg, "here").error("nvjpegEncodeYUV", 99))


def test_the_version_is_told(nvjpeg):
    assert Library(nvjpeg, "here").version == "13.3.2"


def test_a_library_that_is_too_old_is_refused(nvjpeg):
    nvjpeg.failing["absent"] = {"nvjpegEncodeYUV"}
    with pytest.raises(UnsupportedError, match=r"nvjpegEncodeYUV.*cuda13"):
        Library(nvjpeg, "libnvjpeg.so")


@pytest.fixture
def _afresh():
    for cached in (load, library_module._handle):
        cached.cache_clear()
    yield
    for cached in (load, library_module._handle):
        cached.cache_clear()


def pathfinder(monkeypatch, load_nvidia_dynamic_lib):
    """Stand in for NVIDIA's finder; None: it is not installed."""
    import sys
    import types

    module = None
    if load_nvidia_dynamic_lib is not None:
        monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
        module = types.ModuleType("cuda.pathfinder")
        module.load_nvidia_dynamic_lib = load_nvidia_dynamic_lib
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", module)


@pytest.mark.usefixtures("_afresh")
def test_without_a_library_people_are_told_what_to_install(monkeypatch):
    def nothing(name):
        raise RuntimeError(f"{name} was not found")

    pathfinder(monkeypatch, nothing)
    with pytest.raises(UnsupportedError, match=r"not installed: .*cuda13"):
        load()
    pathfinder(monkeypatch, None)
    with pytest.raises(UnsupportedError, match=r"looked for .*cuda13"):
        find()


@pytest.mark.usefixtures("_afresh")
def test_a_library_that_cannot_be_loaded_is_told(monkeypatch, tmp_path):
    broken = tmp_path / "libnvjpeg.so.13"
    broken.write_bytes(b"nothing")
    monkeypatch.setattr(library_module, "find", lambda: str(broken))
    with pytest.raises(UnsupportedError, match=r"libnvjpeg.so.13.*cuda13"):
        load()


@pytest.mark.usefixtures("_afresh")
def test_a_library_that_is_found_is_kept_and_has_a_handle_for_each_gpu(monkeypatch, nvjpeg):
    found = []
    monkeypatch.setattr(library_module, "find", lambda: found.append(1) or "here")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: nvjpeg)
    assert load() is load()
    assert found == [1]
    nvjpeg.failing["nvjpegCreateSimple"] = 1
    with pytest.raises(DeviceError, match="NOT_INITIALIZED"):
        handle(0)
    del nvjpeg.failing["nvjpegCreateSimple"]
    assert [handle(0).value, handle(1).value, handle(0).value] == [101, 102, 101]
    assert nvjpeg.live == [101, 102]
