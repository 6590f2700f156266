"""Arrays in host memory, wherever they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._cuda.devices import activated

__all__ = ["as_numpy"]


def as_numpy(array: Any) -> NDArray[Any]:
    """Return an array of NumPy or CuPy as NumPy's, copied from a GPU behind its current stream.

    CuPy's own ``get`` sets the device that was current before, which makes a context there.
    """
    if not hasattr(array, "get"):
        return np.asarray(array)
    with activated(array.device.id):
        return np.asarray(array.get())
