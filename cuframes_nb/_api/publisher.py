"""The writing end of a stream."""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cuframes_nb._api.buffers import BufferWriter
from cuframes_nb._api.config import StreamConfig, check_buffers, group_number, policy_named
from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._api.writing import LOOK_AGAIN_SECONDS
from cuframes_nb._core.clock import now_ns
from cuframes_nb._core.stats import PublisherStats
from cuframes_nb._os.forks import close_in_child
from cuframes_nb._os.runtime_dir import check_key
from cuframes_nb._runtime.buffers import share_buffers
from cuframes_nb._runtime.hub import Hub
from cuframes_nb._runtime.loans import LOANS, end_ring
from cuframes_nb._runtime.ring import Ring
from cuframes_nb._runtime.ring_memory import RingMemory, allocate
from cuframes_nb._runtime.select import buffers_backend, publisher_backend
from cuframes_nb._wire.control import RingState
from cuframes_nb._wire.messages import Policy
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout

__all__ = ["Publisher"]

_FAREWELL_SECONDS: Final = 5.0
"""How long `close` waits for strict subscribers to take what lies in the user's buffers."""


class Publisher(BufferWriter):
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
        Slots, 2 to 64, by default 4. One subscriber may hold two fewer, at least one.
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
    ownership
        ``"library"``: the slots are memory of the publisher's. ``"external"``: they are `buffers`,
        where they lie; nothing is copied.
    buffers
        With ``"external"``, 2 to 64 buffers of one frame each, on one GPU and all laid out alike:
        arrays of CuPy or torch, or anything with DLPack or ``__cuda_array_interface__``; either
        all planes as rows of any pitch (``(height * 3 // 2, width)`` for NV12) or a sequence of
        planes; or objects that share themselves, as those of `cuframes_nb.bridges.vulkan` do. They
        are kept alive as long as a subscriber may read them. Subscribers can map the whole
        allocation that a buffer lies in.

    Raises
    ------
    InvalidArgumentError
        If a value is wrong.
    StreamExistsError
        If a live publisher has that name. A dead one's socket is taken over.
    AccessDeniedError
        If the runtime directory is not to be trusted.
    DeviceError, UnsupportedError
        If the memory asked for cannot be had, or the buffers cannot be shared.
    InUseError
        If a buffer is another publisher's, too, or still read by subscribers of an earlier one.
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
        ring_size: int | None = None,
        policy: str = "drop-oldest",
        memory: str = "auto",
        device: str | int | None = None,
        fps: float = 0.0,
        color: ColorSpec | None = None,
        pitch: int | Sequence[int] | None = None,
        group: str | int | None = None,
        ownership: str = "library",
        buffers: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        self.key = check_key(key)
        self._pid = os.getpid()
        slots = check_buffers(ownership, buffers, ring_size)
        self._config = StreamConfig(width, height, format, slots, fps, color, pitch)
        self._policy = policy_named(policy)
        gid = group_number(group)
        started_ns = now_ns()
        self._backend_of = functools.partial(buffers_backend, memory, device)
        if buffers is None:
            taken = allocate(publisher_backend(memory, device), self._config.layout(), slots)
        else:
            taken = self._share(self._config, buffers)
        self._backend = taken.backend
        self._ring = self._make_ring(self._config, taken, epoch=1)
        try:
            self._hub = Hub(key, gid, self._ring, started_ns)
        except BaseException:
            end_ring(self._ring, RingState.CLOSED, _nobody, reachable=False)
            raise
        self._note_buffers()
        self._xp = self._ring.planes(0).xp
        self._finalizer = weakref.finalize(self, _close, self._hub, self._pid)
        close_in_child(self)

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
        buffers: Sequence[Any] | None = None,
    ) -> None:
        """Change what the frames are: a new epoch, which subscribers follow by themselves.

        What is not given stays as it is, except the pitch, which follows the new width. Frames
        that subscribers hold stay valid; slots acquired before cannot be published any more.

        Parameters
        ----------
        width, height, format, ring_size, fps, color, pitch, buffers
            As for :class:`Publisher`. New `buffers` may have memory in common with the old ones
            where no subscriber reads it (`wait_free`). The old ones are kept until none does.

        Raises
        ------
        InvalidArgumentError
            If a value is wrong; nothing was changed.
        InUseError
            If a buffer is still being read as one of the epoch before; nothing was changed.
        OSError, CudaError
            If there is no memory; nothing was changed.
        """
        self._check_process()
        with self._mutex:
            self._check_open()
            self._take_back()
            old = self._ring
            if old.is_external and buffers is None:
                buffers = old.memory.buffers
            config = self._config.changed(
                width=width,
                height=height,
                format=format,
                ring_size=self._new_size(ring_size, buffers),
                fps=fps,
                color=color,
                pitch=pitch,
            )
            if buffers is None:
                taken = allocate(self._backend, config.layout(), config.ring_size)
            else:
                taken = self._on_same_device(self._share(config, buffers))
            new = self._make_ring(config, taken, old.epoch + 1, old)
            self._config, self._ring, self._backend = config, new, taken.backend
            self._held.clear()
            self._note_buffers()
            self._hub.change_ring(new)
            # The hub and not this object, which would live as long as the old ring is read.
            strict = self._policy is not Policy.DROP_OLDEST
            passed = self._hub.passed if strict else _nobody
            end_ring(old, RingState.SUPERSEDED, passed, reachable=bool(self._hub.subscribers))

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
                memory_reason=self._ring.memory.reason,
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

        With ``ownership="external"`` a buffer may still be read: it is kept until nobody does, and
        `wait_free` says when. Memory that is shared by legacy handles goes with this process, so
        wait for that before it ends. With ``"strict-wait"``, waits until the strict subscribers
        have taken what was published, at most 5 s.
        """
        if os.getpid() != self._pid or self._closed:
            return
        if self._ring.is_external and self._policy is Policy.STRICT_WAIT:
            self._wait_passed(_FAREWELL_SECONDS)
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
        kind = self._ring.description.arenas[0].kind
        state = "closed" if self._closed else kind.label
        return (
            f"<Publisher {self.key!r} {layout.width}x{layout.height} {layout.format} "
            f"x{self._ring.slots} {state}>"
        )

    # --- Inside -----------------------------------------------------------------------------------

    def _share(self, config: StreamConfig, buffers: Sequence[Any]) -> RingMemory:
        return share_buffers(buffers, config.layout(), config.pitch, self._backend_of)

    def _on_same_device(self, taken: RingMemory) -> RingMemory:
        if taken.backend.device != self._backend.device:
            taken.close()
            raise InvalidArgumentError(
                f"the new buffers are on {taken.backend.device}, and the stream is on "
                f"{self._backend.device}: make another publisher"
            )
        return taken

    def _make_ring(
        self, config: StreamConfig, memory: RingMemory, epoch: int, before: Ring | None = None
    ) -> Ring:
        ring = Ring(
            memory,
            color=config.color_spec(memory.layout),
            fps=float(config.fps),
            policy=self._policy,
            epoch=epoch,
            before=before,
        )
        if ring.is_external:
            try:
                LOANS.begin(ring, before, self._passed() if before else None)
            except BaseException:
                ring.close(RingState.CLOSED)
                ring.let_go()
                raise
        return ring

    def _new_size(self, ring_size: int | None, buffers: Sequence[Any] | None) -> int | None:
        """Return the slots of a new epoch, None for as many as before."""
        if not self._ring.is_external and buffers is None:
            return ring_size
        ownership = "external" if self._ring.is_external else "library"
        return check_buffers(ownership, buffers, ring_size)

    def _wait_passed(self, seconds: float) -> None:
        """Wait until strict subscribers have taken every frame."""
        deadline = time.monotonic() + seconds
        last = self._ring.next_seq - 1
        while (passed := self._passed()) is not None and passed < last:
            if time.monotonic() > deadline:
                return
            self._hub.wait_passed(LOOK_AGAIN_SECONDS)


def _close(hub: Hub, pid: int) -> None:
    """End a stream; also when its publisher is collected or the interpreter ends."""
    if os.getpid() != pid:
        return
    reachable = hub.reaches_anyone()
    try:
        hub.close("its publisher ended it")
    finally:
        end_ring(hub.ring, RingState.CLOSED, hub.passed, reachable=reachable)


def _nobody() -> None:
    """No subscriber takes frames in order."""
