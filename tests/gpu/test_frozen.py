"""A program that PyInstaller froze, on a GPU: CuPy, the bindings and the compiler came along."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cuframes_nb as cf
from tests.helpers.children import child_env
from tests.helpers.frozen import SECONDS, freeze, ran, started

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

_OTHERS = ("av", "IPython", "numba", "pygments", "pytest", "scipy", "setuptools", "torch")
"""What CuPy and others would bring where they are installed, and the program does without."""

_MATHS = (
    "cupy.cuda.cufft", "cupy_backends.cuda.libs.cublas", "cupy_backends.cuda.libs.curand",
    "cupy_backends.cuda.libs.cusolver", "cupy_backends.cuda.libs.cusparse",
    "cupy_backends.cuda.libs.cutensor", "cupy_backends.cuda.libs.nccl", "cupyx._cusolver",
)  # fmt: skip
"""CuPy's doors to CUDA's libraries, which are gigabytes where they are installed."""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Freeze the program, once, and return it."""
    without = [word for name in (*_OTHERS, *_MATHS) for word in ("--exclude-module", name)]
    return freeze(tmp_path_factory.mktemp("frozen"), *without)


@pytest.fixture(autouse=True)
def no_kernels_from_before(monkeypatch):
    """Have each program compile its kernels, rather than take what another interpreter left."""
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")


@pytest.fixture
def publisher(program):
    """Publish a test pattern, drawn by a kernel, in GPU memory."""
    process = started(program, "publish", "cam1", "pattern", "--memory", "cuda")
    yield process
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err


def test_two_frozen_processes_share_frames(program, publisher):
    code, out, err = ran(program, "read", "cam1")  # its frame.rgb() is a kernel, too
    assert (code, err) == (0, "")
    device, width, height, pixels, drawn = out.split()
    assert (device, pixels, drawn) == (f"cuda:{cf.select_device().ordinal}", "nv12", "True")
    assert int(width) > 0 < int(height)
    maps = Path(f"/proc/{publisher.pid}/maps").read_text()
    loaded = {line.split()[-1] for line in maps.splitlines()}
    compilers = [Path(path) for path in loaded if "/libnvrtc" in path]
    assert compilers
    assert all(path.is_relative_to(program.parent) for path in compilers)


def test_who_is_not_frozen_reads_its_frames(publisher):
    with cf.subscribe("cam1", timeout=20) as sub, sub.next(20) as frame:
        assert sub.info.device == cf.select_device().uuid
        assert sub.info.completion == "gpu"
        assert int(frame.y.max()) > int(frame.y.min())


def test_the_demo_runs(program, tmp_path):
    out = tmp_path / "demo.png"
    code, _, err = ran(
        program, "demo", "--no-lab", "--memory", "cuda", "--seconds", "2", "--out", out
    )
    assert (code, err) == (0, "")
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_its_doctor_tries_the_gpu_in_processes_of_the_program(program):
    code, out, err = ran(program, "doctor", "--json")
    assert (code, err) == (0, "")
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    chosen = f"GPU {cf.select_device().ordinal}"
    for name in (chosen, f"{chosen} completion", f"{chosen} older handles"):
        assert found[name]["status"] == "ok", found[name]


# --- Which GPU ------------------------------------------------------------------------------------


def choice(*command):
    """Return the line that says which GPU a publisher would use, and why."""
    done = subprocess.run(
        [*command, "devices"], capture_output=True, text=True, check=True, timeout=SECONDS,
        env=child_env(), cwd="/",
    )  # fmt: skip
    return done.stdout.rstrip().splitlines()[-1]


def test_it_lists_the_same_gpus(program):
    code, out, err = ran(program, "devices", "--json")
    assert (code, err) == (0, "")
    theirs = [(gpu["uuid"], gpu["ordinal"], gpu["name"]) for gpu in json.loads(out)]
    assert theirs == [(gpu.uuid, gpu.ordinal, gpu.name) for gpu in cf.devices()]


@pytest.mark.parametrize("name", ["", "uuid", "ordinal", "pci_bus_id", "GPU-00000000", "fast"])
def test_it_chooses_as_it_does_unfrozen(program, name, monkeypatch):
    gpu = cf.select_device()
    monkeypatch.setenv("CUFRAMES_DEVICE", str(getattr(gpu, name, name)))
    ours = choice(sys.executable, "-m", "cuframes_nb.cli")
    assert choice(program) == ours
    if hasattr(gpu, name):
        assert ours == f"A publisher would use GPU {gpu.ordinal}, {gpu.name}: $CUFRAMES_DEVICE"


def test_a_gpu_that_is_not_there_is_never_replaced(program, monkeypatch):
    monkeypatch.setenv("CUFRAMES_DEVICE", "GPU-00000000")
    with pytest.raises(cf.DeviceError) as unfrozen:
        cf.select_device()
    code, _, err = ran(program, "publish", "cam1", "pattern")
    assert code == 1
    assert str(unfrozen.value) in err
