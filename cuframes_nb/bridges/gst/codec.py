"""Bytes to messages and back. No I/O: who reads asks how much may be read."""

from __future__ import annotations

import struct
from typing import Final

from cuframes_nb.bridges.gst.messages import (
    HANDLE_NBYTES,
    HEADER,
    MAGIC,
    MAX_PAYLOAD,
    Config,
    End,
    Kind,
    Message,
    Offer,
)
from cuframes_nb.errors import RemoteProtocolError

__all__ = ["Decoder", "config_packet", "offer_packet", "packet"]

_CONFIG: Final = struct.Struct("<iI")
_FRAME: Final = struct.Struct("<QIII4I")
_LENGTH: Final = struct.Struct("<I")
_FD_NBYTES: Final = 4

_RECEIVED: Final = {Kind.CONFIG, Kind.HAVE_DATA, Kind.HAVE_MMAP_DATA, Kind.EOS}


def packet(kind: Kind, payload: bytes = b"") -> bytes:
    """Return a packet as it goes over the wire."""
    return HEADER.pack(kind, len(payload), MAGIC) + payload


def config_packet(config: Config) -> bytes:
    """Return what a sink says first."""
    return packet(Kind.CONFIG, _CONFIG.pack(config.pid, config.is_mmap) + _terminated(config.caps))


def offer_packet(offer: Offer) -> bytes:
    """Return a frame as a sink offers it; the byte with its descriptor is sent behind it."""
    caps = b"" if offer.caps is None else _terminated(offer.caps)
    payload = (
        _FRAME.pack(offer.pts_ns, offer.size, offer.max_size, offer.pitch, *offer.offsets)
        + offer.token
        + _LENGTH.pack(len(caps))
        + caps
        + _LENGTH.pack(0)
    )
    return packet(Kind.HAVE_MMAP_DATA if offer.is_mmap else Kind.HAVE_DATA, payload)


class Decoder:
    """Makes messages of what a sink sends.

    The byte behind an offered descriptor must be read alone, or the kernel would drop what it
    carries. So one reads at most `wanted` bytes, hands them to `feed`, and so on.
    """

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._buffer = b""
        self._waiting: Offer | None = None
        self.wanted = HEADER.size  #: bytes to read next, at most; never 0

    def feed(self, data: bytes, fds: int = 0) -> Message | None:
        """Take `data`, which came with so many descriptors; return a message once it is whole.

        Raises
        ------
        RemoteProtocolError
            If that is nothing that a sink may send. The decoder is of no use then.
        """
        if self._waiting is not None:
            return self._feed_descriptor(self._waiting, fds)
        if fds:
            raise RemoteProtocolError(f"{fds} descriptors came where none belongs")
        self._buffer += data
        self.wanted -= len(data)
        if self.wanted:
            return None
        data, self._buffer = self._buffer, b""
        if self._kind is None:
            self._kind, self.wanted = _header(data)
            if self.wanted:
                return None
            data = b""
        return self._finish(self._kind, data)

    def _finish(self, kind: Kind, payload: bytes) -> Message | None:
        self._kind = None
        self.wanted = HEADER.size
        message = _message(kind, payload)
        if isinstance(message, Offer) and message.is_mmap:
            self._waiting = message
            self.wanted = 1
            return None
        return message

    def _feed_descriptor(self, offer: Offer, fds: int) -> Offer:
        if fds != 1:
            raise RemoteProtocolError(f"a frame's memory came with {fds} descriptors instead of 1")
        self._waiting = None
        self.wanted = HEADER.size
        return offer


def _header(data: bytes) -> tuple[Kind, int]:
    code, length, magic = HEADER.unpack(data)
    if magic != MAGIC:
        raise RemoteProtocolError(
            f"a packet begins with {data.hex(' ')}: the other side is no cudaipcsink"
        )
    if code not in _RECEIVED:
        raise RemoteProtocolError(f"a packet has type {code}, which a cudaipcsink never sends")
    if length > MAX_PAYLOAD:
        raise RemoteProtocolError(
            f"a packet says that it has {length} bytes; at most {MAX_PAYLOAD} are read"
        )
    return Kind(code), length


def _message(kind: Kind, payload: bytes) -> Message:
    try:
        if kind is Kind.EOS:
            return End()
        if kind is Kind.CONFIG:
            return _config(payload)
        return _offer(payload, is_mmap=kind is Kind.HAVE_MMAP_DATA)
    except struct.error:
        raise RemoteProtocolError(
            f"a packet {kind.name} ends inside a field, at byte {len(payload)}"
        ) from None


def _config(payload: bytes) -> Config:
    pid, is_mmap = _CONFIG.unpack_from(payload)
    return Config(pid, bool(is_mmap), _text(payload[_CONFIG.size :]))


def _offer(payload: bytes, *, is_mmap: bool) -> Offer:
    pts_ns, size, max_size, pitch, *offsets = _FRAME.unpack_from(payload)
    at = _FRAME.size + (_FD_NBYTES if is_mmap else HANDLE_NBYTES)
    token = payload[_FRAME.size : at]
    caps, at = _sized(payload, at)
    _, at = _sized(payload, at)  # what GStreamer calls metas; nothing in them is needed
    if at != len(payload):
        raise RemoteProtocolError(
            f"a frame's packet has {len(payload)} bytes and ends at {at}: the pipeline may run a "
            f"GStreamer before 1.24"
        )
    a, b, c, d = offsets
    text = _text(caps) if caps else None
    return Offer(pts_ns, size, max_size, pitch, (a, b, c, d), token, is_mmap, text)


def _sized(payload: bytes, at: int) -> tuple[bytes, int]:
    """Return bytes with their length before them, and where they end."""
    (length,) = _LENGTH.unpack_from(payload, at)
    start = at + _LENGTH.size
    return payload[start : start + length], start + length


def _terminated(text: str) -> bytes:
    return text.encode() + b"\0"


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("the caps are not UTF-8") from None
    if text[-1:] != "\0" or "\0" in text[:-1]:
        raise RemoteProtocolError("the caps do not end where their packet says")
    return text[:-1]
