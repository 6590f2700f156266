"""Programs that PyInstaller froze: made, and run without anything of this interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cuframes_nb
from tests.helpers.children import ROOT

__all__ = ["HOOKS", "SECONDS", "freeze", "ran", "started"]

HOOKS = Path(cuframes_nb.__file__).parent / "__pyinstaller"
SECONDS = 60
_BUILD_SECONDS = 240


def freeze(path, *options):
    """Freeze ``tests/helpers/frozen_program.py`` in a directory and return it."""
    pytest.importorskip("PyInstaller")
    # A checkout that is not installed has no entry point; the hooks of one that is are found twice.
    where = ["--paths", ROOT, "--additional-hooks-dir", HOOKS]
    command = [
        sys.executable, "-m", "PyInstaller", "--noconfirm", "--onedir", "--log-level", "WARN",
        "--specpath", path, "--distpath", path, "--workpath", path / "work", "--name", "program",
        *where, *options, ROOT / "tests/helpers/frozen_program.py",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=path, timeout=_BUILD_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return path / "program/program"


def started(program, *arguments):
    """Start it, with pipes. What is not in the program is not there."""
    environment = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    return subprocess.Popen(
        [program, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip


def ran(program, *arguments):
    """Return how it ended, and what it wrote on stdout and stderr."""
    process = started(program, *arguments)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err
