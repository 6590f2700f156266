"""``cuframes-nb publish``: a film, a camera or a test pattern as a stream."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import stat
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuframes_nb._show import arguments
from cuframes_nb.cli import _systemd
from cuframes_nb.cli._arguments import hide
from cuframes_nb.cli._signals import Interrupts
from cuframes_nb.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cuframes_nb._api.publisher import Publisher
    from cuframes_nb.sources import Source

__all__ = ["add_parser"]

_log = logging.getLogger("cuframes_nb.cli")

_ABOUT: Final = """\
Publish video under a name, until it ends or Ctrl-C.

SOURCE is one of
  FILE            a film that FFmpeg reads, played in real time; or its URL
  rtsp://...      a camera in the network; any live URL of FFmpeg's
  http://...      a camera that sends MJPEG or the like; a film if it says how long it is
  /dev/video0     a camera at this machine
  pattern         colour bars, with number and time in the picture

A camera that does not answer, or stops, is tried again for as long as it takes; its subscribers
stay, see the state "stalled" meanwhile, and go on when frames do. A change of size or format in
the video is followed. Where there is a GPU that can share memory, frames are in its memory.
With --gst, GStreamer pipelines that begin with cudaipcsrc read them, too."""

_EPILOG: Final = """\
examples:
  cuframes-nb publish cam1 film.mp4 --loop
  cuframes-nb publish cam1 rtsp://192.168.1.20/stream1 --credentials cam1.txt
  cuframes-nb publish cam1 /dev/video0 --size 1280x720 --fps 30
  cuframes-nb publish test pattern --size 1920x1080 --fps 60
  cuframes-nb publish cam1 film.mp4 --gst /tmp/cam1.ipc

A password belongs into a file that only you can read, as user:password in one line. In a URL, other
users see it in the list of processes for the moment that it takes to blot it out."""

_REPORT_SECONDS: Final = 1.0


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "publish",
        help="publish a film, a camera or a test pattern",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("key", metavar="KEY", help="name of the stream")
    parser.add_argument("source", metavar="SOURCE", help="what to publish")
    _add_source(parser.add_argument_group("the video"))
    _add_camera(parser.add_argument_group("cameras"))
    _add_stream(parser.add_argument_group("the stream"))
    parser.add_argument("--seconds", type=arguments.seconds, metavar="S", help="end after so long")
    parser.add_argument("--json", action="store_true", help="print what it came to as JSON")
    parser.set_defaults(run=run)


def _add_source(group: Any) -> None:
    group.add_argument("--loop", action="store_true", help="begin a film again at its end")
    group.add_argument(
        "--fast", action="store_true", help="a film or pattern not in real time, but at full speed"
    )
    group.add_argument(
        "--start", type=arguments.seconds, metavar="S", help="leave out a film's beginning"
    )
    group.add_argument("--stream", type=int, metavar="N", help="which video of several, from 0")
    group.add_argument(
        "--size", type=arguments.size, metavar="WxH", help="size of the frames in pixels"
    )
    group.add_argument("--fps", type=arguments.rate, metavar="N", help="frames a second")
    group.add_argument(
        "--decoder",
        choices=("auto", "gpu", "cpu"),
        help="what decodes (default: the GPU where frames are in its memory and it can)",
    )
    group.add_argument(
        "--format",
        choices=("nv12", "p010", "gray8", "rgb24", "rgba32"),
        help="pixel format of the pattern (default: nv12); video has its own",
    )


def _add_camera(group: Any) -> None:
    group.add_argument(
        "--transport", choices=("tcp", "udp"), help="of RTSP (default: tcp, which loses nothing)"
    )
    group.add_argument(
        "--credentials", type=Path, metavar="FILE", help="has user:password in its first line"
    )
    group.add_argument(
        "--timeout", type=arguments.seconds, metavar="S",
        help="without a frame for so long, connect again (default: 10)",
    )  # fmt: skip
    group.add_argument(
        "--option", type=_option, action="append", default=[], metavar="NAME=VALUE",
        help="of FFmpeg, for example input_format=mjpeg for a camera at USB; several times",
    )  # fmt: skip
    group.add_argument(
        "--no-retry", action="store_true", help="end when the camera goes, rather than try again"
    )


def _add_stream(group: Any) -> None:
    group.add_argument(
        "--memory", choices=("auto", "host", "cuda"), default="auto",
        help="where the frames are (default: on a GPU if it can share memory, else the host)",
    )  # fmt: skip
    group.add_argument("--device", metavar="GPU", help="UUID, its beginning, PCI bus id or number")
    group.add_argument(
        "--ring-size", type=int, default=4, metavar="N", help="slots (default: %(default)s)"
    )
    group.add_argument(
        "--policy", choices=("drop-oldest", "strict-wait"), default="drop-oldest",
        help="whether a strict subscriber may hold the video up (default: %(default)s)",
    )  # fmt: skip
    group.add_argument("--group", help="members of this group of users may subscribe, too")
    group.add_argument(
        "--gst", type=Path, metavar="PATH",
        help="also for GStreamer pipelines: 'cudaipcsrc address=PATH' reads the stream",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from cuframes_nb.sources import LiveVideo
    from cuframes_nb.sources.playing import play

    with Interrupts() as interrupts, _source(args) as source:
        if isinstance(source, LiveVideo):
            _systemd.notify(ready=True, status=f"connecting to {source.label}")
            if not source.connect(stop=lambda: _waits(interrupts)):
                return 0
        with _publisher(source, args) as publisher, _pipelines(publisher, args.gst):
            watch = _Watch(publisher, interrupts, args.seconds)
            _introduce(publisher, args.gst)
            _systemd.notify(ready=True)
            try:
                play(source, publisher, fast=args.fast, stop=watch.shall_stop)
            finally:
                watch.clear()
                _systemd.notify(stopping=True)
            stats = publisher.stats
    counts = {"published": stats.published, "dropped": stats.dropped}
    print(
        json.dumps({"key": args.key, **counts})
        if args.json
        else f"published {stats.published} frames, dropped {stats.dropped}"
    )
    return 0


def _waits(interrupts: Interrupts) -> bool:
    """Return whether to stop waiting for a camera; say that this is no hang."""
    _systemd.notify(watchdog=True)
    return interrupts.came


class _Watch:
    """Says when to stop, and meanwhile how it goes: on the terminal, and to systemd."""

    def __init__(self, publisher: Publisher, interrupts: Interrupts, seconds: float | None) -> None:
        self._publisher, self._interrupts = publisher, interrupts
        now = time.monotonic()
        self._end = math.inf if seconds is None else now + seconds
        self._due = now + _REPORT_SECONDS
        self._before = (now, 0)
        self._is_screen = sys.stderr.isatty()

    def shall_stop(self) -> bool:
        """Return whether to stop; called several times a second."""
        now = time.monotonic()
        if now >= self._due:
            self._report(now)
        return self._interrupts.came or now >= self._end

    def clear(self) -> None:
        """Leave the terminal's line empty."""
        if self._is_screen:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _report(self, now: float) -> None:
        stats = self._publisher.stats
        since, published = self._before
        rate = (stats.published - published) / (now - since)
        self._before, self._due = (now, stats.published), now + _REPORT_SECONDS
        text = (
            f"{stats.published:,} frames, {rate:.1f} a second, {stats.dropped:,} dropped, "
            f"{stats.subscribers} subscribed"
        )
        _systemd.notify(status=text, watchdog=True)
        if self._is_screen:
            print(f"\r{text}; Ctrl-C ends it\x1b[K", end="", file=sys.stderr, flush=True)


