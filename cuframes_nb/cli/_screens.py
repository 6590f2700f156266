"""A table that is shown again and again, where it is shown."""

from __future__ import annotations

import abc
import shutil
import sys
from typing import Any, Final, Self

from cuframes_nb._show.tables import Table
from cuframes_nb.cli import _output

__all__ = ["Screen", "best"]

_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the other screen, no cursor: xterm's control sequences
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"

_STYLES: Final = {
    ("state", "live"): "green",
    ("state", "silent"): "yellow",
    ("state", "stalled"): "yellow",
    ("state", "denied"): "yellow",
    ("state", "dead"): "dim",
}
"""Colours of cells in the column of that head; the word says it, too."""


def best() -> Screen:
    """Return the best that stdout allows."""
    if not _output.is_screen():
        return _Lines()
    try:
        return _Rich()
    except ImportError:
        return _Plain()


class Screen(abc.ABC):
    """Shows tables from its `start` to its `stop`; a context manager."""

    _table: Table | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        if self._table is not None:
            self._keep(self._table)

    def show(self, table: Table) -> None:
        """Show a table in place of the one before."""
        self._table = table
        self._draw(table)

    def redraw(self) -> None:
        """Show the same once more, in the size that the terminal has now."""
        if self._table is not None:
            self._draw(self._table)

    @abc.abstractmethod
    def start(self) -> None:
        """Take the terminal."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Give the terminal back as it was."""

    @abc.abstractmethod
    def _draw(self, table: Table) -> None: ...

    @abc.abstractmethod
    def _keep(self, table: Table) -> None:
        """Leave the last table where it stays to be read."""


class _Lines(Screen):
    """No terminal: one table after the other, without control sequences."""

    def show(self, table: Table) -> None:
        if self._table is not None:
            print()
        super().show(table)

    def redraw(self) -> None:
        pass  # what was printed stays

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def _draw(self, table: Table) -> None:
        print(table, flush=True)

    def _keep(self, table: Table) -> None:
        pass


class _Plain(Screen):
    """A terminal: the table over the one before."""

    def start(self) -> None:
        self._write(_ENTER)
        self.redraw()

    def stop(self) -> None:
        self._write(_LEAVE)

    def _draw(self, table: Table) -> None:
        columns, lines = shutil.get_terminal_size()
        shown = table.text(columns).split("\n")[:lines]
        self._write(_HOME + "\n".join(line + _CLEAR_LINE for line in shown) + _CLEAR_BELOW)

    def _keep(self, table: Table) -> None:
        print(table.text(_output.width()), flush=True)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class _Rich(Screen):
    """A terminal, and rich to draw with."""

    def __init__(self) -> None:
        import rich.console
        import rich.live
        import rich.table
        import rich.text

        self._rich = rich
        self._console = rich.console.Console(file=sys.stdout, highlight=False, markup=False)
        self._live: Any = None

    def start(self) -> None:
        # It has no thread of its own: what is drawn is drawn here.
        self._live = self._rich.live.Live(
            console=self._console, screen=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._live.start()
        self.redraw()

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, table: Table) -> None:
        self._live.update(self._drawn(table), refresh=True)

    def _keep(self, table: Table) -> None:
        self._console.print(self._drawn(table))

    def _drawn(self, table: Table) -> Any:
        """Return a table of rich's; its texts are texts, whatever markup seems to be in them."""
        text = self._rich.text.Text
        drawn = self._rich.table.Table(
            title=text(table.caption), title_justify="left", title_style="", box=None,
            padding=(0, 2, 0, 0), pad_edge=False,
        )  # fmt: skip
        # Our own widths: rich would rather take numbers away than cut a long name.
        for column, width in zip(table.columns, table.widths(self._console.width), strict=True):
            drawn.add_column(
                text(column.head), justify="right" if column.number else "left", width=width,
                no_wrap=True, overflow="ellipsis",
            )  # fmt: skip
        heads = [column.head for column in table.columns]
        for row in table.rows:
            cells = zip(heads, row, strict=True)
            drawn.add_row(*(text(cell, _STYLES.get((head, cell), "")) for head, cell in cells))
        return drawn
