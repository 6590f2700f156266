"""Pictures as bytes that browsers understand."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import numpy as np

from cuframes_nb._cuda.nvjpeg.pictures import PictureEncoder
from cuframes_nb._viewer.images import Pixels, device_of
from cuframes_nb._viewer.picture import Drawn, Picture, Planes
from cuframes_nb.errors import CuframesError, UnsupportedError

__all__ = ["JPEG", "PNG", "JpegEncoder"]

JPEG: Final = "image/jpeg"
PNG: Final = "image/png"


class JpegEncoder:
    """Encodes pictures as JPEG: on the GPU what is there, by nvJPEG; else by libjpeg-turbo.

    What the GPU needs is made by the thread that encodes, for the first picture.

    Raises
    ------
    UnsupportedError
        If simplejpeg is not installed.
    """

    mime = JPEG

    def __init__(self) -> None:
        try:
            import simplejpeg
        except ImportError as error:
            raise UnsupportedError(
                f"pictures are sent as JPEG, and simplejpeg cannot be imported ({error}): install "
                f"'cuframes-nb[lab]'"
            ) from error
        self._library: Any = simplejpeg
        self._gpus: dict[str, PictureEncoder | None] = {}  # None for one that does not do it
        self._was_on_gpu = False
        self._why_not = ""

    @property
    def name(self) -> str:
        """What encodes, for people; why it is not the GPU, where it could be."""
        if self._was_on_gpu:
            return "JPEG (nvJPEG)"
        return f"JPEG (libjpeg-turbo{self._why_not and f'; {self._why_not}'})"

    def takes(self, device: str) -> bool:
        """Return whether pictures are encoded on a device, as ``"cuda:0"``."""
        if device not in self._gpus and device != "cpu":
            try:
                self._gpus[device] = PictureEncoder(int(device.removeprefix("cuda:")))
            except CuframesError as error:
                self._give_up(device, error)
        return self._gpus.get(device) is not None

    def encode(self, picture: Drawn, quality: int) -> bytes:
        """Return a picture as JPEG.

        Parameters
        ----------
        picture
            Planes are encoded as they are; RGB is converted to BT.601 full range (JFIF 1.02).
        quality
            1 to 100.

        Raises
        ------
        CuframesError
            If the GPU does not do it; it is not asked again.
        """
        self._was_on_gpu = isinstance(picture, Picture)
        if isinstance(picture, Picture):
            return self._on_gpu(picture, quality)
        return self._on_cpu(picture, quality)

    def rest(self) -> None:
        """Give back what is on GPUs until there is a picture again."""
        gpus, self._gpus = self._gpus, {}
        for encoder in gpus.values():
            if encoder is not None:
                with contextlib.suppress(CuframesError):  # the GPU is lost, and all with it
                    encoder.close()

    def _on_gpu(self, picture: Picture, quality: int) -> bytes:
        device = device_of(picture.planes[0])
        encoder = self._gpus.get(device)
        if encoder is None:
            raise UnsupportedError(f"pictures are not encoded on {device}: {self._why_not}")
        try:
            return encoder.encode(picture, quality)
        except CuframesError as error:
            self._give_up(device, error)
            with contextlib.suppress(CuframesError):
                encoder.close()
            raise

    def _give_up(self, device: str, error: CuframesError) -> None:
        self._gpus[device] = None
        self._why_not = str(error)

    def _on_cpu(self, picture: Planes | Pixels, quality: int) -> bytes:
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
