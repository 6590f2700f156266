"""Pictures of planes in GPU memory as JPEG: painted, encoded and brought to the host."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.nvjpeg.binding import handle, load
from cuframes_nb._cuda.nvjpeg.encoder import PlaneEncoder
from cuframes_nb._cuda.nvjpeg.painter import Painter, Picture
from cuframes_nb._os.forks import check_process
from cuframes_nb.errors import ClosedError, CuframesError, DeviceError

__all__ = ["PictureEncoder", "own_pixels"]


class PictureEncoder:
    """Makes JPEGs of pictures on one GPU; for one thread at a time.

    It works on a stream of its own, which waits for nothing that others have queued; only who calls
    `encode` waits for it.

    Parameters
    ----------
    ordinal
        The GPU.

    Raises
    ------
    UnsupportedError
        If there is no nvJPEG, or it does not work on this GPU; says why.
    DeviceError
        If the GPU fails.
    """

    _encoder: PlaneEncoder | None = None

    def __init__(self, ordinal: int) -> None:
        self._pid = os.getpid()
        library = load()
        with _our_errors():
            import cupy

            self._activated = activated(ordinal)
            with self._activated:
                self._stream: Any = cupy.cuda.Stream(non_blocking=True)
                self._painter = Painter(ordinal, self._stream)
                self._encoder = PlaneEncoder(library, handle(ordinal), self._stream)

    def encode(self, picture: Picture, quality: int) -> bytes:
        """Return a picture as JPEG: BT.601, full range, chroma of half the size (JFIF 1.02).

        When this returns, also with an error, the planes have been read.

        Parameters
        ----------
        picture
            Its planes are on this GPU.
        quality
            1 to 100.

        Raises
        ------
        ClosedError
            After `close`.
        UnsupportedError, DeviceError
            If the GPU does not do it; says why.
        """
        check_process(self._pid, "a JPEG encoder")
        if self._encoder is None:
            raise ClosedError("the JPEG encoder was closed: make another")
        with _our_errors(), self._activated:
            if picture.is_queued:
                self._wait_for_current()
            try:
                return self._encoder.encode(self._painter.paint(picture), quality)
            except BaseException:
                self._stream.synchronize()  # else the planes may still be read
                raise

    def close(self) -> None:
        """Give everything back, once."""
        encoder, self._encoder = self._encoder, None
        if encoder is None or os.getpid() != self._pid:  # the driver is gone in a forked child
            return
        with _our_errors(), self._activated:
            encoder.close()
            self._painter.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with contextlib.suppress(CuframesError):
                self.close()

    def _wait_for_current(self) -> None:
        """Let the stream go on behind what is queued on CuPy's current one."""
        import cupy

        self._stream.wait_event(cupy.cuda.get_current_stream().record())


@contextlib.contextmanager
def _our_errors() -> Iterator[None]:
    """Raise what CuPy raises as our own."""
    try:
        yield
    except CuframesError:
        raise
    except Exception as error:
        raise DeviceError(
            f"the GPU made no JPEG ({type(error).__name__}: {error}): look for what failed on it "
            f"before, and for free memory"
        ) from error


def own_pixels(value: Any) -> Any:
    """Return a copy of a picture in GPU memory, there, as CuPy's array.

    Parameters
    ----------
    value
        Anything. A picture is an array of CuPy or torch in GPU memory, uint8, ``(height, width)``
        or ``(height, width, 3 or 4)``.

    Returns
    -------
    cupy.ndarray or None
        None if it is no such picture. The copy is queued on CuPy's current stream.
    """
    is_torch = getattr(value, "is_cuda", False) and hasattr(value, "detach")
    if not is_torch and not (hasattr(value, "get") and hasattr(value, "__cuda_array_interface__")):
        return None
    import cupy

    array = cupy.from_dlpack(value.detach()) if is_torch else value
    has_shape = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in {3, 4})
    if array.dtype != np.uint8 or not has_shape or not array.size:
        return None
    with activated(array.device.id):
        return cupy.array(array, order="C")
