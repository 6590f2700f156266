"""Tables that a notebook shows as HTML and a terminal as text.

Names of streams and subscribers come from other processes, so nothing of them is trusted: what is
not printable is replaced in both forms, and HTML is escaped.
"""

from __future__ import annotations

import dataclasses
import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["Column", "Sheet", "Table", "clean", "cut", "escape", "width_of"]

_LEFT: Final = ' style="text-align: left"'
_RIGHT: Final = ' style="text-align: right"'
_GAP: Final = "  "
_LEAST_WIDTH: Final = 6
"""What stays of a column of words where a table has to be narrow."""


def clean(text: str) -> str:
    """Return the text in one line, without control characters and invisible marks."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def width_of(text: str) -> int:
    """Return how many columns of a terminal a cleaned text takes (UAX #11)."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:  # drawn onto the one before
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    """Return the text, cut with an ellipsis where it is wider than `width` columns."""
    if width_of(text) <= width:
        return text
    kept, room = [], width - 1
    for character in text:
        room -= _character_width(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def escape(text: str) -> str:
    """Return the text, cleaned, so that HTML shows it as it is, also in an attribute."""
    return html.escape(clean(text), quote=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column's head, and whether its cells are numbers."""

    head: str
    number: bool = False

    @property
    def style(self) -> str:
        """How HTML aligns its cells."""
        return _RIGHT if self.number else _LEFT

    def align(self, text: str, width: int) -> str:
        """Return a cell of text that is `width` columns wide, cut where it would be wider."""
        text = cut(text, width)
        padding = " " * (width - width_of(text))
        return padding + text if self.number else text + padding


class Table:
    """Rows of text under heads; the first cell of a row names the row.

    Parameters
    ----------
    caption
        What the table is of.
    columns
        Heads; a plain string is a column of words.
    rows
        A string for each column.
    """

    def __init__(
        self,
        caption: str,
        columns: Sequence[Column | str],
        rows: Iterable[Sequence[str]],
    ) -> None:
        self.caption = caption
        self._columns = [Column(c) if isinstance(c, str) else c for c in columns]
        self._rows = [[clean(cell) for cell in row] for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""
        return tuple(self._columns)

    @property
    def rows(self) -> list[list[str]]:
        """The cells, cleaned, row by row."""
        return [list(row) for row in self._rows]

    def __repr__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """Return the table as text.

        Parameters
        ----------
        width
            Columns of the terminal: no line is wider.
        """
        caption = clean(self.caption)
        if not self._rows:
            return caption if width is None else cut(caption, width)
        widths = self.widths(width)
        lines = [self._heads, *self._rows]
        texts = [caption, *(self._line(cells, widths) for cells in lines)]
        return "\n".join(texts if width is None else [cut(text, width) for text in texts])

    def widths(self, width: int | None = None) -> list[int]:
        """Return how wide each column is, with two blanks between them.

        Parameters
        ----------
        width
            How wide all may be together. Numbers stay whole; the widest words are cut first.
        """
        widths = [max(map(width_of, cells)) for cells in zip(self._heads, *self._rows, strict=True)]
        words = [index for index, column in enumerate(self._columns) if not column.number]
        full = sum(widths) + len(_GAP) * (len(widths) - 1)
        for _ in range(0 if width is None else full - width):
            widest = max(words, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= _LEAST_WIDTH:
                break
            widths[widest] -= 1
        return widths

    @property
    def _heads(self) -> list[str]:
        return [clean(column.head) for column in self._columns]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        parts = zip(self._columns, cells, widths, strict=True)
        return _GAP.join(column.align(cell, width) for column, cell, width in parts).rstrip()

    def _repr_html_(self) -> str:
        # No colours: JupyterLab's own style of tables follows its theme.
        if not self._rows:
            return f"<p>{escape(self.caption)}</p>"
        heads = "".join(f'<th scope="col"{c.style}>{escape(c.head)}</th>' for c in self._columns)
        body = "".join(f"<tr>{self._row(row)}</tr>" for row in self._rows)
        return (
            f"<table><caption>{escape(self.caption)}</caption>"
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _row(self, row: Sequence[str]) -> str:
        first, *others = self._columns
        name = f'<th scope="row"{first.style}>{escape(row[0])}</th>'
        cells = zip(others, row[1:], strict=True)
        return name + "".join(f"<td{column.style}>{escape(cell)}</td>" for column, cell in cells)


class Sheet:
    """Several tables, one under the other."""

    def __init__(self, *tables: Table) -> None:
        self.tables = tables

    def __repr__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """Return the tables as text, no line wider than `width` columns."""
        return "\n\n".join(table.text(width) for table in self.tables)

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)
