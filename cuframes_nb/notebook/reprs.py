"""How frames look in a notebook: a picture, what they are, and where their planes lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cuframes_nb._api.frame import Frame
from cuframes_nb._show.listings import color_text
from cuframes_nb._show.quantities import ns_text
from cuframes_nb._show.tables import Column, Sheet, Table, clean, escape
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.notebook.images import data_uri, picture
from cuframes_nb.sinks.files import jpeg, png, write_whole

__all__ = ["Snapshot", "frame_html"]

_THUMBNAIL: Final = 320
"""Pixels wide."""


class Snapshot:
    """A frame's picture, to keep.

    Attributes
    ----------
    rgb
        The pixels in host memory, shape ``(height, width, 3)``.
    caption
        What it shows, and where it was written.
    """

    def __init__(self, frame: Frame) -> None:
        self.rgb = picture(frame)
        self.caption = f"{frame.key} #{frame.seq}, {frame.width}x{frame.height}"

    def write(self, path: Path) -> None:
        """Write the picture to a file, as PNG or JPEG by the ending of its name.

        Raises
        ------
        InvalidArgumentError
            If the ending is another.
        UnsupportedError
            For JPEG, if neither simplejpeg nor Pillow is installed.
        OSError
            If it cannot be written.
        """
        ending = path.suffix.lower()
        if ending not in (".png", ".jpg", ".jpeg"):
            raise InvalidArgumentError(
                f"a snapshot is written as .png or .jpg, and {str(path)!r} ends otherwise"
            )
        data = png(self.rgb) if ending == ".png" else jpeg(self.rgb)
        write_whole(path, lambda file: file.write(data))
        self.caption += f", written to {path}"

    def __repr__(self) -> str:
        return f"<Snapshot {clean(self.caption)}>"

    def _repr_png_(self) -> bytes:
        return png(self.rgb)


def frame_html(frame: Frame) -> str:
    """Return a frame as HTML: a small picture, what it is, and where its planes lie.

    Holds the frame no longer than this takes. A released one has no picture.
    """
    title = f"Frame {frame.seq} of {frame.key}"
    facts = {
        "frames": f"{frame.width}x{frame.height} {frame.format}",
        "colours": color_text(frame.color),
        "presented at": f"{frame.pts_ns:,} ns, {ns_text(frame.age_ns)} ago",
    }
    if frame.released:
        facts["pixels"] = "released"
        return Table(title, ["what", "value"], facts.items())._repr_html_()
    facts["device"] = frame.device
    tables = Sheet(Table(title, ["what", "value"], facts.items()), _plane_table(frame))
    return f"{_thumbnail(frame, title)}{tables._repr_html_()}"


def _thumbnail(frame: Frame, title: str) -> str:
    try:
        small = picture(frame, _THUMBNAIL)
    except Exception as error:  # noqa: BLE001  the facts are worth showing without a picture
        return f"<p>{escape(f'There is no picture: {error}')}</p>"
    height, width, _ = small.shape
    size = f'width="{width}" height="{height}" style="max-width: 100%"'
    return f'<p><img src="{data_uri(png(small))}" alt="{escape(title)}" {size}></p>'


def _plane_table(frame: Frame) -> Table:
    rows = (
        [
            str(index),
            " x ".join(map(str, plane.shape)),
            str(plane.dtype),
            f"{pitch:,} bytes",
            _address_range(plane, pitch),
        ]
        for index, (plane, pitch) in enumerate(zip(frame.planes, frame.pitches, strict=True))
    )
    columns = (Column("plane", number=True), "shape", "type", Column("row pitch", number=True))
    return Table("Planes", (*columns, "addresses"), rows)


def _address_range(plane: Any, pitch: int) -> str:
    """Return the first byte's address and the one after the last."""
    interface = getattr(plane, "__cuda_array_interface__", None) or plane.__array_interface__
    start = interface["data"][0]
    row_bytes = plane.itemsize * plane.size // plane.shape[0]
    return f"{start:#x} to {start + (plane.shape[0] - 1) * pitch + row_bytes:#x}"
