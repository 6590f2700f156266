"""Sources of kernels, compiled for the CPU and loaded: what a GPU runs is tested without one."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

__all__ = ["compiled", "needs_compiler"]


def needs_compiler():
    """Skip the test where there is no compiler; fail it where there has to be one."""
    if shutil.which("g++"):
        return
    (pytest.fail if os.environ.get("CI") else pytest.skip)("no g++, which kernels are tested with")


@functools.cache
def compiled(source, *options):
    """Return C++ as a loaded library.

    Parameters
    ----------
    source
        With whatever stands for CUDA's words.
    options
        Of g++, besides those that make a library of it.
    """
    needs_compiler()
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        text.write_text(source, encoding="utf-8")
        command = ["g++", *options, "-shared", "-fPIC", str(text), "-o", str(library)]
        subprocess.run(command, check=True, timeout=100)
        return ctypes.CDLL(str(library))
