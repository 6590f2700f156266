"""What was found, for people: a word and a sign for each status, and what to do below it."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from cuframes_nb._doctor.checks import Check, Status, works
from cuframes_nb._show.quantities import amount
from cuframes_nb._show.tables import Sheet, Table, clean, width_of

__all__ = ["Report"]

_SIGNS: Final = {Status.OK: "✓", Status.WARN: "!", Status.MISSING: "–", Status.FAILED: "✗"}

_MARGIN: Final = "  "
_LEAST_WIDTH: Final = 40


class Report(Sheet):
    """What this machine can do.

    Attributes
    ----------
    checks
        The values that the report shows.
    works
        Whether everything works that sharing frames needs.
    """

    def __init__(self, checks: Iterable[Check]) -> None:
        self.checks = tuple(checks)
        self.works = works(self.checks)
        super().__init__(*map(_table, *zip(*self._groups(), strict=True)), self._summary())

    def text(self, width: int | None = None) -> str:
        """Return the report as text: what is long goes on in lines below, none is cut.

        Parameters
        ----------
        width
            Columns of the terminal.
        """
        names = max(width_of(clean(check.name)) for check in self.checks)
        lines: list[str] = []
        for group, checks in self._groups():
            lines += [_heading(group)]
            for check in checks:
                lines += _lines(check, names, width)
            lines += [""]
        return "\n".join([*lines, self._summary().caption])

    def _groups(self) -> Iterator[tuple[str, list[Check]]]:
        for group, checks in itertools.groupby(self.checks, lambda check: check.group):
            yield group, list(checks)

    def _summary(self) -> Table:
        counts = [
            (status, sum(check.status is status for check in self.checks)) for status in Status
        ]
        told = ", ".join(f"{count} {status}" for status, count in counts if count)
        verdict = "Frames can be shared here" if self.works else "Frames cannot be shared here"
        return Table(f"{verdict} ({amount(len(self.checks), 'check')}: {told})", [], [])


def _heading(group: str) -> str:
    return group[0].upper() + group[1:]


def _word(check: Check) -> str:
    return f"{_SIGNS[check.status]} {check.status}"


def _table(group: str, checks: list[Check]) -> Table:
    return Table(
        _heading(group),
        ["what", "status", "found", "what to do"],
        ([check.name, _word(check), check.found, check.advice] for check in checks),
    )


def _lines(check: Check, names: int, width: int | None) -> list[str]:
    name = clean(check.name)
    start = f"{_MARGIN}{_word(check):<10} {name}{' ' * (names - width_of(name))}  "
    column = width_of(start)
    advice = [f"→ {check.advice}"] if check.advice else []
    texts = [clean(text) for text in (check.found, *advice)]
    if width is not None:
        room = max(_LEAST_WIDTH, width - column)
        texts = [line for text in texts for line in _wrapped(text, room)]
    first, *others = texts
    return [f"{start}{first}", *(" " * column + text for text in others)]


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines, commands and paths in one piece."""
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines or [""]
