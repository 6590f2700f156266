"""Tables that a notebook shows as HTML and a terminal as text.

Names of streams and subscribers come from other processes, so nothing of them is trusted: what is
not printable is replaced in both forms, and HTML is escaped.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["Column", "Sheet", "Table", "clean", "escape"]

_LEFT: Final = ' style="text-align: left"'
_RIGHT: Final = ' style="text-align: right"'


def clean(text: str) -> str:
    """Return the text in one line, without control characters and invisible marks."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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
        """Return a cell of text that is `width` wide."""
        return text.rjust(width) if self.number else text.ljust(width)


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

    def __repr__(self) -> str:
        if not self._rows:
            return clean(self.caption)
        lines = [[clean(column.head) for column in self._columns], *self._rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        return "\n".join([clean(self.caption), *(self._line(cells, widths) for cells in lines)])

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        parts = zip(self._columns, cells, widths, strict=True)
        return "  ".join(column.align(cell, width) for column, cell, width in parts).rstrip()

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
        return "\n\n".join(map(repr, self.tables))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)
