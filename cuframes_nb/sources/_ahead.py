"""An iterator that is begun on a thread before it is needed."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from cuframes_nb.errors import CuframesError

__all__ = ["Ahead"]

T = TypeVar("T")


class Ahead(Generic[T]):
    """Has the first item of an iterator made while others still play.

    Opening a film, and a GPU's decoder for it, takes up to a tenth of a second. As a context
    manager it lets go at the end of the block of what nobody took.

    Parameters
    ----------
    make
        Returns the iterator; called on the thread.
    """

    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        self._make = make
        self._thread: threading.Thread | None = None
        self._begun: Iterator[T] | None = None

    def begin(self) -> None:
        """Begin it, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cuframes-film", daemon=True)
            self._thread.start()

    def take(self) -> Iterator[T] | None:
        """Return it, when its first item is there; None if it was not begun or failed.

        Who then begins it again gets the error.
        """
        if self._thread is not None:
            self._thread.join()
        begun, self._begun = self._begun, None
        return begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.take()

    def _run(self) -> None:
        items = self._make()
        with contextlib.suppress(OSError, CuframesError, StopIteration):
            self._begun = itertools.chain([next(items)], items)
