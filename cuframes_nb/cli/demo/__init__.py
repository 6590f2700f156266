"""``cuframes-nb demo``: a film published by one process and watched by another."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuframes_nb._show import arguments
from cuframes_nb.cli._signals import Interrupts, deaf_children
from cuframes_nb.cli.demo import lab
from cuframes_nb.errors import CuframesError, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from cuframes_nb._api.publisher import Publisher
    from cuframes_nb.sources.playing import Source

__all__ = ["add_parser"]

_ABOUT: Final = """\
Publish a film in real time, over and over, and watch it from a second process that gets each frame
where the first one wrote it.

Where JupyterLab is installed, it opens on a quickstart with the live picture, too.

The second process computes brightness and motion of every frame, shows them in one line, and draws
the last frame with what it measured into a picture. On a machine with a usable GPU all of this
happens in GPU memory."""

_EPILOG: Final = """\
While it runs, look at the same frames from Python or a notebook:

  import cuframes_nb as cf
  frame = cf.subscribe("demo").next()
  frame.y, frame.uv, frame.rgb()

Ctrl-C ends both processes."""

DEFAULT_OUT: Final = Path("out/demo.png")
"""Made in the current directory."""

_PATIENCE_SECONDS: Final = 30.0
"""For the watching process to finish its picture."""


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "demo",
        help="publish a film and watch it from another process",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--video",
        metavar="FILE",
        help="film to publish (default: Big Buck Bunny where it is there, else a test pattern)",
    )
    parser.add_argument(
        "--seconds",
        type=arguments.seconds,
        metavar="S",
        help="end after so long (default: at Ctrl-C)",
    )
    parser.add_argument(
        "--memory",
        choices=("auto", "host", "cuda"),
        default="auto",
        help="where the frames are (default: on a GPU if it can share memory, else the host)",
    )
    parser.add_argument("--key", default="demo", help="name of the stream (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, help="picture to write (default: %(default)s)"
    )
    parser.add_argument(
        "--lab",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="open the notebooks in JupyterLab, if it is installed (default: yes)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    _check(args.out)
    source, what = _source(args.video)
    with source.publisher(args.key, memory=args.memory) as publisher:
        _introduce(what, publisher)
        with Interrupts() as interrupts, _notebooks(args), _watcher(args) as watcher:
            _play(source, publisher, watcher, interrupts, args.seconds)
            early = watcher.poll()
            stats = publisher.stats
            publisher.close()  # tells the watcher, which then writes its picture
            status = watcher.wait(_PATIENCE_SECONDS)
    if early is not None:
        raise _EarlyEndError(f"the watching process {_ending(early)}, so the demo ends")
    print(f"published {stats.published} frames, dropped {stats.dropped}")
    return status


@contextlib.contextmanager
def _notebooks(args: argparse.Namespace) -> Iterator[None]:
    """Run JupyterLab meanwhile, if it is wanted and there."""
    if not args.lab:
        yield
        return
    if not lab.is_installed():
        print("For the live view in JupyterLab: pip install 'cuframes-nb[lab]'")
        yield
        return
    folder = args.out.parent / "notebooks"
    print("Starting JupyterLab ...", flush=True)
    with lab.jupyter_lab(folder) as address:
        if address is None:
            print(f"JupyterLab did not start; {folder / 'jupyterlab.log'} says why.")
        else:
            opened = " (opened in your browser)" if lab.show(address) else ""
            print(f"The quickstart, with the live picture{opened}:\n\n  {address}\n", flush=True)
        yield


class _EarlyEndError(CuframesError):
    """The other process ended before it was told to."""


def _play(
    source: Source,
    publisher: Publisher,
    watcher: subprocess.Popen[bytes],
    interrupts: Interrupts,
    seconds: float | None,
) -> None:
    """Publish until there is a reason to stop."""
    from cuframes_nb.sources import play

    end = None if seconds is None else time.monotonic() + seconds

    def stop() -> bool:
        late = end is not None and time.monotonic() >= end
        return interrupts.came or late or watcher.poll() is not None

    play(source, publisher, stop=stop)


@contextlib.contextmanager
def _watcher(args: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """Start the second process; it has ended, one way or another, after the block."""
    command = [sys.executable, "-m", "cuframes_nb.cli.demo.watch", args.key, str(args.out)]
    sys.stdout.flush()
    with deaf_children():
        process = subprocess.Popen(command)  # noqa: S603  our own module
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _source(video: str | None) -> tuple[Source, str]:
    """Return what to play, and what to call it."""
    from cuframes_nb.sources import Pattern, VideoFile, sample_video

    path = sample_video() if video is None else video
    if path is not None:
        try:
            return VideoFile(path, loop=True), Path(path).name
        except UnsupportedError:
            if video:
                raise
    return Pattern(), "a test pattern"


def _introduce(what: str, publisher: Publisher) -> None:
    info = publisher.info
    print(
        f"This process ({info.pid}) publishes {what}, {info.width}x{info.height} {info.format} at "
        f"{info.fps:g} fps in {info.memory} memory; a second one watches. Ctrl-C ends both."
    )
    print(
        f"To watch from Python or a notebook as well: import cuframes_nb as cf; "
        f'frame = cf.subscribe("{info.key}").next()'
    )


def _check(out: Path) -> None:
    """Refuse before anything starts what would fail at the end."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"the demo's picture needs Pillow ({error}): pip install 'cuframes-nb[demo]'"
        ) from error
    parent = out.resolve().parent
    if parent == Path.cwd() / DEFAULT_OUT.parent:
        parent.mkdir(exist_ok=True)
    if not parent.is_dir():
        raise FileNotFoundError(f"--out: there is no directory {parent}")
    if out.is_dir():
        raise IsADirectoryError(f"--out: {out} is a directory; name a file in it")
    if out.suffix.lower() != ".png":
        raise InvalidArgumentError(
            f"--out: the picture is a PNG, so {out.name!r} should end in .png"
        )
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"--out: {parent} may not be written by this user")


def _ending(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
