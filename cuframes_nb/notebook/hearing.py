"""Whether messages of pages can arrive while a cell runs, and seeing to it that they do."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import Any

from IPython import get_ipython

__all__ = ["Hearing"]


class Hearing:
    """Knows whether a kernel hears pages just now.

    With subshells (from ipykernel 7 and JupyterLab 4.4 on) messages of widgets arrive on threads of
    their own, at any time. Without, they arrive on the main thread, and so not while a cell runs.

    ipykernel brings a page's answer to where the message that it answers was sent from. What a
    thread of ours sends would count as sent by the cell that ran last, and the answers would wait
    for the main thread. So it is sent in the context of a message that came from the page, through
    that page's subshell.
    """

    def __init__(self) -> None:
        self._on_main: bool | None = None
        self._context: contextvars.Context | None = None
        self._subshell: str | None = None
        self._shell: Any = get_ipython()
        self._cells = _Cells(self._shell) if self._shell is not None else None
        if self._cells is not None:
            # Also for a view that could not be made: nobody closes it.
            weakref.finalize(self, self._cells.stop).atexit = False

    def note(self) -> None:
        """Note that a message of a page has arrived, on this thread and in this context."""
        self._on_main = threading.current_thread() is threading.main_thread()
        cells = self._cells
        if self._on_main and cells is not None:
            cells.busy = False  # or else that thread would have no time for this
        subshell = _subshell_of(self._kernel)
        if subshell is not None:
            self._context, self._subshell = contextvars.copy_context(), subshell

    def send(self, send: Callable[[], object]) -> None:
        """Send something in such a way that answers to it can be heard."""
        context = self._context
        if context is not None and not self._has(self._subshell):
            self._context = context = None  # the page is gone, and its subshell with it
        if context is None:
            send()
        else:
            context.copy().run(send)

    def is_deaf(self) -> bool:
        """Whether no message can arrive now."""
        cells = self._cells  # which another thread may let go
        return cells is not None and cells.busy and self._on_main is not False

    def close(self) -> None:
        """Watch cells no more, once."""
        cells, self._cells, self._shell = self._cells, None, None
        if cells is not None:
            cells.stop()

    @property
    def _kernel(self) -> Any:
        return getattr(self._shell, "kernel", None)

    def _has(self, subshell: str | None) -> bool:
        """Whether the kernel still has that subshell."""
        thread = getattr(self._kernel, "shell_channel_thread", None)
        return thread is not None and subshell in thread.manager.list_subshell()


class _Cells:
    """Knows whether a shell runs a cell."""

    def __init__(self, shell: Any) -> None:
        self.busy = True  # with the cell that makes the view
        self._events = shell.events
        self._events.register("pre_run_cell", self._begin)
        self._events.register("post_run_cell", self._end)

    def stop(self) -> None:
        """Listen no more."""
        with contextlib.suppress(ValueError):  # the shell has forgotten it
            self._events.unregister("pre_run_cell", self._begin)
            self._events.unregister("post_run_cell", self._end)

    def _begin(self, *_: object) -> None:
        self.busy = True

    def _end(self, *_: object) -> None:
        self.busy = False


def _subshell_of(kernel: Any) -> str | None:
    """Return the subshell through which the message that is handled now came, if that is known."""
    get_parent = getattr(kernel, "get_parent", None)
    parent = get_parent() if get_parent is not None else None
    header = (parent or {}).get("header") or {}
    subshell: str | None = header.get("subshell_id")
    return subshell
