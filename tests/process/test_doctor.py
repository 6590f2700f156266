"""``cuframes-nb doctor`` and its trials, on this machine and on ones that lack things."""

import json
import os
import signal
import stat
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest

from cuframes_nb._doctor import codecs, decoding, sharing, system
from cuframes_nb._doctor.apart import apart
from cuframes_nb._doctor.checks import Check, Status, Trial, outcomes
from cuframes_nb._doctor.examination import TRIALS, examine
from cuframes_nb.errors import DeviceError
from tests.helpers.commands import in_terminal, ran

pytestmark = pytest.mark.process

TEMPORARY = Path(tempfile.gettempdir())


def left():
    """Return what trials might leave behind."""
    return set(TEMPORARY.glob("cuframes-*"))


def crash():
    yield Check("a", "before", Status.OK, "fine")
    os.kill(os.getpid(), signal.SIGSEGV)


def leave():
    os._exit(3)


def hang():
    while True:
        time.sleep(1)
    yield


def print_things():
    os.write(1, b"not a check\n")
    os.write(2, b"said before the end\n")
    print("nor this")  # noqa: T201  what a library may do
    yield Check("a", "it", Status.OK, "fine")


def cannot():
    raise RuntimeError("oh")


# --- On this machine ------------------------------------------------------------------------------


def test_all_is_well_here_and_nothing_stays(runtime_dir):
    before = left()
    code, out, err = ran("doctor", "--json")
    found = json.loads(out)
    assert (code, err, found["works"]) == (0, "", True)
    status = {check["name"]: check["status"] for check in found["checks"]}
    for name in ("Python", "sealed memory", "record locks", "runtime directory", "host memory"):
        assert status[name] == "ok"
    for name in ("numpy", "av", "ffv1", "h264"):
        assert status[name] == "ok"
    for what in ("decoding on", "JPEG on", "h264 on"):  # a GPU, or each by its number
        found_on = [status[name] for name in status if name.startswith(what)]
        assert found_on
        assert set(found_on) <= {"ok", "missing"}
    assert all(c["advice"] for c in found["checks"] if c["status"] == "failed")
    assert list(runtime_dir.iterdir()) == []
    assert left() == before


def test_people_are_told_what_to_do(runtime_dir):
    runtime_dir.chmod(0o777)
    with in_terminal("doctor", columns=80, lines=100) as terminal:
        assert terminal.ended() == 1
    lines = terminal.written.splitlines()
    assert "Frames cannot be shared here" in lines[-1]
    assert any(line.startswith("  ✓ ok       numpy ") for line in lines)
    assert any(line.startswith("  ✗ failed   runtime directory  /") for line in lines)
    assert "run 'chmod go-w" in " ".join(terminal.written.split())
    assert "\x1b" not in terminal.written


# --- Trials in a process of their own -------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (crash, "was ended by SIGSEGV"),
        (leave, "ended with status 3"),
        (cannot, "RuntimeError: oh"),
    ],
)
def test_a_trial_that_ends_badly_is_told(look, words):
    *before, last = apart(Trial("group", "it", look, needed=True))
    assert [check.name for check in before] == (["before"] if look is crash else [])
    assert (last.group, last.name, last.status, last.needed) == ("group", "it", "failed", True)
    assert words in last.found


def test_a_trial_that_hangs_is_ended_and_its_directory_removed():
    before = left()
    (check,) = apart(Trial("group", "it", hang), seconds=0.5)
    assert "did not end within 0.5 s" in check.found
    assert left() == before


def test_what_a_library_prints_is_no_check():
    (check,) = apart(Trial("group", "it", print_things))
    assert check.found == "fine"


def test_a_trial_without_a_process_is_told(monkeypatch):
    monkeypatch.setattr("sys.executable", "/no/such/python")
    (check,) = examine([(Trial("group", "it", print_things), apart)])
    assert check.status is Status.FAILED
    assert "/no/such/python" in check.found


def test_trials_are_told_in_their_order():
    assert len({trial.name for trial, _ in TRIALS}) == len(TRIALS)
    trials = [
        (Trial("g", "slow", crash), apart),
        (Trial("g", "fast", system.look_at_python), outcomes),
    ]
    assert [check.name for check in examine(trials)][:3] == ["before", "slow", "Python"]


# --- Single trials --------------------------------------------------------------------------------