def _source(args: argparse.Namespace) -> Source:
    """Return what the arguments name; refuse those that do not belong to it."""
    from cuframes_nb.sources import LiveVideo, Pattern, VideoFile
    from cuframes_nb.sources._addresses import with_credentials
    from cuframes_nb.sources.opening import is_live_address

    where: str = args.source
    hide(where)
    if where == "pattern":
        _refuse(
            args,
            "a pattern",
            "loop start stream decoder transport credentials timeout no_retry option",
        )
        width, height = args.size or (1280, 720)
        return Pattern(
            width, height, format=args.format or "nv12", fps=args.fps or 30.0, caption=True
        )
    if args.credentials:
        where = with_credentials(where, *_credentials(args.credentials))
    if is_live_address(where):
        _refuse(args, "a camera", "loop fast start format")
        given = _given(args, "stream size fps transport timeout decoder")
        return LiveVideo(where, retry=not args.no_retry, options=dict(args.option), **given)
    _refuse(args, "a film", "format transport timeout no_retry option")
    return VideoFile(
        Path(where).expanduser() if where.startswith("~") else where,
        loop=args.loop,
        **_given(args, "start stream size fps decoder"),
    )


def _given(args: argparse.Namespace, names: str) -> dict[str, Any]:
    """Return the options that were given, of these."""
    values = {name: getattr(args, name) for name in names.split()}
    return {name: value for name, value in values.items() if value is not None}


def _refuse(args: argparse.Namespace, what: str, names: str) -> None:
    for name in names.split():
        if getattr(args, name) not in (None, False, []):
            raise InvalidArgumentError(f"--{name.replace('_', '-')} is nothing that {what} has")


def _publisher(source: Source, args: argparse.Namespace) -> Publisher:
    device = args.device
    return source.publisher(
        args.key,
        memory=args.memory,
        device=int(device) if device and device.isdecimal() else device,
        ring_size=args.ring_size,
        policy=args.policy,
        group=args.group,
    )


def _pipelines(publisher: Publisher, path: Path | None) -> AbstractContextManager[object]:
    """Serve GStreamer pipelines during a block, if they were asked for."""
    if path is None:
        return contextlib.nullcontext()
    from cuframes_nb.bridges import gst

    return gst.serve(publisher, path)


def _introduce(publisher: Publisher, gst: Path | None) -> None:
    info = publisher.info
    _log.info("%s is at %s", info.key, info.path)
    frames = f"{info.width}x{info.height} {info.format} at {info.fps:g} fps"
    reads = f"; GStreamer reads it with 'cudaipcsrc address={gst}'" if gst else ""
    print(f"{info.key}: {frames} in {info.memory} memory{reads}", file=sys.stderr)


def _credentials(path: Path) -> tuple[str, str]:
    """Return user and password of a file that nobody else can read."""
    with path.open(encoding="utf-8") as file:
        mode = os.fstat(file.fileno()).st_mode
        # systemd's are for this service alone, though an ACL makes the mode look otherwise.
        is_systemds = path.parent == Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nowhere"))
        if not is_systemds and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidArgumentError(
                f"{path} can be read by others: chmod 600 {path}, and change the password"
            )
        user, colon, password = file.readline().rstrip("\r\n").partition(":")
    if not (user and colon):
        raise InvalidArgumentError(f"{path} does not begin with a line user:password")
    return user, password


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
