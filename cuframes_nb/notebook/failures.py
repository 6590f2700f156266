"""What went wrong in a job's cell: each kind of error once, and how often."""

from __future__ import annotations

import dataclasses
import traceback
from types import TracebackType
from typing import Final

__all__ = ["Failure", "Failures"]

_KINDS: Final = 4
"""How many different errors are told in full; further ones are only counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """One kind of error.

    Attributes
    ----------
    what
        The first one's type and message.
    traceback
        Its traceback, from the cell on.
    count
        How many there were of the same type in the same line.
    """

    what: str
    traceback: str
    count: int


class Failures:
    """Counts errors by type and place.

    Errors are kept as text: their tracebacks would hold on to frames and arrays.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[tuple[str, str, int], Failure] = {}

    def add(self, error: Exception) -> None:
        """Count an error that the cell raised, while it is being handled."""
        self.count += 1
        trace = error.__traceback__
        trace = trace and trace.tb_next  # the cell's own frames, without ours
        kind = (type(error).__qualname__, *_place(trace))
        known = self._kinds.get(kind)
        if known is not None:
            self._set(kind, dataclasses.replace(known, count=known.count + 1))
        elif len(self._kinds) < _KINDS:
            text = "".join(traceback.format_exception(type(error), error, trace))
            what = "".join(traceback.format_exception_only(error)).strip()
            self._set(kind, Failure(what, text, 1))

    def _set(self, kind: tuple[str, str, int], failure: Failure) -> None:
        # A new dictionary, because other threads read the old one.
        self._kinds = {**self._kinds, kind: failure}

    @property
    def kinds(self) -> tuple[Failure, ...]:
        """The kinds of errors, oldest first."""
        return tuple(self._kinds.values())


def _place(trace: TracebackType | None) -> tuple[str, int]:
    """Return file and line where an error was raised."""
    if trace is None:
        return "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
