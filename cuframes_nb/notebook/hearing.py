"""Whether messages of pages can arrive while a cell runs."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Hearing"]


class Hearing:
    """Knows whether a kernel hears pages just now.

    With subshells (from ipykernel 7 and JupyterLab 4.4 on) messages of widgets arrive on threads of
    their own, at any time. Without, they arrive on the main thread, and so not while a cell runs.
    """

    def __init__(self) -> None:
        self._on_main: bool | None = None
        self._busy = False
        self._shell: Any = None
        self._watch()

    def note(self) -> None:
        """Note that a message has arrived, on this thread."""
        self._on_main = threading.current_thread() is threading.main_thread()

    def is_deaf(self) -> bool:
        """Whether no message can arrive now."""
        return self._busy and self._on_main is not False

    def close(self) -> None:
        """Watch cells no more, once."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.events.unregister("pre_run_cell", self._begin)
            shell.events.unregister("post_run_cell", self._end)

    def _watch(self) -> None:
        from IPython import get_ipython

        self._shell = get_ipython()
        if self._shell is None:
            return
        self._busy = True  # the cell that makes the view
        self._shell.events.register("pre_run_cell", self._begin)
        self._shell.events.register("post_run_cell", self._end)

    def _begin(self, *_: object) -> None:
        self._busy = True

    def _end(self, *_: object) -> None:
        self._busy = False
