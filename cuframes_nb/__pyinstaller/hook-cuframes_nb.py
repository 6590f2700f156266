"""PyInstaller: names are loaded when they are first used, which no look at the code shows."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from PyInstaller import isolated
from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

_LATER = ("cuframes_nb.notebook", "cuframes_nb.__pyinstaller")
"""Jupyter is large, and few frozen programs have it: `cuframes_nb.notebook` has its own hook."""

_LIBRARIES = ("libcudart.so.*", "libnvrtc.so.*", "libnvrtc-builtins.so.*", "libnvjpeg.so.*")
_HEADERS = ("*.h", "*.hpp", "crt/*", "nv/**/*", "cccl/nv/**/*")
"""What CuPy and this package load and compile with, of NVIDIA's wheels, which have gigabytes."""


def _ours(name: str) -> bool:
    return not name.startswith(_LATER)


def _of_use(name: str) -> bool:
    return not name.startswith("cupy.testing")  # it brings pytest


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


def _loaded_by(package: str) -> list[str]:
    """Return what is loaded with a package. Its Cython modules import what nobody sees."""
    import sys

    try:
        __import__(package)
    except Exception:  # noqa: BLE001  without it, the program is as this machine is
        return []
    modules = {name: module for name, module in sys.modules.items() if name[0] != "_"}
    return [name for name, module in modules.items() if getattr(module, "__spec__", None)]


def _from_nvidia(folder: str, patterns: tuple[str, ...], target: str) -> Iterator[tuple[str, str]]:
    """Yield files of a folder of NVIDIA's wheels, and where they go: all into one place.

    The wheels of CUDA 13 are one tree, those of CUDA 12 a tree each.
    """
    spec = importlib.util.find_spec("nvidia")
    for root in (spec and spec.submodule_search_locations) or ():
        for at in Path(root).glob(f"*/{folder}"):
            for file in (file for pattern in patterns for file in at.glob(pattern)):
                if file.is_file():
                    yield str(file), str(Path(target) / file.relative_to(at).parent)


hiddenimports = collect_submodules("cuframes_nb", filter=_ours)
datas: list[tuple[str, str]] = []
binaries: list[tuple[str, str]] = []
with contextlib.suppress(PackageNotFoundError):  # used from a checkout that is not installed
    datas += copy_metadata("cuframes-nb")

# What this package does without, or has only where the program loads it: each brings much more.
excludedimports = [
    "cuframes_nb.notebook", "IPython", "cv2", "jax", "matplotlib", "rich", "torch", "tqdm",
]  # fmt: skip

# Cython modules, whose imports no look at the code shows either.
for _package in ("cuda.bindings", "cuda.pathfinder", "cupy", "cupy_backends", "fastrlock"):
    if _there(_package):
        hiddenimports += collect_submodules(_package, filter=_of_use, on_error="ignore")
for _package in ("cuda.bindings.driver", "cupy"):
    if _there(_package):
        hiddenimports += isolated.call(_loaded_by, _package)
if _there("cupy"):
    datas += collect_data_files("cupy")  # its kernels' headers
    # The runtime hook points CUDA_PATH here.
    datas += _from_nvidia("include", _HEADERS, "cuda/include")
    binaries += _from_nvidia("lib", _LIBRARIES, "cuda/lib")
    # NVRTC is linked into the top directory, and looks for this one beside itself.
    binaries += _from_nvidia("lib", ("libnvrtc-builtins.so.*",), ".")
