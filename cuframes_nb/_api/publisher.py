"""The writing end of a stream."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cuframes_nb._api.config import StreamConfig, group_number, policy_named, timestamp
from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._api.refusals import ring_full, wrong_slot
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb._core.clock import now_ns
from cuframes_nb._core.stats import PublisherStats
from cuframes_nb._os.forks import check_process, close_in_child
from cuframes_nb._os.runtime_dir import check_key
from cuframes_nb._runtime.hub import Hub
from cuframes_nb._runtime.ring import Ring
from cuframes_nb._runtime.select import publisher_backend
from cuframes_nb._wire.control import RingState
from cuframes_nb._wire.messages import Policy
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import ClosedError, FrameTimeout, RingFullError
from cuframes_nb.formats import FrameLayout

__all__ = ["Publisher"]

_LOOK_AGAIN_SECONDS: Final = 0.001
"""A lease that ends makes no sound, so a waiting publisher looks again this often."""


class Publisher:
    """Publishes frames under a name; any number of processes read them where they were written.

    Calls are serialised, so several threads may publish. `acquire` and `publish` never wait for a
    subscriber with the policy ``"drop-oldest"``, and `publish` never waits for the GPU where the
    driver can tell completion by itself (``info.completion``).

    Parameters
    ----------
    key
        Name of the stream: ``[A-Za-z0-9][A-Za-z0-9._-]{0,63}``.
    width, height
        Size in pixels; may be odd.
    format
        Pixel format: ``"nv12"``, ``"p010"``, ``"gray8"``, ``"rgb24"`` or ``"rgba32"``.
    ring_size
        Slots, 2 to 64. One subscriber may hold two fewer, at least one.
    policy
        ``"drop-oldest"``: when every slot is in use the new frame is dropped and counted.
        ``"strict-wait"``: `acquire` waits for the subscribers with ``mode="strict"``.
    memory
        ``"cuda"``, ``"host"``, or ``"auto"``: the GPU if it really can share memory, else the host.
        ``info.memory_reason`` says why.
    device
        GPU: UUID, unique beginning of a UUID, PCI bus id or CUDA ordinal; by default
        ``$CUFRAMES_DEVICE``, else the discrete GPU with the most memory.
    fps
        Nominal frames per second, for information; 0 if unknown.
    color
        What the code values mean; by default BT.709 limited from 720 lines up, else BT.601 limited.
    pitch
        Bytes from row to row, one for all planes or one a plane; by default a multiple of 256.
    group
        Name or number of a group whose members may subscribe too. Without it only the same user
        and root may.

    Raises
    ------
    InvalidArgumentError
        If a value is wrong.
    StreamExistsError
        If a live publisher has that name. A dead one's socket is taken over.
    AccessDeniedError
        If the runtime directory is not to be trusted.
    DeviceError, UnsupportedError
        If the memory asked for cannot be had.
    OSError
        If there is not enough memory or no descriptor is left.

    Examples
    --------
    >>> import cuframes_nb as cf
    >>> with cf.Publisher("cam1", width=640, height=480, memory="host") as pub:
    ...     with pub.acquire() as slot:
    ...         slot.y[:] = 16
    ...         slot.uv[:] = 128
    ...     pub.stats.published
    1
    """

    def __init__(
        self,
        key: str,
        *,
        width: int,
        height: int,
        format: str = "nv12",  # noqa: A002  the field's word
        ring_size: int = 4,
        policy: str = "drop-oldest",
        memory: str = "auto",
        device: str | int | None = None,
        fps: float = 0.0,
        color: ColorSpec | None = None,
        pitch: int | Sequence[int] | None = None,
        group: str | int | None = None,
    ) -> None:
        self.key = check_key(key)
        self._pid = os.getpid()
        self._config = StreamConfig(width, height, format, ring_size, fps, color, pitch)
        self._policy = policy_named(policy)
        gid = group_number(group)
        started_ns = now_ns()
        self._backend = publisher_backend(memory, device)
        self._ring = self._make_ring(self._config, epoch=1)
        try:
            self._hub = Hub(key, gid, self._ring, started_ns)
        except BaseException:
            self._ring.close(RingState.CLOSED)
            raise
        self._mutex = threading.Lock()
        self._discarded = 0
        # Who writes a slot is not noted but seen: one that nobody has any more, because it was
        # dropped or an interrupt came, is taken back.
        self._writers: dict[int, weakref.ref[WritableSlot]] = {}
        self._closed = False
        self._xp = self._ring.planes(0).xp
        self._finalizer = weakref.finalize(self, _close, self._hub, self._pid)
        self._inherited = False
        close_in_child(self)

    # --- Per frame --------------------------------------------------------------------------------

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

    # --- The stream -------------------------------------------------------------------------------

    def reconfigure(
        self,
        *,
        width: int | None = None,
        height: int | None = None,
        format: str | None = None,  # noqa: A002
        ring_size: int | None = None,
        fps: float | None = None,
        color: ColorSpec | None = None,
        pitch: int | Sequence[int] | None = None,
    ) -> None:
        """Change what the frames are: a new epoch, which subscribers follow by themselves.

        What is not given stays as it is, except the pitch, which follows the new width. Frames
        that subscribers hold stay valid; slots acquired before cannot be published any more.

        Raises
        ------
        InvalidArgumentError
            If a value is wrong; nothing was changed.
        OSError, CudaError
            If there is no memory; nothing was changed.
        """
        self._check_process()
        with self._mutex:
            self._check_open()
            self._take_back()
            config = self._config.changed(
                width=width,
                height=height,
                format=format,
                ring_size=ring_size,
                fps=fps,
                color=color,
                pitch=pitch,
            )
            new = self._make_ring(config, self._ring.epoch + 1, self._ring)
            self._config, self._ring = config, new
            self._hub.change_ring(new).close(RingState.SUPERSEDED)

    @property
    def stats(self) -> PublisherStats:
        """A snapshot of the counters."""
        self._check_process()
        with self._mutex:
            self._check_open()
            ring = self._ring
            return PublisherStats(
                published=ring.control.published,
                dropped=ring.control.dropped,
                discarded=self._discarded,
                epoch=ring.epoch,
                slots=ring.slots,
                slots_leased=ring.slots_leased(),
                subscribers=self._hub.subscribers,
            )

    @property
    def info(self) -> StreamInfo:
        """What is known about the stream, and about how it is shared."""
        self._check_process()
        with self._mutex:
            self._check_open()
            return describe(
                self._hub.status(),
                Path(self._hub.path),
                memory_reason=self._backend.reason,
                completion_reason=self._ring.completion_reason,
            )

    @property
    def device(self) -> str:
        """Where the slots are: ``"cpu"`` or ``"cuda:N"`` by this process's ordinals."""
        return self._backend.device

    @property
    def layout(self) -> FrameLayout:
        """Geometry of the frames: planes, offsets, pitches."""
        return self._ring.layout

    @property
    def color(self) -> ColorSpec:
        """What the code values mean."""
        return self._ring.description.color

    @property
    def xp(self) -> Any:
        """The array module of the slots: numpy or cupy."""
        return self._xp

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """End the stream. Idempotent; subscribers are told, and keep the frames they hold.

        Waits for GPU work on the slots, at most 5 s. In a forked child it does nothing.
        """
        if os.getpid() != self._pid or self._closed:
            return
        with self._mutex:
            self._closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        layout = self._ring.layout
        state = "closed" if self._closed else self._backend.kind.label
        return (
            f"<Publisher {self.key!r} {layout.width}x{layout.height} {layout.format} "
            f"x{self._ring.slots} {state}>"
        )

    # --- Inside -----------------------------------------------------------------------------------

    def _make_ring(self, config: StreamConfig, epoch: int, before: Ring | None = None) -> Ring:
        layout = config.layout()
        return Ring(
            self._backend,
            layout=layout,
            color=config.color_spec(layout),
            fps=float(config.fps),
            policy=self._policy,
            slots=config.ring_size,
            epoch=epoch,
            before=before,
        )

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
            with self._hub.passed_changed:
                self._hub.passed_changed.wait(_LOOK_AGAIN_SECONDS)

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

    def _take_back(self) -> None:
        """Discard the slots that were acquired and that nobody has any more."""
        for index in self._ring.writing:
            writer = self._writers.get(index)
            if writer is None or writer() is None:
                self._ring.discard(index, None)
                self._discarded += 1


def _close(hub: Hub, pid: int) -> None:
    """End a stream; also when its publisher is collected or the interpreter ends."""
    if os.getpid() != pid:
        return
    try:
        hub.close("its publisher ended it")
    finally:
        hub.ring.close(RingState.CLOSED)
