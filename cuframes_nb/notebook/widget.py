"""The live view of streams in a notebook."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._viewer import messages
from cuframes_nb._viewer.answers import histogram_of, pixel_of, write_snapshot
from cuframes_nb._viewer.camera import Camera
from cuframes_nb._viewer.picture import fitted, rgb_pixels
from cuframes_nb._viewer.pipeline import Viewer
from cuframes_nb.errors import ClosedError, CuframesError, FrameTimeout, InvalidArgumentError
from cuframes_nb.notebook.hearing import Hearing
from cuframes_nb.sinks.files import png

__all__ = ["View"]

_STILL_SIZE: Final = (480, 270)
"""Of the picture that a notebook keeps when it is saved, at most; a larger one delays the first
picture that moves."""

_DO_SECONDS: Final = 5.0


def _static(name: str) -> str:
    return (resources.files("cuframes_nb.notebook") / "static" / name).read_text(encoding="utf-8")


class View(anywidget.AnyWidget):
    """A widget that shows streams; made by :func:`cuframes_nb.view` and :func:`cuframes_nb.grid`.

    Its methods may be called on any thread. Functions given to it run on its own.

    Attributes
    ----------
    on_frame : callable or None
        Called with each frame after it was shown.
    on_probe : callable or None
        Called with a `Frame`, x and y when somebody asks for a pixel.
    on_key : callable or None
        Called with a key that was pressed and the modifiers held, as two arguments.
    """

    # Strings and not paths: anywidget watches files, and would keep each widget for it.
    _esm = _static("viewer.js")
    _css = _static("viewer.css")

    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    controls = traitlets.Bool(default_value=True).tag(sync=True)
    width = traitlets.Int(allow_none=True, default_value=None).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)

    _closed = True  # what could not be made has nothing to close

    def __init__(
        self,
        sources: Sequence[Any],
        *,
        process: Callable[[Frame], Any] | None,
        overlay: Callable[[Frame], Any] | None,
        fps: float | None,
        width: int | None,
        quality: int | str,
        controls: bool,
    ) -> None:
        names = _names(sources)
        _check(fps, width, quality)
        self._process, self._overlay = process, overlay
        self.on_frame: Callable[[Frame], object] | None = None
        self.on_probe: Callable[[Frame, int, int], object] | None = None
        self.on_key: Callable[[str, tuple[str, ...]], object] | None = None
        self._hearing = Hearing()
        me = weakref.ref(self)
        cameras = [
            Camera(source, name, process, overlay)
            for source, name in zip(sources, names, strict=True)
        ]
        self._viewer = Viewer(
            cameras,
            functools.partial(_send, me),
            fps=fps,
            quality=None if quality == "auto" else int(quality),
            is_deaf=self._hearing.is_deaf,
            on_frame=functools.partial(_shown, me),
            on_event=functools.partial(_event, me),
        )
        self._closed = False
        super().__init__(
            names=names,
            controls=bool(controls),
            width=width,
            label=f"Live view of {', '.join(names)}",
        )
        self.on_msg(_heard)

    # --- What is shown ----------------------------------------------------------------------------

    @property
    def process(self) -> Callable[[Frame], Any] | None:
        """The function whose pictures are shown; may be replaced while the view runs."""
        return self._process

    @process.setter
    def process(self, function: Callable[[Frame], Any] | None) -> None:
        self._process = function
        self._use_functions()

    @property
    def overlay(self) -> Callable[[Frame], Any] | None:
        """The function whose shapes are drawn; may be replaced while the view runs."""
        return self._overlay

    @overlay.setter
    def overlay(self, function: Callable[[Frame], Any] | None) -> None:
        self._overlay = function
        self._use_functions()

    @property
    def frame(self) -> Frame | None:
        """The frame that was shown last, None before the first; the view keeps owning it."""
        return self._viewer.cameras[0].shown

    @property
    def roi(self) -> tuple[int, int, int, int] | None:
        """What is shown of the frames: ``(x, y, width, height)`` in pixels, None for all."""
        return self._viewer.cameras[0].roi

    @roi.setter
    def roi(self, roi: Sequence[int] | None) -> None:
        rect = None if roi is None else _rect(roi)
        self._do(lambda: self._viewer.set_roi(0, rect))

    @property
    def stats(self) -> dict[str, Any]:
        """What the read-out shows, as a dictionary."""
        found: list[dict[str, Any]] = []
        self._do(lambda: found.append(self._viewer.status()))
        return found[0] if found else {}

    # --- Control ----------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether the picture stands still."""
        return self._viewer.paused

    def play(self) -> None:
        """Go on after `pause`."""
        self._do(self._viewer.play)

    def pause(self) -> None:
        """Hold the picture. The frame on screen keeps its slot meanwhile."""
        self._do(self._viewer.pause)

    def step(self, by: int = 1) -> None:
        """Go `by` frames forward, or back if negative, among those still in the ring; pauses."""
        self._do(lambda: self._viewer.step(int(by)))

    def snapshot(self, path: str | Path | None = None) -> Path:
        """Save the frame on screen in full size as PNG.

        Parameters
        ----------
        path
            Where; by default ``<key>-<sequence number>.png`` in the current directory.

        Returns
        -------
        Path
            Where it was saved.

        Raises
        ------
        ClosedError
            If nothing was shown yet.
        OSError
            If it cannot be written.
        """
        camera = self._viewer.cameras[0]
        return self._snapshot(camera, None if path is None else Path(path))[0]

    def close(self) -> None:
        """Close the widget and leave the streams. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._viewer.close()
        self._hearing.close()
        layout = self.layout  # a widget by itself, which ipywidgets would keep for ever
        super().close()
        layout.close()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the widget, and for where there are no widgets its picture as it is now."""
        bundle = super()._repr_mimebundle_(**options)
        if not bundle:
            return bundle
        data, metadata = bundle
        data["text/plain"] = repr(self)
        picture = self._still()
        if picture is not None:
            data["image/png"] = picture
        return data, metadata

    def __repr__(self) -> str:
        state = "closed" if self._closed else "paused" if self.paused else "live"
        return f"<View of {', '.join(self.names)}, {state}, {self._viewer.sent} pictures sent>"

    # --- Inside -----------------------------------------------------------------------------------

    def _say(self, content: dict[str, Any], buffers: Sequence[bytes] = ()) -> None:
        """Send a message to the pages; on any thread."""
        self._hearing.send(lambda: self.send(content, list(buffers)))

    def _do(self, action: Callable[[], object]) -> None:
        if self._closed:
            raise ClosedError("this view was closed: make a new one with cf.view()")
        if not self._viewer.do(action, wait=_DO_SECONDS):
            raise FrameTimeout(
                f"the view did not come to it within {_DO_SECONDS:g} s: its process or overlay "
                f"function takes that long"
            )

    def _use_functions(self) -> None:
        process, overlay = self._process, self._overlay

        def use() -> None:
            for camera in self._viewer.cameras:
                camera.set_functions(process, overlay)
            self._viewer.redraw()

        self._do(use)

    def _snapshot(self, camera: Camera, path: Path | None) -> tuple[Path, bytes]:
        taken: list[tuple[Any, int]] = []

        def take() -> None:
            if camera.shown is not None:
                taken.append((camera.full(camera.shown), camera.shown.seq))

        self._do(take)
        if not taken:
            raise ClosedError(f"there is no picture of {camera.name} yet: wait for the first")
        pixels, seq = taken[0]
        return write_snapshot(pixels, path or Path(f"{camera.name}-{seq:06d}.png"))

    def _still(self) -> bytes | None:
        """Return the first stream's newest picture as PNG; None if there is none just now."""
        with contextlib.suppress(CuframesError, OSError):
            return self._viewer.cameras[0].peek(
                lambda frame: png(
                    rgb_pixels(frame, None, fitted((frame.width, frame.height), _STILL_SIZE, 1.0)),
                    level=1,
                )
            )
        return None

    def _answer(self, message: messages.PageMessage) -> None:
        """Do what a page asked for that is not about the picture; on the viewer's thread."""
        cameras = self._viewer.cameras
        camera = cameras[min(getattr(message, "cam", 0), len(cameras) - 1)]
        if isinstance(message, messages.Key) and self.on_key is not None:
            self.on_key(message.key, message.mods)
        elif isinstance(message, messages.Probe) and camera.shown is not None:
            answer = pixel_of(camera.shown, message)
            if answer is None:
                return
            self._say(answer)
            if self.on_probe is not None:
                self.on_probe(camera.shown, message.x, message.y)
        elif isinstance(message, messages.Histogram):
            if message.on and message.cam < len(cameras) and camera.shown is not None:
                self._say(histogram_of(camera.shown, message.cam))  # it may stand still
        elif isinstance(message, messages.Snapshot):
            path, data = self._snapshot(camera, None)
            said = messages.saved(path.name, str(path), "image/png")
            self._say(said, [data] if message.download else [])


