"""Publishing from buffers that the user made: a decoder's pool, tensors of torch."""

from __future__ import annotations

import time
from numbers import Integral
from typing import Any

from cuframes_nb._api.config import timestamp
from cuframes_nb._api.refusals import buffer_in_use, no_external_buffers, unknown_buffer
from cuframes_nb._api.writing import LOOK_AGAIN_SECONDS, FrameWriter
from cuframes_nb._runtime.array_frames import address_of
from cuframes_nb._runtime.loans import LOANS
from cuframes_nb._runtime.ring import Ring
from cuframes_nb._wire.messages import Policy
from cuframes_nb.errors import FrameTimeout, InvalidArgumentError

__all__ = ["BufferWriter"]


class BufferWriter(FrameWriter):
    """The part of `Publisher` that is for ``ownership="external"``."""

    def __init__(self) -> None:
        super().__init__()
        # Of the current epoch: objects that it keeps alive, and addresses; and of the one before.
        self._by_id: dict[int, int] = {}
        self._by_address: dict[int | None, int] = {}
        self._before: dict[int | None, int] = {}

    @property
    def buffers(self) -> tuple[Any, ...]:
        """The user's buffers, by number; empty if the slots are the publisher's own memory."""
        ring = self._ring
        return () if ring.gone else ring.memory.buffers

    def publish_buffer(
        self, buffer: Any, pts_ns: int | None = None, stream: object | None = None
    ) -> int:
        """Give a buffer to the subscribers, as it is.

        Parameters
        ----------
        buffer
            Its number, the object itself, or an array that begins where it does.
        pts_ns
            Presentation time in nanoseconds of CLOCK_MONOTONIC (:func:`now_ns`); by default now.
        stream
            CUDA stream behind whose work the frame is complete; by default CuPy's current stream,
            which is not torch's: pass ``torch.cuda.current_stream()``. Does not wait for it.

        Returns
        -------
        int
            The frame's sequence number.

        Raises
        ------
        InUseError
            If it was not free: a subscriber reads it, and may have seen what was written into it
            since. Call `wait_free` before writing.
        InvalidArgumentError
            If it is none of the buffers, or the time is no 64-bit whole number.
        UnsupportedError
            Without ``ownership="external"``.
        ClosedError
            After `close`, or in a forked child.
        """
        if self._inherited:
            self._check_process()
        pts = timestamp(pts_ns)
        with self._mutex:
            if self._closed:
                self._check_open()
            ring = self._ring
            index = self._by_id.get(id(buffer))
            if index is None:
                index = self._number(buffer)
            if not ring.is_taken(index):
                passed = self._passed()
                if not ring.try_take(index, passed):
                    raise buffer_in_use(self.key, ring, index, passed)
            # First of all, so that nothing is held that is not taken, wherever an interrupt comes.
            self._held.discard(index)
            try:
                seq = ring.publish(index, pts, stream)
            except Exception:
                self._held.add(index)
                raise
            self._mark_published(index)
        self._hub.wake_all()
        return seq

    def wait_free(self, buffer: Any = None, timeout: float | None = None) -> int:
        """Wait until no subscriber reads a buffer, and take it: then it may be written.

        Nobody can start to read it, either, until it is published.

        Parameters
        ----------
        buffer
            As `publish_buffer`. The newest frame's, too: then there is none to read until the next
            is published. By default whichever comes free first, never the newest frame's; of
            several, the one with the oldest content.
        timeout
            Seconds to wait, None for ever.

        Returns
        -------
        int
            The buffer's number. It stays taken, and `acquire` does not hand it out, until
            `publish_buffer`.

        Raises
        ------
        FrameTimeout
            If it did not come free in time.
        InvalidArgumentError
            If it is none of the buffers.
        UnsupportedError
            Without ``ownership="external"``.
        ClosedError
            In a forked child. After `close`, and after a `reconfigure` for arrays of the epoch
            before, a buffer that is named can still be waited for: it may then be written, or
            freed.

        Notes
        -----
        What was queued on a GPU to read a frame counts as reading it, by whichever process.
        """
        self._check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        while (index := self._try_free(buffer)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                which = "no buffer" if buffer is None else "that buffer"
                raise FrameTimeout(
                    f"{which} of stream {self.key!r} came free within {timeout:g} s: subscribers "
                    f"are reading, see .info.subscribers"
                )
            self._hub.wait_passed(LOOK_AGAIN_SECONDS)
        return index

    def free_buffers(self) -> tuple[int, ...]:
        """Take every buffer that nobody reads, but for the newest frame's, without waiting.

        Returns
        -------
        tuple of int
            The numbers of those that may be written now: these, and those that were taken before
            and not published since. A decoder may have them all back.

        Raises
        ------
        UnsupportedError
            Without ``ownership="external"``.
        ClosedError
            After `close`, or in a forked child.
        """
        self._check_process()
        with self._mutex:
            self._check_open()
            self._check_external()
            while self._take_oldest() is not None:
                pass
            return tuple(sorted(self._held))

    # --- Inside -----------------------------------------------------------------------------------

    def _note_buffers(self) -> None:
        """Learn the buffers of a new epoch."""
        ring = self._ring
        self._by_id = {id(buffer): index for index, buffer in enumerate(ring.memory.buffers)}
        self._before = self._by_address
        self._by_address = {address: index for index, address in enumerate(ring.addresses)}
        self._by_address.pop(None, None)

    def _try_free(self, buffer: Any) -> int | None:
        with self._mutex:
            ring, index = self._find(buffer)
            if ring is not self._ring or self._closed:
                return index if ring is None or LOANS.try_free(ring, index) else None
            if buffer is None:
                return self._take_oldest()
            if ring.is_taken(index):
                if self._slot_of(index) is None:
                    self._held.add(index)
            elif ring.try_take(index, self._passed()):
                self._held.add(index)
            else:
                return None
            return index

    def _take_oldest(self) -> int | None:
        if self._ring.is_writing:
            self._take_back()
        index = self._ring.try_acquire(self._passed())
        if index is not None:
            self._held.add(index)
        return index

    def _find(self, buffer: Any) -> tuple[Ring | None, int]:
        """Return which slot a buffer is, and the ring, which may have ended; None if it is gone."""
        if buffer is None:
            self._check_open()
            self._check_external()
            return self._ring, -1
        try:
            return self._ring, self._number(buffer)
        except InvalidArgumentError:
            address = address_of(buffer)
            if address not in self._before:
                raise
            assert address is not None  # noqa: S101  no buffer is known by that
            return LOANS.find(address) or (None, self._before[address])

    def _number(self, buffer: Any) -> int:
        """Return which buffer of the current epoch it is."""
        self._check_external()
        index = self._by_id.get(id(buffer))
        if isinstance(buffer, Integral):
            number = int(buffer)
            index = number if 0 <= number < self._ring.slots else None
        elif index is None:
            index = self._by_address.get(address_of(buffer))
        if index is None:
            raise unknown_buffer(self.key, self._ring, buffer)
        return index

    def _passed(self) -> int | None:
        return None if self._policy is Policy.DROP_OLDEST else self._hub.passed()

    def _check_external(self) -> None:
        if not self._ring.is_external:
            raise no_external_buffers(self.key)
