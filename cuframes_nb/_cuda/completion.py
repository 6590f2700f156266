"""Words in shared host memory that the GPU itself writes, in stream order."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call, error, function
from cuframes_nb._os.mapping import Mapping
from cuframes_nb.errors import CudaError, UnsupportedError

__all__ = ["RegisteredWords"]

_DEVICE_MAP: Final = 0x02  # CU_MEMHOSTREGISTER_DEVICEMAP, cuda.h
_TRIAL: Final = 0x0FEDCBA987654321
_TRIAL_SECONDS: Final = 2.0


class RegisteredWords:
    """A mapping that a GPU can write to.

    Parameters
    ----------
    mapping
        Shared host memory; must outlive this object.
    ordinal
        The GPU.
    trial_offset
        Byte offset of a word that nobody uses, on which the GPU's writing is tried.

    Raises
    ------
    UnsupportedError
        If the driver does not register the memory, or a write to it does not arrive.
    """

    def __init__(self, mapping: Mapping, ordinal: int, trial_offset: int) -> None:
        self._address = mapping.address
        self._ordinal = ordinal
        self._registered = False
        self._write_value = function("cuStreamWriteValue64")
        try:
            with activated(ordinal):
                call("cuMemHostRegister", self._address, mapping.nbytes, _DEVICE_MAP)
                self._registered = True
                self._device_address = int(call("cuMemHostGetDevicePointer", self._address, 0))
                self._try(mapping, trial_offset)
        except CudaError as error:
            self.close()
            raise UnsupportedError(f"the GPU cannot write to shared memory: {error}") from error
        except BaseException:
            self.close()
            raise

    def write(self, offset: int, value: int, handle: int) -> None:
        """Have the GPU write a 64-bit word at `offset` behind the work queued on a stream.

        ``cuStreamWriteValue64`` without flags is preceded by a system-wide memory fence (CUDA
        Driver API, "Stream Memory Operations"), so whoever sees the word sees the work's results.
        """
        status = self._write_value(handle, self._device_address + offset, value, 0)[0]
        if status:
            raise error("cuStreamWriteValue64", status)

    def close(self) -> None:
        """Unregister, once; no write may be queued any more."""
        if self._registered:
            self._registered = False
            with contextlib.suppress(CudaError), activated(self._ordinal):
                call("cuMemHostUnregister", self._address)

    def _try(self, mapping: Mapping, offset: int) -> None:
        """Write a word and see it, rather than believe an attribute."""
        words = mapping.view().cast("Q")
        stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        try:
            self.write(offset, _TRIAL, int(stream))
            deadline = time.monotonic() + _TRIAL_SECONDS
            while words[offset // 8] != _TRIAL:
                if time.monotonic() > deadline:
                    raise UnsupportedError("a word written by the GPU did not arrive")
                time.sleep(0)  # let other threads go on
            words[offset // 8] = 0
        finally:
            call("cuStreamDestroy", stream)
