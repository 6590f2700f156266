"""``%cuframes`` and ``%%cuframes``: the package's commands in a notebook."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

import cuframes_nb as cf
from cuframes_nb._api.streams import name_of, stream_info
from cuframes_nb._doctor.examination import examine
from cuframes_nb._doctor.report import Report
from cuframes_nb._show.listings import (
    DeviceTable,
    StreamTable,
    info_sheet,
    stats_sheet,
)
from cuframes_nb._show.tables import Sheet
from cuframes_nb.errors import CuframesError, FrameTimeout, UnsupportedError
from cuframes_nb.notebook import arguments
from cuframes_nb.notebook.arguments import BadUsageError
from cuframes_nb.notebook.cell import function_of
from cuframes_nb.notebook.cell_job import CellJob
from cuframes_nb.notebook.job_table import JobTable
from cuframes_nb.notebook.jobs import Job, Jobs
from cuframes_nb.notebook.live import live_status
from cuframes_nb.notebook.publish_job import PublishJob, film, film_or_pattern, pattern
from cuframes_nb.notebook.record_job import RecordJob, film_of
from cuframes_nb.notebook.reprs import Snapshot
from cuframes_nb.notebook.terminal import facts, still

__all__ = ["CuframesMagics"]

_NAME: Final = "%cuframes"
"""What these subscribers call themselves."""

_FRAME_SECONDS: Final = 3.0
"""How long to wait for a stream's first frame."""


@magics_class
class CuframesMagics(Magics):
    """The magics of one shell, and the jobs that they started."""

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.jobs = Jobs()
        self.leave: Callable[[], None] = _nothing

    @line_cell_magic
    def cuframes(self, line: str, cell: str | None = None) -> Any:
        """Look at live video frames of other processes, and work on them.

        ``%cuframes help`` explains the commands. ``%%cuframes KEY`` runs the cell's code for each
        new frame of a stream, in the background.
        """
        try:
            with _told_shortly():
                if cell is not None:
                    return self._run_cell(arguments.parse_cell(line), cell)
                command, args = arguments.parse(line)
                return getattr(self, f"_{command}")(args)
        except BadUsageError as error:
            raise UsageError(str(error)) from None
        except SyntaxError as error:
            raise error.with_traceback(None) from None  # it is about the cell's lines, not ours

    def names(self, kind: str) -> list[str]:
        """Return names for completion: of ``"streams"`` or ``"jobs"``."""
        if kind == "streams":
            with contextlib.suppress(CuframesError, OSError):
                return [name_of(info) for info in cf.list_streams()]
        if kind == "jobs":
            return sorted({word for job in self.jobs for word in (job.name, job.key)})
        return []

    @property
    def _rich(self) -> bool:
        """Whether this shell is a kernel, whose front end shows pictures and HTML."""
        return getattr(self.shell, "kernel", None) is not None

    # --- Looking ----------------------------------------------------------------------------------

    def _ls(self, _args: argparse.Namespace) -> StreamTable:
        return StreamTable(cf.list_streams())

    def _devices(self, _args: argparse.Namespace) -> DeviceTable:
        return DeviceTable(cf.devices())

    def _doctor(self, _args: argparse.Namespace) -> Report:
        return Report(examine())

    def _info(self, args: argparse.Namespace) -> Sheet:
        return info_sheet(stream_info(args.key))

    def _stats(self, args: argparse.Namespace) -> Sheet:
        return stats_sheet([stream_info(args.key)] if args.key else cf.list_streams())

    def _view(self, args: argparse.Namespace) -> Any:
        return self._watch(args, side_by_side=len(args.keys) > 1)

    def _grid(self, args: argparse.Namespace) -> Any:
        return self._watch(args, side_by_side=True)

    def _watch(self, args: argparse.Namespace, *, side_by_side: bool) -> Any:
        for key in args.keys:
            stream_info(key)
        if not self._rich:
            return _watch_in_terminal(args.keys)
        given = {"width": args.width, "fps": args.fps}
        options = {name: value for name, value in given.items() if value is not None}
        view, grid = _viewers()
        return grid(args.keys, **options) if side_by_side else view(args.keys[0], **options)

    def _snapshot(self, args: argparse.Namespace) -> Snapshot:
        with _one_frame(args.key) as frame:
            snapshot = Snapshot(frame)
        if args.path is not None:
            snapshot.write(Path(args.path).expanduser())
        return snapshot

    # --- Jobs -------------------------------------------------------------------------------------

    def _run_cell(self, args: argparse.Namespace, cell: str) -> None:
        """Begin to run a cell for each frame."""
        source = self.shell.transform_cell(cell)
        if not source.strip():
            raise BadUsageError(f"the cell has no code to run for each frame of {args.key!r}")
        source = f"\n{source}"  # so that line numbers are those of the whole cell
        filename = self.shell.compile.cache(source, self.shell.execution_count)
        function = function_of(source, filename, self.shell.user_ns)
        subscriber = cf.subscribe(args.key, timeout=0, name=f"{_NAME} {args.name or ''}".strip())
        name = args.name or subscriber.info.key
        self._start(CellJob(name, subscriber, function, every=args.every, seconds=args.seconds))

    def _publish(self, args: argparse.Namespace) -> None:
        if args.pattern and (args.video or args.once):
            raise BadUsageError("--pattern is a test pattern without end: no VIDEO, and no --once")
        if args.loop and args.once:
            raise BadUsageError("--loop and --once cannot both be: which shall it be?")
        loop = not args.once
        if args.pattern:
            feature = pattern(args.size, args.fps)
        elif args.video:
            feature = film(args.video, size=args.size, fps=args.fps, loop=loop)
        else:
            feature = film_or_pattern(size=args.size, fps=args.fps, loop=loop)
        name = f"publish-{args.key}"
        before = self.jobs.get(name)
        if before is not None:
            before.stop()  # its stream has the name that is wanted now
        try:
            publisher = feature.source.publisher(args.key, memory=args.memory)
        except BaseException:
            feature.source.close()
            raise
        self._start(PublishJob(name, feature, publisher))

    def _record(self, args: argparse.Namespace) -> None:
        name = f"record-{args.key}"
        before = self.jobs.get(name)
        if before is not None:
            before.stop()  # the new film may have the same name
        path = Path(args.path).expanduser() if args.path else film_of(args.key)
        recording = cf.Recording(args.key, path, codec=args.codec, duration=args.seconds)
        self._start(RecordJob(name, args.key, recording))

    def _start(self, job: Job) -> None:
        self.jobs.add(job)
        job.start(live_status(job.status, rich=self._rich))

    def _jobs(self, _args: argparse.Namespace) -> JobTable:
        return JobTable(job.status for job in self.jobs)

    def _stop(self, args: argparse.Namespace) -> JobTable:
        if bool(args.names) == args.all:
            running = [job.name for job in self.jobs if job.running]
            what = f"running: {', '.join(running)}" if running else "no job is running"
            raise BadUsageError(f"name the jobs to stop, or say --all; {what}")
        jobs = list(self.jobs) if args.all else self._found(args.names)
        if args.all:
            self.jobs.stop_all()
        else:
            for job in jobs:
                job.stop()
        return JobTable(job.status for job in jobs)

    def _found(self, names: Sequence[str]) -> list[Job]:
        found = {name: self.jobs.matching(name) for name in names}
        if missing := [name for name, jobs in found.items() if not jobs]:
            there = ", ".join(job.name for job in self.jobs) or "none was started"
            raise BadUsageError(f"there is no job {missing[0]!r} in this kernel; the jobs: {there}")
        return list({job.name: job for jobs in found.values() for job in jobs}.values())

    # --- Help -------------------------------------------------------------------------------------

    def _help(self, args: argparse.Namespace) -> None:
        if args.command and args.command not in arguments.COMMANDS:
            raise BadUsageError(
                f"there is no command {args.command!r}: {', '.join(arguments.COMMANDS)}"
            )
        print(arguments.help_text(args.command))  # noqa: T201  help is printed


