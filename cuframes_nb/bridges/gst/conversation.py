"""Who may say what when, in one connection with a sink. Pure."""

from __future__ import annotations

import enum

from cuframes_nb.bridges.gst.codec import packet
from cuframes_nb.bridges.gst.messages import Config, End, Kind, Message, Offer
from cuframes_nb.errors import RemoteProtocolError

__all__ = ["Conversation"]


class _Phase(enum.Enum):
    UNCONFIGURED = "has not said what its frames are"
    IDLE = "was not asked for a frame"
    ASKED = "was asked for a frame"
    ENDED = "has ended its stream"


class Conversation:
    """One connection: looks at what comes, and makes what is to be said.

    The order is: config; then again and again "need data", a frame, "read done"; and at any time
    after that, "release" of the frame. Who says "need data" has to be answered, so the sink reads
    nothing more until it has a frame or stops.
    """

    def __init__(self) -> None:
        self._phase = _Phase.UNCONFIGURED
        self._is_mmap = False

    @property
    def is_mmap(self) -> bool:
        """Whether frames come as descriptors."""
        return self._is_mmap

    def incoming(self, message: Message) -> None:
        """Look whether the sink may say this now.

        Raises
        ------
        RemoteProtocolError
            If not.
        """
        match message:
            case Config(is_mmap=is_mmap) if self._phase is _Phase.UNCONFIGURED:
                self._is_mmap = is_mmap
                self._phase = _Phase.IDLE
            case Offer(is_mmap=self._is_mmap) if self._phase is _Phase.ASKED:
                self._phase = _Phase.IDLE
            case End() if self._phase is not _Phase.ENDED:
                self._phase = _Phase.ENDED
            case _:
                what = type(message).__name__.lower()
                raise RemoteProtocolError(
                    f"the pipeline sent {what!r}, of mode {'mmap' if self._is_mmap else 'legacy'}, "
                    f"when it {self._phase.value}"
                )

    def ask(self) -> bytes:
        """Return what asks for the next frame; nothing where that makes no sense."""
        if self._phase is not _Phase.IDLE:
            return b""
        self._phase = _Phase.ASKED
        return packet(Kind.NEED_DATA)

    def confirm(self) -> bytes:
        """Return what says that a frame was seen, from when on it is held."""
        return packet(Kind.READ_DONE)

    def release(self, token: bytes) -> bytes:
        """Return what gives a frame back."""
        return packet(Kind.RELEASE_MMAP_DATA if self._is_mmap else Kind.RELEASE_DATA, token)

    def leave(self) -> bytes:
        """Return what ends the connection and gives back all that is held."""
        return packet(Kind.FIN)
