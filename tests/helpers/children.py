"""Other processes for tests: spawned, timed, spoken to in lines of JSON, never left behind.

The parent::

    with child(programs.publish, "cam1", frames=3) as publisher:
        publisher.expect("ready")
        publisher.send("go", delay=0.1)
        assert publisher.expect("done")["seq"] == 3

The child, a function at the top level of an importable module::

    def publish(link, key, *, frames):
        with cf.Publisher(key, width=64, height=48) as pub:
            link.say("ready")
            link.hear("go")
            ...
            link.say("done", seq=frames)

Arguments and fields are JSON values. Leaving the block closes the child's input, waits for its end
and asserts that it ended well; after an exception the child is killed. Its stderr, and whatever it
prints, is part of every failure's message.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["ROOT", "Child", "Link", "child", "child_env"]

ROOT = Path(__file__).parents[2]
"""The repository: children import the package and the tests from here."""

_BOOT = "from tests.helpers.children import main; main()"


def child_env(**changes):
    """Return the environment for another Python: it imports from here and shows its warnings."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    defaults = {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "PYTHONWARNINGS": "default"}
    return {**os.environ, **defaults, **changes}


@contextlib.contextmanager
def child(target, *args, seconds=30.0, env=None, **kwargs):
    """Run ``target(link, *args, **kwargs)`` in a fresh interpreter.

    Parameters
    ----------
    target
        The function, or its name as ``"package.module:function"``.
    seconds
        How long to wait for each message, and for the end.
    env
        Changes to the environment.
    """
    name = target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"
    with Child(name, args, kwargs, seconds=seconds, env=child_env(**(env or {}))) as it:
        try:
            yield it
            it.stop()
        except BaseException as exc:
            it.kill()
            exc.add_note(f"stderr of {name}:\n{it.stderr()}")
            raise


class Child:
    """The parent's end. Made by `child`."""

    def __init__(self, name, args, kwargs, *, seconds, env):
        self.name = name
        self._seconds = seconds
        self._received = b""
        self._killed = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, name, json.dumps(args), json.dumps(kwargs)],
            bufsize=0,
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    @property
    def pid(self):
        return self._process.pid

    @property
    def alive(self):
        return self._process.poll() is None

    def send(self, kind, **fields):
        """Send a message to the child."""
        self._process.stdin.write(_line(kind, fields))

    def expect(self, kind, *, seconds=None):
        """Return the fields of the child's next message, which has to be ``kind``."""
        line = self._next_line(time.monotonic() + (seconds or self._seconds))
        assert line is not None, f"{self.name} ended instead of saying {kind!r}"
        got, fields = json.loads(line)
        assert got == kind, f"{self.name} said {got!r} {fields} instead of {kind!r}"
        return fields

    def signal(self, number):
        """Send a signal, such as ``SIGSTOP`` or ``SIGCONT``."""
        self._process.send_signal(number)

    def kill(self):
        """End the child at once with ``SIGKILL``, and reap it. Idempotent."""
        if self.alive:
            self._killed = True
            self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        """Close the child's input, wait for its end and assert that it ended well. Idempotent."""
        self._process.stdin.close()
        status = self._process.wait(self._seconds)
        assert self._killed or status == 0, f"{self.name} ended with status {status}"

    def stderr(self):
        """Return what the child has printed so far."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def _next_line(self, deadline):
        """Return the next line, or None at the end of the child's output."""
        stdout = self._process.stdout
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise TimeoutError(f"{self.name} said nothing in time")
            data = os.read(stdout.fileno(), 65536)
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line


class Link:
    """The child's end: the first argument of its function."""

    def __init__(self, receive, send):
        self._receive = receive
        self._send = send

    def say(self, kind, **fields):
        """Send a message to the parent."""
        self._send.write(_line(kind, fields))

    def hear(self, kind):
        """Return the fields of the parent's next message, which has to be ``kind``."""
        line = self._receive.readline()
        if not line:
            raise EOFError(f"the parent left instead of saying {kind!r}")
        got, fields = json.loads(line)
        assert got == kind, f"the parent said {got!r} {fields} instead of {kind!r}"
        return fields

    def wait(self):
        """Return once the parent closes the link: its `stop`, or the end of its block."""
        while self._receive.readline():
            pass


def _line(kind, fields):
    return json.dumps([kind, fields]).encode() + b"\n"


def main():
    """Run one child: ``module:function``, its arguments and its keyword arguments."""
    name, args, kwargs = sys.argv[1:]
    send = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever prints must not garble the messages
    module, _, function = name.partition(":")
    target = getattr(importlib.import_module(module), function)
    target(Link(sys.stdin.buffer, send), *json.loads(args), **json.loads(kwargs))
