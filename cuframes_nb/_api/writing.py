"""What a publisher does for every frame: slots are taken, written, published."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Final

from cuframes_nb._api.config import timestamp
from cuframes_nb._api.refusals import ring_full, wrong_slot
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb._os.forks import check_process
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._runtime.hub import Hub
from cuframes_nb._runtime.ring import Ring
from cuframes_nb._wire.messages import Policy
from cuframes_nb.errors import ClosedError, FrameTimeout, RingFullError

__all__ = ["LOOK_AGAIN_SECONDS", "FrameWriter"]

LOOK_AGAIN_SECONDS: Final = 0.001
"""A lease that ends makes no sound, so a waiting publisher looks again this often."""


class FrameWriter:
    """The part of `Publisher` that is used for every frame.

    Who makes one sets its attributes.
    """

    key: str
    _pid: int
    _policy: Policy
    _backend: Backend
    _ring: Ring
    _hub: Hub

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._discarded = 0
        # Who writes a slot is not noted but seen: one that nobody has any more, because it was
        # dropped or an interrupt came, is taken back.
        self._writers: dict[int, weakref.ref[WritableSlot]] = {}
        # Slots of the user's own memory, which need nobody to have them.
        self._held: set[int] = set()
        self._closed = False
        self._inherited = False

    def acquire(self, timeout: float | None = None) -> WritableSlot:
        """Take a slot to write the next frame into.

        Parameters
        ----------
        timeout
            Seconds to wait with the policy ``"strict-wait"``, None for ever. With
            ``"drop-oldest"`` nothing ever waits.

        Returns
        -------
        WritableSlot
            The slot with the oldest content that nobody is reading; its old pixels are still there.

        Raises
        ------
        RingFullError
            With ``"drop-oldest"``, if every slot is in use; the frame counts as dropped.
        FrameTimeout
            With ``"strict-wait"``, if no slot came free in time.
        ClosedError
            After `close`, or in a forked child.
        """
        if self._policy is not Policy.DROP_OLDEST:
            return self._wait_acquire(timeout)
        slot = self._try_acquire()
        if slot is None:
            raise self._full()
        return slot

    def publish(
        self, slot: WritableSlot, pts_ns: int | None = None, stream: object | None = None
    ) -> int:
        """Give a slot to the subscribers.

        Parameters
        ----------
        slot
            From `acquire`; not usable afterwards.
        pts_ns
            Presentation time in nanoseconds of CLOCK_MONOTONIC (:func:`now_ns`); by default
            ``slot.pts_ns``, else now.
        stream
            CUDA stream behind whose work the frame is complete (a `cupy.cuda.Stream` or anything
            with ``__cuda_stream__`` or ``ptr``); by default CuPy's current stream. Ignored for host
            memory. Does not wait for it.

        Returns
        -------
        int
            The frame's sequence number; they count from 1 without gaps.

        Raises
        ------
        ClosedError
            If the slot was published or discarded already, belongs to an epoch before a
            `reconfigure`, or the publisher is closed.
        InvalidArgumentError
            If the slot is another publisher's, or the time is no 64-bit whole number.
        """
        if self._inherited:
            self._check_process()
        pts = timestamp(slot.pts_ns if pts_ns is None else pts_ns)
        with self._mutex:
            ring = self._ring
            if slot._ring is not ring or slot._state != "being written" or self._closed:  # noqa: SLF001
                self._check_slot(slot)
            seq = ring.publish(slot._index, pts, stream)  # noqa: SLF001
            slot._state = "published"  # noqa: SLF001
        self._hub.wake_all()
        return seq

    def discard(self, slot: WritableSlot, stream: object | None = None) -> None:
        """Give a slot back unpublished.

        Parameters
        ----------
        slot
            From `acquire`; not usable afterwards.
        stream
            CUDA stream on which work on the slot was queued; by default CuPy's current stream. The
            slot is not handed out again before that work is done.

        Raises
        ------
        ClosedError, InvalidArgumentError
            As `publish`.
        """
        self._check_process()
        with self._mutex:
            self._check_slot(slot)
            self._ring.discard(slot._index, stream)  # noqa: SLF001
            slot._state = "discarded"  # noqa: SLF001
            self._discarded += 1

    def write(
        self,
        frame: Any,
        pts_ns: int | None = None,
        *,
        timeout: float | None = None,
        stream: object | None = None,
    ) -> int | None:
        """Copy a frame into a slot and publish it: one copy.

        Parameters
        ----------
        frame
            An array of NumPy, CuPy, torch, or anything with DLPack, ``__array_interface__`` or
            ``__cuda_array_interface__``: the planes as rows (``(height * 3 // 2, width)`` for
            NV12), RGB or RGBA of shape ``(height, width, 3 or 4)`` (converted with the stream's
            colours); or a sequence of planes of any pitch; or a PyAV ``VideoFrame``; or a `Frame`.
        pts_ns
            As `publish`.
        timeout
            As `acquire`.
        stream
            CUDA stream to copy on, behind the work that is queued there; by default CuPy's current
            stream. Ignored for host memory.

        Returns
        -------
        int or None
            The sequence number, or None if the ring was full and the frame was dropped.

        Raises
        ------
        InvalidArgumentError
            If shape or type fit neither the stream's format nor RGB.
        FrameTimeout, ClosedError
            As `acquire`.
        """
        try:
            slot = self.acquire(timeout)
        except RingFullError:
            return None
        with self._backend.on_stream(stream), slot:
            slot.pts_ns = pts_ns
            slot.write(frame)
            return self.publish(slot)

    # --- Inside -----------------------------------------------------------------------------------

    def _try_acquire(self) -> WritableSlot | None:
        if self._inherited:
            self._check_process()
        with self._mutex:
            if self._closed:
                self._check_open()
            ring = self._ring
            if ring.is_writing:
                self._take_back()
            drops = self._policy is Policy.DROP_OLDEST
            index = ring.try_acquire(None if drops else self._hub.passed())
            if index is not None:
                slot = WritableSlot(self, ring, index)
                self._writers[index] = weakref.ref(slot)
                return slot
            if drops:
                ring.control.count_drop()
            return None

    def _wait_acquire(self, timeout: float | None) -> WritableSlot:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            slot = self._try_acquire()
            if slot is not None:
                return slot
            if deadline is not None and time.monotonic() >= deadline:
                raise FrameTimeout(
                    f"no slot of stream {self.key!r} came free within {timeout:g} s: a subscriber "
                    f"with mode='strict' is too slow or stopped; see .info.subscribers, or use "
                    f"policy='drop-oldest'"
                )
            self._hub.wait_passed(LOOK_AGAIN_SECONDS)

    def _full(self) -> RingFullError:
        with self._mutex:
            self._check_open()
            return ring_full(self.key, self._ring)

    def _check_slot(self, slot: WritableSlot) -> None:
        self._check_open()
        if slot._publisher is not self:  # noqa: SLF001
            raise wrong_slot(slot, self.key, foreign=True)
        slot._check()  # noqa: SLF001
        if slot._ring is not self._ring:  # noqa: SLF001
            slot._state = "left behind by a reconfigure"  # noqa: SLF001
            raise wrong_slot(slot, self.key, foreign=False)

    def _check_process(self) -> None:
        # Before the mutex: if another thread held it at the fork, it never comes free in the child.
        if self._inherited:
            check_process(self._pid, f"the publisher of stream {self.key!r}")

    def _abandon(self) -> None:
        self._inherited = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the publisher of stream {self.key!r} was closed")

    def _slot_of(self, index: int) -> WritableSlot | None:
        """Return who is writing a slot, if anybody has it."""
        writer = self._writers.get(index)
        slot = None if writer is None else writer()
        if slot is None or not slot._is_writing(self._ring):  # noqa: SLF001
            return None
        return slot

    def _mark_published(self, index: int) -> None:
        """Note that a slot was published without the one who has it."""
        slot = self._slot_of(index)
        if slot is not None:
            slot._state = "published"  # noqa: SLF001

    def _take_back(self) -> None:
        """Discard the slots that were acquired and that nobody has any more."""
        for index in self._ring.writing:
            if index in self._held:
                continue
            writer = self._writers.get(index)
            if writer is None or writer() is None:
                self._ring.discard(index, None)
                self._discarded += 1
