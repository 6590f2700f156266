"""A subscriber's connection to one publisher, from hello to goodbye. No thread."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from cuframes_nb._os.credentials import user_name
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.packets import Packet, PacketSocket
from cuframes_nb._os.wakeups import WakeReceiver
from cuframes_nb._runtime.attached import AttachedEpoch, BackendFor
from cuframes_nb._wire.codec import decode, encode
from cuframes_nb._wire.control import RingState
from cuframes_nb._wire.link import Link, Phase, Side
from cuframes_nb._wire.messages import (
    Epoch,
    Goodbye,
    Hello,
    Message,
    Passed,
    Query,
    ReadMode,
    Refuse,
    Status,
    Welcome,
)
from cuframes_nb.errors import (
    AccessDeniedError,
    CuframesError,
    FrameTimeout,
    InUseError,
    ProtocolError,
    PublisherGoneError,
    RemoteProtocolError,
)

__all__ = ["FarewellError", "Session", "SessionOptions", "ask_status", "was_farewell"]

_M = TypeVar("_M", bound=Message)

ENVIRONMENT_TRUST: Final = "CUFRAMES_TRUSTED_UIDS"


class SessionOptions(NamedTuple):
    """What a subscriber wants."""

    mode: ReadMode
    name: str
    backend_for: BackendFor
    writable: bool = False
    trusted_uids: frozenset[int] = frozenset()


class Session:
    """A connection that has been taken in; follows the publisher's epochs.

    Make one with `open`. Not thread-safe: its subscriber serialises the calls.
    """

    def __init__(
        self,
        sock: PacketSocket,
        link: Link,
        wake: WakeReceiver,
        welcome: Welcome,
        options: SessionOptions,
    ) -> None:
        self._sock = sock
        self._link = link
        self._wake = wake
        self._options = options
        self.welcome = welcome
        self.epoch: AttachedEpoch
        self._upcoming: AttachedEpoch | None = None
        self._epochs: weakref.WeakSet[AttachedEpoch] = weakref.WeakSet()
        self._farewell: str | None = None
        self._deaf = False
        self._poller = select.poll()
        self._poller.register(sock.fileno(), select.POLLIN)
        self._sock_poller = select.poll()
        self._sock_poller.register(sock.fileno(), select.POLLIN)
        self._poller.register(wake.fileno(), select.POLLIN)
        self._only_woken = [(wake.fileno(), select.POLLIN)]

    @classmethod
    def open(cls, path: Path, options: SessionOptions, deadline: float) -> Session:
        """Connect, introduce ourselves and map the current epoch.

        Raises
        ------
        OSError
            If nobody listens at `path`.
        FrameTimeout
            If the publisher did not answer until `deadline` (``time.monotonic()``).
        CuframesError
            What it refused with, or what was wrong with its answer.
        """
        with contextlib.ExitStack() as undo:
            sock, link = _connect(path, options.trusted_uids, deadline)
            undo.callback(sock.close)
            sock.send(encode(link.outgoing(Hello(os.getpid(), options.mode, options.name))))
            welcome, fds = _expect(sock, link, Welcome, path, deadline)
            wake = _wake_receiver(fds)
            undo.callback(wake.close)
            session = cls(sock, link, wake, welcome, options)
            message, fds = _expect(sock, link, Epoch, path, deadline)
            session.epoch = session._attach(message, fds)
            undo.pop_all()
            return session

    @property
    def filenos(self) -> tuple[int, ...]:
        """Descriptors that become readable when there is something to look at; not the caller's."""
        ours = (self._sock.fileno(),)
        return ours if self._deaf else (self._wake.fileno(), *ours)

    def follow(self) -> None:
        """Take in what the publisher said: a new epoch, for `advance`, or the end.

        One epoch at a time: what comes after it is taken in once this one has begun.

        Raises
        ------
        PublisherGoneError
            At the end of the connection, or after a goodbye.
        CuframesError
            If a new epoch cannot be mapped.
        """
        if self._farewell is not None:
            raise FarewellError(self._farewell)
        if self._upcoming is not None or not self._sock_poller.poll(0):
            return
        while self._upcoming is None:
            try:
                packet = self._sock.receive()
            except BlockingIOError:
                return
            if packet is None:
                publisher = (
                    f"the publisher of stream {self.welcome.key!r} (process {self.welcome.pid})"
                )
                for epoch in self._epochs:
                    epoch.revoke(publisher)
                raise PublisherGoneError(
                    f"{publisher} ended without a word: it was killed or crashed; start it again"
                )
            self._handle(*_parse(packet, self._link))

    def advance(self) -> bool:
        """Go on to the next epoch that the publisher announced; False if this is the last.

        What was published in this one before is in it by now.
        """
        if self._upcoming is None:
            return False
        old, self.epoch, self._upcoming = self.epoch, self._upcoming, None
        old.retire()
        return True

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake-up or a message, at most so long; `drain` first, then look once more.

        Wake-ups stay until they are drained: between a wake-up and its frame nothing is done that
        can be done before or after.

        Returns
        -------
        bool
            True if nothing but a wake-up came: then there is nothing to `follow`.
        """
        events = self._poller.poll(None if seconds is None else max(0.0, seconds) * 1000)
        return events == self._only_woken

    def watch(self, is_ready: Callable[[], bool], sleep: float, spin: float) -> bool:
        """Wait like `wait` for `sleep` seconds, then look without sleeping for `spin` seconds.

        Returns
        -------
        bool
            True if nothing but a wake-up came, or what `is_ready` looks for is there.
        """
        whole_ms = int(sleep * 1000)  # poll() would round up
        events = self._poller.poll(whole_ms)
        if not events:
            time.sleep(max(0.0, sleep - whole_ms / 1000))
        end = time.monotonic() + spin
        while not events and time.monotonic() < end:
            if is_ready():
                return True
            events = self._poller.poll(0)  # lets other threads run, too
        return events == self._only_woken

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        if not self._wake.drain() and not self._deaf:
            # The publisher closed that end alone: polling it any more would never wait.
            self._deaf = True
            self._poller.unregister(self._wake.fileno())

    @property
    def outdated(self) -> bool:
        """Whether there is a newer epoch than any that this session was told of."""
        return self._upcoming is None and self.epoch.control.state == RingState.SUPERSEDED

    def report_passed(self, seq: int) -> None:
        """Tell the publisher that frames up to `seq` are taken; never waits.

        A report that does not fit is made up for by the next. After the end it is of no use.
        """
        if self._link.phase is not Phase.STREAMING:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._sock.send(encode(self._link.outgoing(Passed(seq))))

    def interrupt(self) -> None:
        """Wake whoever waits, for good; from any thread."""
        self._sock.shut_down()

    def close(self) -> None:
        """Leave, once. Leases that are out stay valid."""
        self._sock.close()
        self._wake.close()
        self.epoch.retire()
        if self._upcoming is not None:
            self._upcoming.retire()

    def _handle(self, message: Message, fds: tuple[OwnedFd, ...]) -> None:
        match message:
            case Epoch():
                self._upcoming = self._attach(message, fds)
            case Goodbye(text):
                # Remembered: the caller may first take a frame that is still in the ring.
                self._farewell = f"stream {self.welcome.key!r} was closed: {text}"
                raise FarewellError(self._farewell)
            case Refuse():
                raise _refusal(message)
            case _:
                close_all(fds)

    def _attach(self, message: Epoch, fds: tuple[OwnedFd, ...]) -> AttachedEpoch:
        epoch = AttachedEpoch(
            message,
            fds,
            self.welcome.index,
            self._options.backend_for,
            writable=self._options.writable,
        )
        self._epochs.add(epoch)
        return epoch


class FarewellError(PublisherGoneError):
    """The publisher said goodbye, in order."""


def was_farewell(error: PublisherGoneError) -> bool:
    """Whether the publisher ended the stream in order rather than by dying."""
    return isinstance(error, FarewellError)


def ask_status(path: Path, trusted_uids: Collection[int], deadline: float) -> Status:
    """Ask the publisher at `path` about its stream.

    Raises
    ------
    OSError
        If nobody listens.
    CuframesError
        As `Session.open`.
    """
    sock, link = _connect(path, trusted_uids, deadline)
    try:
        sock.send(encode(link.outgoing(Query())))
        status, _ = _expect(sock, link, Status, path, deadline)
        return status
    finally:
        sock.close()


def _connect(
    path: Path, trusted_uids: Collection[int], deadline: float
) -> tuple[PacketSocket, Link]:
    sock = PacketSocket.connect(path, deadline)
    uid = sock.peer().uid
    if uid not in {0, os.geteuid(), *trusted_uids, *_trusted_by_environment()}:
        sock.close()
        raise AccessDeniedError(
            f"the publisher at {path} runs as user {user_name(uid)}, whom "
            f"{user_name(os.geteuid())} has no reason to trust: pass trusted_uids=({uid},) or set "
            f"${ENVIRONMENT_TRUST}={uid} if you do"
        )
    return sock, Link(Side.SUBSCRIBER)


def _trusted_by_environment() -> set[int]:
    words = os.environ.get(ENVIRONMENT_TRUST, "").replace(",", " ").split()
    return {int(word) for word in words if word.isdecimal()}


def _expect(
    sock: PacketSocket, link: Link, kind: type[_M], path: Path, deadline: float
) -> tuple[_M, tuple[OwnedFd, ...]]:
    """Return the next message, which must be of `kind`."""
    try:
        packet = sock.receive_within(deadline)
    except TimeoutError:
        raise FrameTimeout(
            f"the publisher at {path} (process {sock.peer().pid}) accepted the connection and then "
            f"did not answer in time: it may be stopped or overloaded"
        ) from None
    if packet is None:
        raise PublisherGoneError(f"the publisher at {path} ended during the handshake")
    message, fds = _parse(packet, link)
    if isinstance(message, Refuse):
        raise _refusal(message)
    if not isinstance(message, kind):
        close_all(fds)
        raise RemoteProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")
    return message, fds


def _parse(packet: Packet, link: Link) -> tuple[Message, tuple[OwnedFd, ...]]:
    """Return message and descriptors of a packet; closes the descriptors if anything is off."""
    try:
        return link.incoming(decode(packet.data, len(packet.fds))), packet.fds
    except CuframesError:
        close_all(packet.fds)
        raise


def _refusal(refuse: Refuse) -> CuframesError:
    """Return the error that the publisher refused with."""
    if refuse.reason == AccessDeniedError.code:
        return AccessDeniedError(refuse.text)
    if refuse.reason == InUseError.code:
        return InUseError(refuse.text)
    if refuse.reason == ProtocolError.code:
        return RemoteProtocolError(f"the publisher refused the connection: {refuse.text}")
    return PublisherGoneError(f"the publisher refused ({refuse.reason}): {refuse.text}")


def _wake_receiver(fds: tuple[OwnedFd, ...]) -> WakeReceiver:
    (fd,) = fds
    try:
        return WakeReceiver.adopt(fd)
    except OSError as error:
        raise RemoteProtocolError(
            f"the publisher sent something else than a socket for wake-ups: {error}"
        ) from error
