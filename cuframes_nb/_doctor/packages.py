"""The packages that may be here: imported, not only looked up."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Final, NamedTuple

from cuframes_nb._doctor.checks import Check, Status

__all__ = ["PACKAGES", "Package", "look_at_packages"]


class Package(NamedTuple):
    """A package that something of ours uses."""

    name: str
    distributions: tuple[str, ...]  #: under which it may be installed
    module: str  #: to import; empty for a program, which is run and not imported
    use: str
    extra: str  #: what brings it


PACKAGES: Final = (
    Package("numpy", ("numpy",), "numpy", "frames", ""),
    Package("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "cupy", "frames on a GPU", "cuda13"),
    Package(
        "cuda-bindings", ("cuda-bindings",), "cuda.bindings.driver", "frames on a GPU", "cuda13"
    ),
    Package("nvidia-ml-py", ("nvidia-ml-py",), "pynvml", "the list of GPUs", "cuda13"),
    Package("av", ("av",), "av", "films and cameras", "video"),
    Package("simplejpeg", ("simplejpeg",), "simplejpeg", "the live view", "lab"),
    Package("pillow", ("pillow",), "PIL.Image", "the live view", "lab"),
    Package("anywidget", ("anywidget",), "anywidget", "the live view", "lab"),
    Package("ipywidgets", ("ipywidgets",), "ipywidgets", "the live view", "lab"),
    Package("ipykernel", ("ipykernel",), "ipykernel", "notebooks", "lab"),
    # It takes seconds to import, and nothing of ours does.
    Package("jupyterlab", ("jupyterlab",), "", "notebooks", "lab"),
    Package("rich", ("rich",), "rich", "tables in a terminal", "demo"),
)


def look_at_packages() -> Iterator[Check]:
    """Yield each package, in a process where nobody minds that they are loaded."""
    wanted = least_versions()
    for package in PACKAGES:
        yield _look(package, wanted)


def _look(package: Package, wanted: dict[str, str]) -> Check:
    distribution, version = _installed(package)
    error = _import_error(package.module)
    install = _command(package)
    status, found, advice = Status.OK, version, ""
    if error and version:
        status, found, advice = Status.FAILED, f"{version}, but {error}", f"once more: {install}"
    elif error or not (version or package.module):
        status, found, advice = Status.MISSING, f"for {package.use}", install
    elif (least := wanted.get(distribution, "")) and older(version, least):
        status, found = Status.WARN, f"{version}, and {least} or newer is asked for"
        advice = f"pip install -U {distribution}"
    needed = not package.extra
    return Check("packages", package.name, status, found or "without a version", advice, needed)


def _command(package: Package) -> str:
    """Return what installs a package, as this package asks for it."""
    if not package.extra:
        return f"pip install {package.name}"
    command = f"pip install 'cuframes-nb[{package.extra}]'"
    if package.extra == "cuda13":
        command += ", or with [cuda12] for a driver older than 580"
    return command


def _installed(package: Package) -> tuple[str, str]:
    """Return the distribution that is installed and its version, empty if none is."""
    for name in package.distributions:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return name, metadata.version(name)
    return "", ""


def _import_error(module: str) -> str:
    if not module:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except Exception as error:  # noqa: BLE001  libraries raise what they like when they load
        return f"it cannot be imported ({type(error).__name__}: {error})"
    return ""


def least_versions() -> dict[str, str]:
    """Return which version of what this package asks for, all extras included."""
    try:
        lines = metadata.requires("cuframes-nb") or []
    except metadata.PackageNotFoundError:  # used from a checkout that is not installed
        return {}
    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\d.]+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def older(version: str, least: str) -> bool:
    """Whether a version is older than another, by the numbers that both begin with."""
    first, second = ([int(n) for n in re.findall(r"\d+", v)] for v in (version, least))
    return first[: len(second)] < second
