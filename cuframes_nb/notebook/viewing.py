"""Looking at streams: `view` and `grid`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cuframes_nb._api.frame import Frame
from cuframes_nb.errors import UnsupportedError

if TYPE_CHECKING:
    from cuframes_nb.notebook.widget import View

__all__ = ["grid", "view"]


def view(
    source: Any,
    *,
    process: Callable[[Frame], Any] | None = None,
    overlay: Callable[[Frame], Any] | None = None,
    fps: float | None = None,
    width: int | None = None,
    quality: int | str = "auto",
    controls: bool = True,
) -> View:
    """Show a stream live.

    Parameters
    ----------
    source
        A stream's key, address or path, or a `Subscriber`; or a list of these, for a grid. The
        stream need not be there yet. A subscriber that is given is used by the view alone from now
        on, and stays its owner's to close.
    process
        Called with each frame that is shown; returns what is shown instead: an array of NumPy, CuPy
        or torch (RGB, gray, bool), or a `Heatmap`. It runs on the view's own thread. The frame is
        released afterwards: arrays that are kept keep its slot.
    overlay
        Called with each frame that is shown; returns what is drawn over it: `Box`, `Points`,
        `Line`, `Polygon`, `Text`, `Mask`, several of these, or an array ``(n, 4)`` of boxes.
    fps
        Pictures a second, at most; by default as many as the stream has and the link carries.
    width
        Of the view, in CSS pixels; by default as wide as the cell.
    quality
        Of the JPEGs, 1 to 100, or ``"auto"``: what the link carries.
    controls
        Whether to show buttons and read-out.

    Returns
    -------
    View
        A widget; show it by making it the last line of a cell.

    Raises
    ------
    InvalidArgumentError
        If a value is wrong.
    UnsupportedError
        If a library is missing: install ``cuframes-nb[lab]``.
    """
    sources = list(source) if isinstance(source, list | tuple) else [source]
    try:
        from cuframes_nb.notebook.widget import View
    except ImportError as error:
        raise UnsupportedError(
            f"a live view needs libraries of Jupyter ({error}): install 'cuframes-nb[lab]'"
        ) from error
    return View(
        sources, process=process, overlay=overlay, fps=fps, width=width, quality=quality,
        controls=controls,
    )  # fmt: skip


def grid(sources: Sequence[Any], **options: Any) -> View:
    """Show several streams side by side, on one clock and one connection.

    Parameters
    ----------
    sources
        Each as `view` takes it.
    **options
        As `view` has them; `process` and `overlay` are called for each of the streams.
    """
    return view(list(sources), **options)