def only(look):
    (check,) = look()
    return check


def test_a_directory_that_is_there_is_tried(runtime_dir):
    check = only(system.look_at_directory)
    assert check.status is Status.OK
    assert check.found.startswith(f"{runtime_dir}, from $CUFRAMES_RUNTIME_DIR, mode 0700, of user ")
    assert list(runtime_dir.iterdir()) == []


def test_a_directory_that_is_not_there_is_not_made(runtime_dir, monkeypatch):
    missing = runtime_dir / "a" / "b"
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(missing))
    check = only(system.look_at_directory)
    assert (check.status, missing.parent.exists()) == (Status.OK, False)
    assert "made by the first publisher" in check.found


def test_a_long_path_leaves_no_room_for_keys(runtime_dir, monkeypatch):
    for length, status in ((60, Status.WARN), (200, Status.FAILED)):
        path = runtime_dir / ("d" * length)
        path.mkdir(mode=0o700)
        monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(path))
        assert only(system.look_at_directory).status is status
        assert list(path.iterdir()) == []


def test_a_file_in_its_place_is_told(runtime_dir, monkeypatch):
    path = runtime_dir / "file"
    path.touch()
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(path))
    check = only(system.look_at_directory)
    assert (check.status, check.needed) == (Status.FAILED, True)
    assert "something else" in check.advice


@pytest.mark.parametrize(
    ("chosen", "origin"), [("xdg", "from $XDG_RUNTIME_DIR"), ("", "the last resort")]
)
def test_the_directory_is_the_one_that_a_publisher_takes(chosen, origin, runtime_dir, monkeypatch):
    from cuframes_nb._os import runtime_dir as directories

    monkeypatch.delenv("CUFRAMES_RUNTIME_DIR")
    monkeypatch.setattr(directories, "_SYSTEM_DIR", runtime_dir / "no" / "cuframes")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_dir if chosen else runtime_dir / "no"))
    assert origin in only(system.look_at_directory).found
    if chosen:
        assert directories.expected_dir() == directories.publisher_dir()
        assert stat.S_IMODE((runtime_dir / "cuframes").stat().st_mode) == 0o700


def test_few_descriptors_are_warned_of(monkeypatch):
    for soft, status in ((256, Status.WARN), (1024, Status.OK), (-1, Status.OK)):
        monkeypatch.setattr(system.resource, "getrlimit", lambda _, soft=soft: (soft, 4096))
        assert only(system.look_at_limits).status is status
    monkeypatch.setattr(system.resource, "getrlimit", lambda _: (256, 4096))
    assert "about 96 subscribers" in only(system.look_at_limits).found


def test_a_kernel_that_lets_a_writer_in_is_told(monkeypatch):
    from cuframes_nb._os import locks

    monkeypatch.setattr(locks.WriteLock, "try_acquire", lambda *_: True)
    sealed, locked = sharing.look_at_kernel()
    assert (sealed.status, locked.status) == (Status.OK, Status.FAILED)
    assert locked.needed