def _heard(widget: View, content: object, buffers: object) -> None:
    """Take a message of a page in; on whatever thread the kernel hears pages."""
    del buffers
    widget._hearing.note()  # noqa: SLF001  a function, so that the widget is not held by itself
    widget._viewer.tell(content)  # noqa: SLF001


def _send(me: weakref.ref[View], content: dict[str, Any], buffers: Sequence[bytes]) -> None:
    widget = me()
    if widget is not None:
        widget._say(content, buffers)  # noqa: SLF001


def _shown(me: weakref.ref[View], camera: Camera, frame: Frame) -> None:
    widget = me()
    if widget is None:
        return
    cam = widget._viewer.cameras.index(camera)  # noqa: SLF001
    if widget._viewer.wants_histogram(cam) and camera.histogram_due():  # noqa: SLF001
        widget._say(histogram_of(frame, cam))  # noqa: SLF001
    if (on_frame := widget.on_frame) is not None:
        _guarded(widget, lambda: on_frame(frame))


def _event(me: weakref.ref[View], message: messages.PageMessage) -> None:
    widget = me()
    if widget is not None:
        _guarded(widget, lambda: widget._answer(message))  # noqa: SLF001


def _guarded(widget: View, action: Callable[[], object]) -> None:
    """Do something of the user's; what goes wrong is told on the page."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  the user's function
        widget._say(messages.told(f"{type(error).__name__}: {error}", error=True))  # noqa: SLF001


def _names(sources: Sequence[Any]) -> list[str]:
    if not sources:
        raise InvalidArgumentError("there is nothing to view: name at least one stream")
    return [
        source.info.key if isinstance(source, Subscriber) else _short(source) for source in sources
    ]


def _short(source: Any) -> str:
    from cuframes_nb._api.address import Address

    return Address(source).key or Path(source).stem


def _check(fps: Any, width: Any, quality: Any) -> None:
    if fps is not None and (not isinstance(fps, int | float) or not 0 < fps <= 1000):
        raise InvalidArgumentError(f"fps is {fps!r}; it must be a rate, or None for no limit")
    if width is not None and (not isinstance(width, int) or not 16 <= width <= 16384):
        raise InvalidArgumentError(f"width is {width!r}; it must be 16 to 16384 pixels, or None")
    if quality != "auto" and (not isinstance(quality, int) or not 1 <= quality <= 100):
        raise InvalidArgumentError(f"quality is {quality!r}; it must be 1 to 100, or 'auto'")


def _rect(roi: Sequence[int]) -> tuple[int, int, int, int]:
    try:
        x, y, width, height = (int(value) for value in roi)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"roi is {roi!r}; it must be (x, y, width, height)") from None
    if min(x, y) < 0 or min(width, height) < 1:
        raise InvalidArgumentError(f"roi is {roi!r}; it must have a size, from (0, 0) on")
    return x, y, width, height
