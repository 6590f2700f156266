"""The publisher in C of the documentation: built, run, and its pattern drawn once more in NumPy."""

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers.children import ROOT

__all__ = [
    "SLOTS",
    "SOURCE",
    "STRICT_C",
    "Running",
    "build",
    "check",
    "cuda_headers",
    "hold",
    "needs_compiler",
    "picture",
    "running",
    "wrong",
]

SOURCE = ROOT / "docs/how-to/examples/publisher.c"
STRICT_C = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SLOTS = 6  #: as in the file

BARS = [
    (180, 128, 128), (168, 44, 136), (145, 147, 44), (133, 63, 52),
    (63, 193, 204), (51, 109, 212), (28, 212, 120), (16, 128, 128),
]  # fmt: skip
WHITE, BLACK = (235, 128, 128), (16, 128, 128)


def needs_compiler(name="gcc"):
    """Skip the test where there is no compiler; fail it where there has to be one."""
    if not shutil.which(name):
        skips = not os.environ.get("CI") or name != "gcc"
        (pytest.skip if skips else pytest.fail)(f"no {name}, which compiles the publisher in C")


def cuda_headers():
    """Return the folder with ``cuda.h``; skip the test where there is none."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr"]
    for home in filter(None, homes):
        if (Path(home) / "include/cuda.h").is_file():
            return Path(home) / "include"
    return pytest.skip("no cuda.h, which the publisher in C is built with: set CUDA_HOME")


def build(program, *options, compiler="gcc", libraries=()):
    """Compile the file without a warning and return the program."""
    command = [compiler, *STRICT_C, *options, "-o", str(program), str(SOURCE), *libraries]
    run = subprocess.run(command, capture_output=True, check=False, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    return program


# --- Running --------------------------------------------------------------------------------------


class Running:
    """A publisher in C that has said that it listens."""

    def __init__(self, process, errors):
        self.process = process
        self.pid = process.pid
        self.told = process.stdout.readline()
        self._errors = errors
        self.count_again()

    def end(self, number=15, seconds=30):
        """Send a signal, if it still runs, and return its status once it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def has_only(self, subscribers=0):
        """Whether it has no more descriptors open than for so many subscribers."""
        return self._descriptors() <= self._alone + 2 * subscribers

    def count_again(self):
        """Take what it has open now for what it has open when it is alone."""
        self._alone = self._descriptors()

    def let_open(self, spare):
        """Let it open so many descriptors more than it has; None for as many as it likes."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        soft = hard if spare is None else self._descriptors() + spare
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def stderr(self):
        """Return what it has printed there, such as what a sanitizer found."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _descriptors(self):
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextlib.contextmanager
def running(program, key="cam", *, width=320, height=180, fps=200, frames=()):
    """Run a publisher in C; at the end it must end well if it was not killed, and print no error.

    Parameters
    ----------
    frames
        After how many it ends by itself, as a tuple of one.
    """
    arguments = [program, key, width, height, fps, *frames]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [str(argument) for argument in arguments],
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},  # it never calls malloc
            stderr=errors,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        it = Running(process, errors)
        try:
            assert it.told, it.stderr()
            yield it
            status = it.end()
            assert status in {0, -9}, f"it ended with {status}: {it.stderr()}"
            assert it.stderr() == ""
        finally:
            process.kill()


# --- Pixels ---------------------------------------------------------------------------------------


def picture(number, width, height):
    """Return the planes of a frame with that number."""
    y = np.full((height, width), 0, np.uint8)
    uv = np.full((-(-height // 2), -(-width // 2), 2), 0, np.uint8)

    def rectangle(left, top, columns, rows, colour):
        right, bottom = left + columns, top + rows
        y[top:bottom, left:right] = colour[0]
        uv[top // 2 : (bottom + 1) // 2, left // 2 : (right + 1) // 2] = colour[1:]

    edges = [width * i // 8 & ~1 for i in range(8)] + [width]
    for colour, left, right in zip(BARS, edges, edges[1:], strict=False):
        if left < right:
            rectangle(left, 0, right - left, height, colour)
    rectangle(number * 4 % width & ~1, 0, (width // 16 & ~1) + 2, height, WHITE)
    square = width // 34 & ~1
    rectangle(0, 0, 34 * square, 3 * square, BLACK)
    for bit in range(32):
        if number >> bit & 1:
            rectangle((bit + 1) * square, square, square, square, WHITE)
    return y, uv


def wrong(planes, number):
    """Return what is wrong with the planes of frame `number`, "" if nothing is."""
    height, width = planes[0].shape
    for index, (plane, expected) in enumerate(
        zip(planes, picture(number, width, height), strict=True)
    ):
        bad = np.argwhere(np.asarray(plane) != expected)
        if len(bad):
            return f"plane {index} of frame {number} differs in {len(bad)} bytes from {bad[0]} on"
    return ""


def check(frame):
    """Assert that the frame's pixels are those of its number."""
    assert wrong(frame.planes, frame.seq) == ""


# --- Another process ------------------------------------------------------------------------------


def hold(link, key, count=1):
    """Hold so many frames; say what they show whenever asked."""
    with cf.subscribe(key, timeout=30, name="holder") as sub:
        frames = [sub.next(timeout=30) for _ in range(count)]
        link.say("holds", seqs=[frame.seq for frame in frames])
        with contextlib.suppress(EOFError):
            while True:
                link.hear("look")
                link.say("sees", wrong=[wrong(frame.planes, frame.seq) for frame in frames])
        for frame in frames:
            frame.release()
