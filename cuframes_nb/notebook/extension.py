"""What ``%load_ext`` adds to a shell, and ``%unload_ext`` takes away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from cuframes_nb.errors import UnsupportedError
from cuframes_nb.notebook.completion import matcher
from cuframes_nb.notebook.magics import CuframesMagics

__all__ = ["load", "unload"]

_NAME: Final = CuframesMagics.__name__
_MAGIC: Final = "cuframes"


def load(shell: Any) -> None:
    """Add the magics, their completion and the displays of objects; anew if they are there."""
    unload(shell)
    magics = CuframesMagics(shell)
    shell.register_magics(magics)
    complete = matcher(magics.names)
    shell.Completer.custom_matchers.append(complete)
    undo = _add_displays(shell)
    if hasattr(shell, "kernel"):
        _import_views()

    def leave() -> None:
        shell.Completer.custom_matchers.remove(complete)
        undo()

    magics.leave = leave


def unload(shell: Any) -> None:
    """Stop all jobs and take away what `load` added; nothing if it was not called."""
    magics = shell.magics_manager.registry.pop(_NAME, None)
    if magics is None:
        return
    magics.jobs.stop_all()
    magics.leave()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_MAGIC, None)


def _import_views() -> None:
    """Import what a view needs now, so that the first picture comes sooner."""
    with contextlib.suppress(ImportError, UnsupportedError):  # who asks for a view is told
        import cuframes_nb.notebook.widget  # noqa: F401
        from cuframes_nb._viewer.encoders import JpegEncoder
        from cuframes_nb._viewer.picture import Scaler

        Scaler()
        JpegEncoder()


def _add_displays(shell: Any) -> Callable[[], None]:
    """Have the shell show our objects as HTML; return what undoes it."""
    formatter = shell.display_formatter.formatters["text/html"]
    before: dict[Any, Any] = {}
    for name, show in _DISPLAYS.items():
        before[name] = formatter.for_type(name, show)
    plain_list = formatter.for_type(list)
    before[list] = plain_list
    formatter.for_type(list, lambda value: _list_html(value, plain_list))

    def undo() -> None:
        for name, show in before.items():
            formatter.pop(name, None)
            if show is not None:
                formatter.for_type(name, show)

    return undo


def _frame(frame: Any) -> str:
    from cuframes_nb.notebook.reprs import frame_html

    return frame_html(frame)


def _stream(info: Any) -> str:
    from cuframes_nb._show.listings import info_sheet

    return info_sheet(info)._repr_html_()


def _stats(stats: Any) -> str:
    from cuframes_nb._show.listings import stats_table

    return stats_table(stats)._repr_html_()


def _device(info: Any) -> str:
    from cuframes_nb._show.listings import DeviceTable

    return DeviceTable([info])._repr_html_()


_DISPLAYS: Final[dict[str, Callable[[Any], str]]] = {
    "cuframes_nb._api.frame.Frame": _frame,
    "cuframes_nb._api.info.StreamInfo": _stream,
    "cuframes_nb._core.stats.PublisherStats": _stats,
    "cuframes_nb._core.stats.SubscriberStats": _stats,
    "cuframes_nb._api.devices.DeviceInfo": _device,
}
"""How each type is shown; by name, so that none is imported before it is seen."""


def _list_html(values: list[Any], otherwise: Callable[[Any], Any] | None) -> Any:
    """Return a table for what `list_streams` and `devices` return, else what was shown before."""
    from cuframes_nb._api.devices import DeviceInfo
    from cuframes_nb._api.info import StreamInfo
    from cuframes_nb._show.listings import DeviceTable, StreamTable

    if type(values) is list and values:
        if all(isinstance(value, StreamInfo) for value in values):
            return StreamTable(values)._repr_html_()
        if all(isinstance(value, DeviceInfo) for value in values):
            return DeviceTable(values)._repr_html_()
    if otherwise is not None:
        return otherwise(values)
    own = getattr(values, "_repr_html_", None)  # of a subclass, which would have been asked
    return own() if own is not None else None
