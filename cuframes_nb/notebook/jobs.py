"""Work in the background of a kernel, by name, each with a thread.

It knows no IPython: who wants to show a job's state gives it a function to tell.
"""

from __future__ import annotations

import abc
import atexit
import contextvars
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, TypeAlias

from cuframes_nb.notebook.failures import Failure, Failures

__all__ = ["REPORT_SECONDS", "Job", "JobStatus", "Jobs", "Tell"]

_log = logging.getLogger("cuframes_nb.notebook")

REPORT_SECONDS: Final = 1.0
"""A state is told at most this often, but for the last."""

_STOP_SECONDS: Final = 3.0
"""How long a job that was told to stop may take to finish the frame it is at."""


@dataclasses.dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment.

    Attributes
    ----------
    name, kind, key
        What it is called, ``"cell"``, ``"publish"`` or ``"record"``, and its stream.
    state
        ``"running"``, ``"waiting"`` (for frames), ``"stopping"``, ``"stopped"``, ``"finished"`` or
        ``"failed"``.
    frames, fps
        Frames worked on so far, and how many a second lately; 0 if unknown.
    errors, failures
        How often the cell raised, and each kind of error once.
    seconds
        How long it has run.
    note
        What else there is to say.
    """

    name: str
    kind: str
    key: str
    state: str
    frames: int
    fps: float
    errors: int
    failures: tuple[Failure, ...]
    seconds: float
    note: str


Tell: TypeAlias = Callable[[JobStatus], object]
"""Is told a job's state by the job's thread, at most once a second and at the end."""


class Job(abc.ABC):
    """Work on a thread of its own.

    Parameters
    ----------
    name
        What it is called.
    key
        The stream that it reads or writes.
    """

    kind: ClassVar[str]

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._tell: Tell = _nobody
        self._state, self._note = "running", ""
        self._frames = 0
        self._fps = 0.0
        self._failures = Failures()
        self._began = self._told = time.monotonic()
        self._told_frames = 0
        self._ended: float | None = None

    @property
    def status(self) -> JobStatus:
        """What the job is at now."""
        state = "stopping" if self.running and self._stopping.is_set() else self._state
        return JobStatus(
            name=self.name,
            kind=self.kind,
            key=self.key,
            state=state,
            frames=self._frames,
            fps=self._fps if self.running else 0.0,
            errors=self._failures.count,
            failures=self._failures.kinds,
            seconds=(self._ended or time.monotonic()) - self._began,
            note=self._note,
        )

    @property
    def running(self) -> bool:
        """Whether its thread is at work."""
        return self._thread is not None and self._ended is None

    def start(self, tell: Tell | None = None) -> None:
        """Begin, in this thread's context: what the job prints goes where this thread prints.

        Parameters
        ----------
        tell
            Is told the state from time to time.
        """
        self._tell = tell or _nobody
        self._began = self._told = time.monotonic()
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._main,),
            name=f"cuframes job {self.name}",
            daemon=True,  # an interpreter that ends does not wait; see Jobs.stop_all
        )
        self._thread.start()

    def stop(self, seconds: float = _STOP_SECONDS) -> bool:
        """Have the job end after the frame that it is at, and wait for that.

        Returns
        -------
        bool
            Whether it has ended; not if its cell takes longer, or is what called this.
        """
        self._stopping.set()
        self._interrupt()
        thread = self._thread
        if thread is None:
            self._close()
            return True
        if thread is not threading.current_thread():
            thread.join(seconds)
        return not thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the job's end; return whether it came."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.running

    # --- For the kinds of jobs --------------------------------------------------------------------

    @abc.abstractmethod
    def _work(self) -> str:
        """Work until done or told to stop; return the state that this ends in."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Give up what the job holds."""

    def _interrupt(self) -> None:
        """Wake the job from waiting; nothing for those that look often whether to stop."""
        return

    def _report(self, *, last: bool = False) -> None:
        """Tell the state if it is time to."""
        now = time.monotonic()
        since = now - self._told
        if since <= REPORT_SECONDS and not last:
            return
        if not last:
            self._fps = (self._frames - self._told_frames) / since
        self._told, self._told_frames = now, self._frames
        try:
            self._tell(self.status)
        except Exception:  # noqa: BLE001  the page or the kernel may be gone; the work goes on
            _log.debug("the state of job %s could not be told", self.name, exc_info=True)

    def _main(self) -> None:
        state = "failed"
        try:
            state = self._work()
        except SystemExit:
            state = "stopped"
        except Exception as error:  # noqa: BLE001  told instead, to whoever looks at the job
            self._note = f"{type(error).__name__}: {error}"
            _log.debug("job %s failed", self.name, exc_info=True)
        finally:
            self._close()
            self._state = state
            self._ended = time.monotonic()
            self._report(last=True)
            self._tell = _nobody


class Jobs:
    """The jobs of a kernel by name; those that ended stay listed until another takes the name.

    An interpreter that ends stops them.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs.values()))

    def add(self, job: Job) -> None:
        """List a job in place of the one of the same name, which is stopped."""
        before = self._jobs.get(job.name)
        if before is not None:
            before.stop()
        self._jobs[job.name] = job
        # Last in, first out: before what the job uses is closed for the same reason.
        atexit.unregister(self.stop_all)
        atexit.register(self.stop_all)

    def get(self, name: str) -> Job | None:
        """Return the job of that name, None without one."""
        return self._jobs.get(name)

    def matching(self, word: str) -> list[Job]:
        """Return the job of that name, or else the running ones on the stream of that key."""
        if word in self._jobs:
            return [self._jobs[word]]
        return [job for job in self if job.key == word and job.running]

    def stop_all(self) -> list[Job]:
        """Stop the jobs that run; return those that have not ended within a few seconds."""
        atexit.unregister(self.stop_all)
        running = [job for job in self if job.running]
        for job in running:
            job.stop(0)
        deadline = time.monotonic() + _STOP_SECONDS
        return [job for job in running if not job.wait(max(0.0, deadline - time.monotonic()))]


def _nobody(_status: JobStatus) -> None:
    """Is told and does nothing."""
