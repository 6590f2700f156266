"""A program that PyInstaller froze: streams, the command line, and processes of its own."""

import json
import os
import runpy
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import cuframes_nb
from tests.helpers.children import ROOT
from tests.helpers.frozen import HOOKS, SECONDS, freeze, ran, started

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


RUNTIME_HOOK = HOOKS / "rthooks/pyi_rth_cuframes_nb.py"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Freeze the program, once, and return it. Films are left out: they are most of its size."""
    return freeze(tmp_path_factory.mktemp("frozen"), "--exclude-module", "av")


def test_two_frozen_processes_share_frames(program, runtime_dir):
    publisher = started(program, "publish", "cam1", "pattern", "--memory", "host")
    try:
        code, out, err = ran(program, "read", "cam1")
        assert (code, err) == (0, "")
        device, width, height, pixels, drawn = out.split()
        assert (device, pixels, drawn) == ("cpu", "nv12", "True")
        assert int(width) > 0 < int(height)
        code, out, _ = ran(program, "ls", "--json")
        assert [stream["key"] for stream in json.loads(out)] == ["cam1"]
    finally:
        publisher.send_signal(signal.SIGINT)
        _, err = publisher.communicate(timeout=SECONDS)
    assert publisher.returncode == 0, err
    assert not list(runtime_dir.glob("*.sock"))


def test_the_demo_starts_its_second_process_and_draws(program, tmp_path, runtime_dir):
    out = tmp_path / "demo.png"
    code, said, err = ran(
        program, "demo", "--no-lab", "--memory", "host", "--seconds", "2", "--out", out
    )
    assert (code, err) == (0, "")
    assert "fps" in said  # of the watching process
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert not list(runtime_dir.glob("*.sock"))


def test_its_doctor_tries_things_in_processes_of_the_program(program):
    code, out, err = ran(program, "doctor", "--json")
    assert (code, err) == (0, "")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["Python"]["found"].endswith(f"({program})")
    assert checks["host memory"]["status"] == "ok"
    assert checks["numpy"]["status"] == "ok"
    assert checks["av"]["status"] == "missing"  # left out, and not found elsewhere


def test_it_lists_gpus(program):
    code, out, err = ran(program, "devices", "--json")
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out), list)
    assert ran(program, "--version")[1].strip() == cuframes_nb.__version__


def test_what_nobody_asked_for_is_not_in_it(program):
    inside = {path.name for path in (program.parent / "_internal").iterdir()}
    assert "numpy" in inside
    assert not inside & {"IPython", "ipykernel", "jedi", "matplotlib", "torch", "av"}


# --- The hooks, without a program -----------------------------------------------------------------


def test_pyinstaller_finds_the_hooks():
    (found,) = (
        point
        for point in entry_points(group="pyinstaller40", name="hook-dirs")
        if point.value.startswith("cuframes_nb.")
    )
    assert [Path(path) for path in found.load()()] == [HOOKS]


def test_the_live_view_has_its_files_and_modules():
    pytest.importorskip("PyInstaller")
    hook = runpy.run_path(str(HOOKS / "hook-cuframes_nb.notebook.py"))
    files = {Path(source).name for source, _ in hook["datas"]}
    assert {"viewer.js", "viewer.css"} <= files
    assert {"cuframes_nb.notebook.widget", "cuframes_nb.notebook.viewing"} <= set(
        hook["hiddenimports"]
    )


def hooked(*arguments):
    """Run a program that begins with the runtime hook, as a frozen one does."""
    code = f"import runpy; runpy.run_path({str(RUNTIME_HOOK)!r}); print('the program')"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, check=False, timeout=SECONDS, cwd=ROOT,
    )  # fmt: skip
    return run.stdout.strip()


def test_a_program_runs_our_modules_and_no_others():
    assert hooked("-P", "-m", "cuframes_nb.cli", "--version") == cuframes_nb.__version__
    assert hooked("-m", "json.tool") == "the program"
    assert hooked("-m") == hooked("-P") == hooked("serve", "-m", "cuframes_nb.cli") == "the program"
    assert hooked("-m", "cuframes_nbx") == "the program"


@pytest.mark.parametrize(
    ("nvrtc", "headers"),
    [("cu13", "cu13"), ("cuda_nvrtc", "cuda_runtime")],
    ids=["one tree", "a tree a package"],
)
def test_cudas_files_come_into_one_place(nvrtc, headers, tmp_path):
    """With packages that have the files and nothing in them: only their names count here."""
    pytest.importorskip("PyInstaller")
    for name in (
        f"nvidia/{nvrtc}/lib/libnvrtc.so.13",
        f"nvidia/{nvrtc}/lib/libnvrtc-builtins.so.13.5",
        f"nvidia/{headers}/lib/libcudart.so.13",
        f"nvidia/{headers}/include/cuda_fp16.h",
        f"nvidia/{headers}/include/crt/host_defines.h",
        "nvidia/cublas/lib/libcublas.so.13",
        "nvidia/cublas/lib/libcublas_static.a",
        "cupy/_core/include/cupy/carray.cuh",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "cupy/__init__.py").write_text("import graphlib\n")
    hook = HOOKS / "hook-cuframes_nb.py"
    code = (
        f"import json, runpy; hook = runpy.run_path({str(hook)!r});"
        "print(json.dumps([hook['hiddenimports'], hook['datas'], hook['binaries']]))"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=True, timeout=SECONDS,
    )  # fmt: skip
    names, datas, binaries = json.loads(run.stdout)
    assert {"graphlib", "cupy", "cuframes_nb._cuda.devices"} <= set(names)
    assert not any(name.startswith("cuframes_nb.notebook") for name in names)
    placed = {(Path(file).name, target) for file, target in [*datas, *binaries]}
    assert {
        ("libnvrtc.so.13", "cuda/lib"),
        ("libnvrtc-builtins.so.13.5", "cuda/lib"),
        ("libnvrtc-builtins.so.13.5", "."),
        ("libcudart.so.13", "cuda/lib"),
        ("cuda_fp16.h", "cuda/include"),
        ("host_defines.h", "cuda/include/crt"),
        ("carray.cuh", "cupy/_core/include/cupy"),
    } <= placed
    assert not any("cublas" in file for file, _ in placed)


@pytest.mark.parametrize("set_by_a_person", [False, True])
def test_a_program_with_cudas_files_points_to_them(set_by_a_person, tmp_path):
    (tmp_path / "cuda").mkdir()
    code = (
        f"import os, runpy, sys; sys._MEIPASS = {str(tmp_path)!r};"
        f"runpy.run_path({str(RUNTIME_HOOK)!r}); print(os.environ.get('CUDA_PATH'))"
    )
    environment = {name: value for name, value in os.environ.items() if name[:5] != "CUDA_"}
    if set_by_a_person:
        environment["CUDA_HOME"] = "/opt/cuda"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ("None" if set_by_a_person else f"{tmp_path}/cuda")
