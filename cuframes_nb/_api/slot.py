"""A slot that a publisher is writing."""

from __future__ import annotations

import contextlib
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from cuframes_nb._api.chroma import check_chroma
from cuframes_nb._api.ingest import copy_into
from cuframes_nb.errors import ClosedError

if TYPE_CHECKING:
    from cuframes_nb._api.writing import FrameWriter
    from cuframes_nb._runtime.ring import Ring

__all__ = ["WritableSlot"]


class WritableSlot:
    """Room for one frame, to be written and then published.

    Made by :meth:`Publisher.acquire`. As a context manager it publishes at the end of the block,
    on the stream that is current then, and gives the slot back unpublished if the block raises.
    Used from one thread at a time.

    The arrays lie in the memory that subscribers read: writing to one after `publish` changes what
    they see, so let go of them.

    Attributes
    ----------
    pts_ns : int or None
        Presentation time in nanoseconds of CLOCK_MONOTONIC; None means the time of `publish`.
    """

    __slots__ = (
        "__weakref__",
        "_index",
        "_planes",
        "_publisher",
        "_ring",
        "_state",
        "pts_ns",
    )

    def __init__(self, publisher: FrameWriter, ring: Ring, index: int) -> None:
        self._publisher = publisher
        self._ring = ring
        self._index = index
        self._planes = ring.planes(index)
        self._state = "being written"
        self.pts_ns: int | None = None

    @property
    def y(self) -> Any:
        """The luma plane: uint8 (uint16 for P010), shape ``(height, width)``, a view on the slot.

        For formats with one plane, that plane.
        """
        return self._plane(0)

    @property
    def uv(self) -> Any:
        """The chroma plane: shape ``(ceil(height / 2), ceil(width / 2), 2)``, last axis U, V.

        Raises
        ------
        AttributeError
            For formats without one.
        """
        check_chroma(self._ring.layout.format.is_semiplanar, self._ring.layout.format)
        return self._plane(1)

    @property
    def planes(self) -> tuple[Any, ...]:
        """Each plane as a view on the slot."""
        return tuple(self._plane(index) for index in range(len(self._ring.layout.planes)))

    @property
    def array(self) -> Any:
        """The whole slot as one array of rows, ``(height * 3 // 2, width)`` for NV12.

        Raises
        ------
        UnsupportedError
            If the layout is not one array; use `planes` then.
        """
        self._check()
        return self._planes.rows()

    @property
    def buffer(self) -> Any:
        """The user's buffer that this slot is, None if the slots are the library's memory."""
        self._check()
        memory = self._ring.memory
        return memory.buffers[self._index] if memory.buffers else None

    @property
    def xp(self) -> ModuleType:
        """The array module of the planes: numpy or cupy."""
        return self._planes.xp

    @property
    def seq(self) -> int:
        """The sequence number this frame will have if it is the next to be published.

        Fixed by `publish`: with several slots acquired at once, they are numbered as they are
        published.
        """
        return self._ring.next_seq

    def write(self, frame: Any) -> None:
        """Copy a frame into the slot: one copy, on the current stream.

        Parameters
        ----------
        frame
            As for :meth:`Publisher.write`, which also publishes.

        Raises
        ------
        InvalidArgumentError
            If shape or type fit neither the stream's format nor RGB.
        ClosedError
            If the slot was published or discarded already.
        """
        copy_into(self.planes, self._ring.description, frame, self._publisher._backend)  # noqa: SLF001

    def _is_writing(self, ring: Ring) -> bool:
        """Whether this is a slot of `ring` that is still to be published or discarded."""
        return self._ring is ring and self._state == "being written"

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state != "being written":
            return  # published or discarded inside the block
        if kind is None:
            try:
                self._publisher.publish(self)
            except BaseException:
                self._give_up()
                raise
        else:
            self._give_up()

    def __repr__(self) -> str:
        return f"<WritableSlot {self._index} of {self._publisher.key!r}, {self._state}>"

    def _plane(self, index: int) -> Any:
        self._check()
        return self._planes.plane(index)

    def _give_up(self) -> None:
        with contextlib.suppress(ClosedError):  # there may be nothing to give back to any more
            self._publisher.discard(self)

    def _check(self) -> None:
        if self._state != "being written":
            raise ClosedError(f"this slot was {self._state} already: acquire another one")
        self._publisher._check_process()  # noqa: SLF001
