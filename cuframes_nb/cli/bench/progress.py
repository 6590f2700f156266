"""How far the benchmark is, on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Self

__all__ = ["Progress"]


class Progress:
    """A bar by rich or tqdm, whichever is there, on stderr; nothing where nobody looks.

    Parameters
    ----------
    total
        How many steps there will be.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar = _rich_bar(total) or _tqdm_bar(total) if sys.stderr.isatty() else None
        self._done = 0

    def step(self, name: str) -> None:
        """Say that the next step starts."""
        if self._bar is not None:
            self._bar.show(self._done, name)
        self._done += 1

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away during a block, which prints."""
        if self._bar is None:
            yield
            return
        self._bar.hide()
        yield
        self._bar.show_again()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()


class _RichBar:
    def __init__(self, bar: Any, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=total)
        bar.start()

    def show(self, done: int, name: str) -> None:
        self._bar.update(self._task, completed=done, description=name)

    def hide(self) -> None:
        self._bar.stop()

    def show_again(self) -> None:
        self._bar.start()

    def close(self) -> None:
        self._bar.stop()


class _TqdmBar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def show(self, done: int, name: str) -> None:
        self._bar.set_description(name)
        self._bar.update(done - self._bar.n)

    def hide(self) -> None:
        self._bar.clear()

    def show_again(self) -> None:
        self._bar.refresh()

    def close(self) -> None:
        self._bar.close()


def _rich_bar(total: int) -> _RichBar | None:
    try:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None
    return _RichBar(RichProgress(console=Console(stderr=True), transient=True), total)


def _tqdm_bar(total: int) -> _TqdmBar | None:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return _TqdmBar(tqdm(total=total, leave=False, file=sys.stderr))
