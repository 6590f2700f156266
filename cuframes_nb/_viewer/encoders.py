"""Pictures as bytes that browsers understand."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cuframes_nb._viewer.images import Pixels
from cuframes_nb._viewer.picture import Drawn, Planes
from cuframes_nb.errors import UnsupportedError

__all__ = ["JPEG", "PNG", "JpegEncoder"]

JPEG: Final = "image/jpeg"
PNG: Final = "image/png"


class JpegEncoder:
    """Encodes pictures as JPEG on the CPU, by libjpeg-turbo.

    Raises
    ------
    UnsupportedError
        If simplejpeg is not installed.
    """

    mime = JPEG
    name = "JPEG (libjpeg-turbo)"

    def __init__(self) -> None:
        try:
            import simplejpeg
        except ImportError as error:
            raise UnsupportedError(
                f"pictures are sent as JPEG, and simplejpeg cannot be imported ({error}): install "
                f"'cuframes-nb[lab]'"
            ) from error
        self._library: Any = simplejpeg

    def encode(self, picture: Drawn, quality: int) -> bytes:
        """Return a picture as JPEG.

        Parameters
        ----------
        picture
            Planes are encoded as they are; RGB is converted to BT.601 full range (JFIF 1.02).
        quality
            1 to 100.
        """
        if isinstance(picture, Planes):
            y, u, v = picture
            return self._bytes(
                self._library.encode_jpeg_yuv_planes(_even(y), u, v, quality=quality, fastdct=True)
            )
        if picture.ndim == 2:
            return self._bytes(
                self._library.encode_jpeg(
                    np.ascontiguousarray(picture)[..., None], quality=quality, colorspace="GRAY",
                    colorsubsampling="Gray", fastdct=True,
                )
            )  # fmt: skip
        return self._bytes(
            self._library.encode_jpeg(
                np.ascontiguousarray(picture), quality=quality, colorspace="RGB",
                colorsubsampling="420", fastdct=True,
            )
        )  # fmt: skip

    @staticmethod
    def _bytes(data: Any) -> bytes:
        return bytes(data)


def _even(luma: Pixels) -> Pixels:
    """Return a plane of the same size with memory behind it up to an even width and height.

    TurboJPEG reads so far: two samples of luma for each of chroma.
    """
    height, width = luma.shape
    if width % 2 == height % 2 == 0:
        return luma
    return np.pad(luma, ((0, height % 2), (0, width % 2)), "edge")[:height, :width]