@contextlib.contextmanager
def _told_shortly() -> Iterator[None]:
    """Make errors that people can act on one paragraph instead of a traceback."""
    try:
        yield
    except CuframesError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{about}{error.strerror or error}") from error


@contextlib.contextmanager
def _one_frame(key: str) -> Iterator[cf.Frame]:
    with cf.subscribe(key, timeout=0, name=_NAME) as subscriber:
        frame = subscriber.latest()
        if frame is None:
            try:
                frame = subscriber.next(_FRAME_SECONDS)
            except FrameTimeout:
                raise FrameTimeout(
                    f"stream {key!r} is there, but its publisher published nothing within "
                    f"{_FRAME_SECONDS:g} s"
                ) from None
        with frame:
            yield frame


def _watch_in_terminal(keys: Sequence[str]) -> None:
    """Print a picture of each stream, and how to see more."""
    for key in keys:
        with _one_frame(key) as frame:
            if sys.stdout.isatty():
                print(still(frame, min(100, shutil.get_terminal_size().columns)))  # noqa: T201
            print(facts(frame))  # noqa: T201
    calls = ", ".join(map(repr, keys))
    print(  # noqa: T201  a terminal's output
        f"This terminal shows a still. To watch live, run the same line in JupyterLab, or there\n"
        f"  cuframes_nb.{'view' if len(keys) == 1 else 'grid'}"
        f"({calls if len(keys) == 1 else f'[{calls}]'})"
    )


def _viewers() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the live viewer for one stream, and the one for several."""
    try:
        importlib.import_module("cuframes_nb.notebook.widget")
    except ImportError as error:
        raise UnsupportedError(
            f"the live view needs JupyterLab's widgets ({error}): pip install 'cuframes-nb[lab]'. "
            f"%cuframes snapshot shows a picture without them"
        ) from error
    viewing = importlib.import_module("cuframes_nb.notebook.viewing")
    return viewing.view, viewing.grid


def _nothing() -> None:
    """Where nothing is to be taken away."""