def test_a_full_machine_is_told(monkeypatch):
    def fail(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(sharing, "share", fail)
    check = only(sharing.look_at_host_memory)
    assert (check.status, check.advice) == (
        Status.FAILED, "free memory, or raise the container's limit",
    )  # fmt: skip


def test_without_pyav_there_are_no_films(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    check = only(codecs.look_at_codecs)
    assert (check.status, check.advice) == (Status.MISSING, "pip install 'cuframes-nb[video]'")


# --- Decoding on a GPU ----------------------------------------------------------------------------


@pytest.fixture
def nvdec(monkeypatch):
    """Have a GPU whose NVDEC does with each film what `decode` says; it can be changed."""

    def decoded(film, accel):
        assert accel == "accel"
        assert film.getbuffer().nbytes > 100
        return fake.decode()

    def device_count():
        if fake.no_gpu:
            raise DeviceError(fake.no_gpu)
        return fake.gpus

    fake = types.SimpleNamespace(decode=lambda: [("cuda", "nv12")], no_gpu="", gpus=1)
    monkeypatch.setattr(decoding, "_accelerator", lambda _: "accel")
    monkeypatch.setattr(decoding, "_decoded", decoded)
    monkeypatch.setattr("cuframes_nb._cuda.devices.device_count", device_count)
    monkeypatch.setattr(decoding.ctypes, "CDLL", lambda name: name)
    return fake


def refused():
    import av

    raise av.error.PermissionError(1, "Operation not permitted")


def test_what_nvdec_decodes_is_told(nvdec):
    check = only(decoding.look_at_decoding)
    assert (check.name, check.status, check.advice) == ("decoding on GPU 0", Status.OK, "")
    assert check.found == "h264, hevc, av1: a frame decoded by NVDEC"


def test_each_gpu_decodes_by_itself(nvdec):
    nvdec.gpus, answers = 2, iter([None, None, None, refused, refused, refused])

    def decode():
        return [("cuda", "nv12")] if (fail := next(answers)) is None else fail()

    nvdec.decode = decode
    found = [(check.name, check.status) for check in decoding.look_at_decoding()]
    assert found == [
        ("decoding on GPU 0", Status.OK), ("decoding on GPU 1", Status.MISSING),
    ]  # fmt: skip


def test_a_codec_that_stays_with_the_cpu_is_named(nvdec):
    answers = iter([None, None, RuntimeError("no stream is compatible")])

    def decode():
        if error := next(answers):
            raise error
        return [("cuda", "nv12")]

    nvdec.decode = decode
    check = only(decoding.look_at_decoding)
    assert check.status is Status.OK
    assert check.found == (
        "h264, hevc: a frame decoded by NVDEC; not av1: FFmpeg's first decoder for it is one for "
        "the CPU"
    )


def test_frames_that_did_not_come_back_on_the_gpu_do_not_count(nvdec):
    for frames, words in (
        ([("yuv420p", "in main memory")], "it came back as yuv420p in main memory"),
        ([], "one frame was coded, and 0 came back"),
    ):
        nvdec.decode = lambda frames=frames: frames
        check = only(decoding.look_at_decoding)
        assert check.status is Status.MISSING
        assert f"h264: {words}; hevc: {words}" in check.found


def test_without_a_gpu_that_is_the_reason(nvdec):
    nvdec.decode, nvdec.no_gpu = refused, "the CUDA driver sees no GPU"
    check = only(decoding.look_at_decoding)
    assert (check.status, check.found) == (Status.MISSING, "the CUDA driver sees no GPU")
    assert "by the CPU" in check.advice


def test_a_driver_without_nvdec_is_told_with_what_containers_need(nvdec, monkeypatch):
    def load(name):
        raise OSError(f"{name}: no such file")

    nvdec.decode = refused
    monkeypatch.setattr(decoding.ctypes, "CDLL", load)
    check = only(decoding.look_at_decoding)
    assert (check.status, check.found) == (
        Status.MISSING,
        "there is a GPU, and no NVDEC in its driver: libnvcuvid.so.1: no such file",
    )
    assert "NVIDIA_DRIVER_CAPABILITIES" in check.advice


def test_a_gpu_that_refuses_is_told_in_its_words(nvdec):
    nvdec.decode = refused
    check = only(decoding.look_at_decoding)
    assert check.status is Status.MISSING
    assert check.found.startswith("h264: Operation not permitted; hevc: Operation")
    assert "by the CPU" in check.advice


def test_a_pyav_or_ffmpeg_that_cannot_is_told(monkeypatch):
    monkeypatch.setattr("cuframes_nb._cuda.devices.device_count", lambda: 1)
    hwaccel = types.ModuleType("av.codec.hwaccel")
    hwaccel.HWAccel, hwaccel.hwdevices_available = lambda *_, **__: "accel", lambda: ["vaapi"]
    monkeypatch.setitem(sys.modules, "av.codec.hwaccel", hwaccel)
    check = only(decoding.look_at_decoding)
    assert (check.status, check.advice) == (Status.MISSING, "pip install -U av")
    assert "FFmpeg has no NVDEC" in check.found
    hwaccel.HWAccel = lambda device_type, device: (device_type, device)  # as in PyAV 14
    assert "PyAV 18" in only(decoding.look_at_decoding).found
    del hwaccel.HWAccel
    assert "PyAV 18" in only(decoding.look_at_decoding).found


def test_films_for_nvdec_are_read_as_ffmpeg_does():
    film = codecs.film_of(decoding._encoders("h264")[0])
    assert decoding._decoded(film, None) == [("yuv420p", "in main memory")]


def test_without_pyav_nothing_more_is_said_of_decoding(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    assert list(decoding.look_at_decoding()) == []
