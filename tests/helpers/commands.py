"""``cuframes-nb`` as a shell runs it: its streams are pipes, or a terminal."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import psutil

from tests.helpers.children import child_env

__all__ = ["Terminal", "command", "ended", "in_terminal", "ran", "running"]

PROGRAM = (sys.executable, "-m", "cuframes_nb.cli")
SECONDS = 60.0


def command(*arguments, env=None, program=PROGRAM, **options):
    """Start the command, with pipes."""
    return subprocess.Popen(
        [*program, *map(str, arguments)],
        env=child_env(**(env or {})), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


def ended(process):
    """Return the exit code, and what was written on stdout and stderr."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def ran(*arguments, **options):
    """Return how the command ended, and what it wrote on stdout and stderr."""
    return ended(command(*arguments, **options))


@contextlib.contextmanager
def running(*arguments, **options):
    """Run the command; what is left of it and of the processes it started is killed afterwards."""
    process = command(*arguments, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


@contextlib.contextmanager
def in_terminal(*arguments, columns=100, lines=24, env=None):
    """Run the command in a terminal of its own; it has ended after the block."""
    ours, theirs = pty.openpty()
    try:
        terminal = Terminal(ours, theirs)
        terminal.resize(columns, lines)
        process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            env=child_env(**{"TERM": "xterm-256color", **(env or {})}), start_new_session=True,
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        with process:
            terminal.process = process
            try:
                yield terminal
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)


class Terminal:
    """The near side of a terminal. Made by `in_terminal`."""

    def __init__(self, ours, theirs):
        self._ours, self._theirs = ours, theirs
        self.process = None
        self.written = ""
        self._bytes = b""

    def resize(self, columns, lines):
        """Give the terminal another size; the caller signals it."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)

    @property
    def modes(self):
        """How the terminal treats what is typed and written."""
        return termios.tcgetattr(self._theirs)

    def until(self, text, count=1):
        """Read until a text was written so often; return all that was written."""
        deadline = time.monotonic() + SECONDS
        while self.written.count(text) < count:
            left = deadline - time.monotonic()
            assert left > 0, (text, self.written)
            self._read(left)
        return self.written

    def ended(self):
        """Return the exit code, once all was read."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:  # it may wait for us to read
            assert time.monotonic() < deadline, self.written
            self._read(0.02)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, seconds):
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        self._bytes += os.read(self._ours, 65536)
        self.written = self._bytes.decode(errors="replace")
        return True
