"""What a client of ours says, from bytes on; and what it may say when. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from cuframes_nb.bridges.gst.messages import HEADER, MAGIC, Kind, Request
from cuframes_nb.errors import RemoteProtocolError

__all__ = ["Account", "RequestDecoder"]

_TOKEN_NBYTES: Final = 4
"""Of the number that names memory that was sent as a descriptor."""

_LENGTHS: Final = {
    Kind.NEED_DATA: 0,
    Kind.READ_DONE: 0,
    Kind.RELEASE_MMAP_DATA: _TOKEN_NBYTES,
    Kind.FIN: 0,
}
"""What a client may send, and how long its payload is."""

_F = TypeVar("_F")


class RequestDecoder:
    """Makes requests of what a client sends, however it is cut."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[Request]:
        """Take `data`; yield the requests that are whole.

        Raises
        ------
        RemoteProtocolError
            If that is nothing that a client may send. The decoder is of no use then.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            kind, length = _header(self._buffer[: HEADER.size])
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            token, self._buffer = self._buffer[HEADER.size : end], self._buffer[end:]
            yield Request(kind, token)


def _header(data: bytes) -> tuple[Kind, int]:
    code, length, magic = HEADER.unpack(data)
    if magic != MAGIC:
        raise RemoteProtocolError(
            f"a packet begins with {data.hex(' ')}: the other side is no cudaipcsrc"
        )
    if code not in _LENGTHS:
        raise RemoteProtocolError(f"a packet has type {code}, which is not for this side to take")
    if length != _LENGTHS[Kind(code)]:
        raise RemoteProtocolError(f"a packet {Kind(code).name} says that it has {length} bytes")
    return Kind(code), length


class Account(Generic[_F]):
    """What one client asked for, was offered and holds.

    A frame is its own from the offer on, whether it says "read done" or not, until it gives it
    back; what it can give back are frames that it said "read done" to.

    Attributes
    ----------
    asks
        Whether it waits for a frame.
    ended
        Whether it was told that there will be no more.
    left
        Whether it said that it goes.
    """

    def __init__(self) -> None:
        self.asks = self.ended = self.left = False
        self._offered: tuple[bytes, _F] | None = None
        self._held: dict[bytes, _F] = {}

    def __len__(self) -> int:
        return len(self._held) + (self._offered is not None)

    def offer(self, token: bytes, frame: _F) -> None:
        """Note that it was given a frame; `token` names none that it has."""
        self.asks = False
        self._offered = (token, frame)

    def end(self) -> None:
        """Note that it was told of the end."""
        self.asks = False
        self.ended = True

    def incoming(self, request: Request) -> _F | None:
        """Note what it says; return the frame that it gives back.

        Raises
        ------
        RemoteProtocolError
            If it may not say this now.
        """
        match request.kind:
            case Kind.NEED_DATA if not self.asks and self._offered is None:
                self.asks = not self.ended  # else it has not read yet that there are no more
            case Kind.READ_DONE if self._offered is not None:
                token, frame = self._offered
                self._held[token], self._offered = frame, None
            case Kind.RELEASE_MMAP_DATA if request.token in self._held:
                return self._held.pop(request.token)
            case Kind.FIN:
                self.left = True
            case kind:
                raise RemoteProtocolError(
                    f"the client said {kind.name} ({request.token.hex() or 'no token'}) when it "
                    f"{'waits for a frame' if self.asks else 'has not waited for one'} and holds "
                    f"{len(self)}"
                )
        return None

    def give_up(self) -> list[_F]:
        """Return all that it has, which it has no longer."""
        frames = [*self._held.values(), *([self._offered[1]] if self._offered else [])]
        self._held.clear()
        self._offered = None
        return frames
