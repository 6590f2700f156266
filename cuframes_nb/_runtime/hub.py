"""The publisher's side of all control connections: one thread that owns the sockets."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import select
import selectors
import threading
import time
from collections.abc import Callable
from typing import Final

from cuframes_nb._os.credentials import group_name, user_name
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.forks import close_in_child
from cuframes_nb._os.listener import Listener
from cuframes_nb._os.packets import PacketSocket
from cuframes_nb._os.wakeups import WakeReceiver, WakeSender, wake_each, wake_pair
from cuframes_nb._runtime.ring import Ring
from cuframes_nb._wire.codec import decode, encode
from cuframes_nb._wire.link import Link, Phase, Side
from cuframes_nb._wire.messages import (
    MAX_SUBSCRIBERS,
    Goodbye,
    Hello,
    Message,
    Passed,
    Query,
    ReadMode,
    Refuse,
    Status,
    SubscriberStatus,
    Welcome,
)
from cuframes_nb.errors import AccessDeniedError, CuframesError, InUseError

__all__ = ["Hub"]

_log = logging.getLogger("cuframes_nb")

_HANDSHAKE_SECONDS: Final = 5.0
"""A connection that has said nothing by then is dropped."""

_MOST_UNREAD_EPOCHS: Final = 4
"""New epochs in a row that a subscriber may leave unread."""

_RETRY_SECONDS: Final = 0.2
"""How long not to accept after the process ran out of descriptors."""


class _Peer:
    """One connection."""

    def __init__(self, sock: PacketSocket) -> None:
        self.sock = sock
        self.credentials = sock.peer()
        self.link = Link(Side.PUBLISHER)
        self.since = time.monotonic()
        self.index = -1
        self.hello: Hello | None = None
        self.wake: WakeSender | None = None
        self.passed = 0
        self.unread_epochs = 0
        self.is_in = False

    @property
    def streaming(self) -> bool:
        return self.wake is not None

    @property
    def strict(self) -> bool:
        return self.hello is not None and self.hello.mode is ReadMode.STRICT

    def send(self, message: Message, fds: list[OwnedFd] | None = None) -> None:
        """Say `message`; closes `fds`."""
        try:
            self.sock.send(encode(self.link.outgoing(message)), fds or ())
        finally:
            close_all(fds or ())

    def close(self) -> None:
        self.sock.close()
        if self.wake is not None:
            self.wake.close()


class Hub:
    """Takes subscribers in, tells them of new epochs, and notices when they go.

    Its thread is the only one that reads; `publish` only writes one byte into each subscriber's
    wake-up socket. Connections end at end of file, so a dead process needs no clearing up.

    Parameters
    ----------
    key
        Name of the stream.
    gid
        A group whose members may subscribe besides the owner, or None.
    ring
        The first epoch.
    started_ns
        When the publisher was made.
    """

    def __init__(self, key: str, gid: int | None, ring: Ring, started_ns: int) -> None:
        self._key = key
        self._gid = gid
        self._ring = ring
        self._started_ns = started_ns
        self._uid = os.geteuid()
        # A queue, and no condition: an interrupt while one waits leaves that without its lock.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._mutex = threading.RLock()
        self._peers: dict[int, _Peer] = {}
        # Held only while bytes go into sockets that never block, or one of these is closed;
        # so `publish` never waits for what the thread does with the other lock.
        self._wake_lock = threading.Lock()
        self._wakes: tuple[WakeSender, ...] = ()
        self._subscribers = 0
        self._stopping = False
        self._accept_again = 0.0
        with contextlib.ExitStack() as undo:
            self._listener = Listener(key, gid)
            undo.callback(self._listener.close)
            sender, receiver = wake_pair()
            undo.callback(sender.close)
            self._stop_sender, self._stop_receiver = sender, WakeReceiver.adopt(receiver)
            undo.callback(self._stop_receiver.close)
            self._selector = selectors.DefaultSelector()
            undo.callback(self._selector.close)
            self._watch(self._listener, self._accept)
            self._watch(self._stop_receiver, self._stop_receiver.drain)
            self._thread = threading.Thread(target=self._run, name=f"cuframes-{key}", daemon=True)
            self._thread.start()
            undo.pop_all()
        close_in_child(self)

    def _abandon(self) -> None:
        self._selector.close()

    @property
    def path(self) -> os.PathLike[str]:
        """Where the socket is."""
        return self._listener.path

    @property
    def ring(self) -> Ring:
        """The current epoch."""
        return self._ring

    @property
    def subscribers(self) -> int:
        """How many subscribers are connected, and have what they need to read."""
        return self._subscribers

    def reaches_anyone(self) -> bool:
        """Whether a subscriber is connected that has not closed its end."""
        with self._mutex:
            return any(_is_there(peer) for peer in self._peers.values() if peer.streaming)

    def wake_all(self) -> None:
        """Tell every subscriber that there is a new frame; never waits."""
        with self._wake_lock:
            wake_each(self._wakes)

    def passed(self) -> int | None:
        """Return the frame up to which every strict subscriber has come, or None without any."""
        with self._mutex:
            return min((p.passed for p in self._peers.values() if p.strict), default=None)

    def wait_passed(self, seconds: float) -> None:
        """Wait until that may have changed, at most so long."""
        with contextlib.suppress(queue.Empty):
            self._news.get(timeout=seconds)

    def change_ring(self, ring: Ring) -> Ring:
        """Send every subscriber to a new epoch and return the old one."""
        with self._mutex:
            old, self._ring = self._ring, ring
            for peer in [p for p in self._peers.values() if p.streaming]:
                self._guarded(peer, functools.partial(self._send_epoch, peer, ring))
        return old

    def status(self) -> Status:
        """Return what is known about the stream."""
        with self._mutex:
            ring = self._ring
            peers = [p for p in self._peers.values() if p.hello is not None and p.streaming]
            return Status(
                key=self._key,
                pid=os.getpid(),
                epoch=ring.epoch,
                started_ns=self._started_ns,
                published=ring.control.published,
                dropped=ring.control.dropped,
                last_publish_ns=ring.control.last_publish_ns,
                ring=ring.description,
                subscribers=tuple(_subscriber_status(peer, ring) for peer in peers),
            )

    def close(self, text: str) -> None:
        """Say goodbye to everybody and end the thread, once."""
        with self._mutex:
            if self._stopping:
                return
            self._stopping = True
            self._listener.close()
            for peer in self._peers.values():
                if peer.streaming:
                    with contextlib.suppress(OSError):
                        peer.send(Goodbye(text))
            self._stop_sender.wake()
        # A publisher may be collected on its own hub's thread, which then ends by itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _send_epoch(self, peer: _Peer, ring: Ring) -> None:
        # Descriptors that wait in a queue keep old epochs' memory, so a reader that does not take
        # them in is let go; it finds out, and connects again, when it runs.
        peer.unread_epochs = peer.unread_epochs + 1 if peer.sock.unread else 0
        if peer.unread_epochs > _MOST_UNREAD_EPOCHS:
            self._drop(peer)
        else:
            peer.send(ring.message, ring.export())

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._clear_up()

    def _clear_up(self) -> None:
        with self._mutex:
            with self._wake_lock:
                self._wakes = ()
            for peer in self._peers.values():
                peer.close()
            self._peers.clear()
            self._count()
            self._stop_sender.close()
            self._stop_receiver.close()
            self._selector.close()
        self._tell()

    def _serve(self) -> None:
        patience: float | None = None
        while True:
            events = self._selector.select(patience)
            with self._mutex:
                if self._stopping:
                    return
                for key, _ in events:
                    key.data()
                self._drop_silent()
                patience = _RETRY_SECONDS if self._has_deadlines() else None

    def _watch(
        self, source: Listener | WakeReceiver | PacketSocket, call: Callable[[], object]
    ) -> None:
        self._selector.register(source.fileno(), selectors.EVENT_READ, call)

    def _has_deadlines(self) -> bool:
        return bool(self._accept_again) or any(
            peer.link.phase is Phase.NEW for peer in self._peers.values()
        )

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for peer in list(self._peers.values()):
            if peer.link.phase is Phase.NEW and now - peer.since > _HANDSHAKE_SECONDS:
                self._drop(peer)
        if self._accept_again and now >= self._accept_again:
            self._accept_again = 0.0
            self._watch(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock = self._listener.accept()
        except OSError as error:
            # Whoever waits stays in the queue until there are descriptors again.
            self._selector.unregister(self._listener.fileno())
            self._accept_again = time.monotonic() + _RETRY_SECONDS
            _log.warning(
                "stream %r cannot take a subscriber in: %s; raise the limit ('ulimit -n')",
                self._key,
                error.strerror,
            )
            return
        if sock is None:
            return
        try:
            peer = _Peer(sock)
            self._watch(sock, lambda: self._guarded(peer, lambda: self._read(peer)))
        except OSError:
            sock.close()  # it went as soon as it came
            return
        self._peers[sock.fileno()] = peer

    def _guarded(self, peer: _Peer, action: Callable[[], None]) -> None:
        """Do `action`; whatever goes wrong ends this connection and no other."""
        try:
            action()
        except CuframesError as error:
            self._refuse(peer, error.code, str(error))
        except OSError as error:
            if error.errno is not None and not isinstance(error, ConnectionError):
                self._refuse(
                    peer, "in-use", f"the publisher is short of something: {error.strerror}"
                )
            else:
                self._drop(peer)

    def _read(self, peer: _Peer) -> None:
        try:
            packet = peer.sock.receive()
        except BlockingIOError:
            return
        if packet is None:
            self._drop(peer)
            return
        close_all(packet.fds)  # no message of a subscriber carries any
        message = peer.link.incoming(decode(packet.data, len(packet.fds)))
        match message:
            case Hello():
                self._check_allowed(peer)
                self._welcome(peer, message)
            case Query():
                self._check_allowed(peer)
                peer.send(self.status())
                self._drop(peer)
            case Passed(seq):
                peer.passed = max(peer.passed, seq)
                self._tell()

    def _check_allowed(self, peer: _Peer) -> None:
        uid, gids = peer.credentials.uid, peer.credentials.gids
        if uid in {0, self._uid} or (self._gid is not None and self._gid in gids):
            return
        group = "" if self._gid is None else f" or members of group {group_name(self._gid)}"
        raise AccessDeniedError(
            f"stream {self._key!r} is open to {user_name(self._uid)}{group}, not to "
            f"{user_name(uid)}: publish with group=… to let others in",
        )

    def _welcome(self, peer: _Peer, hello: Hello) -> None:
        taken = {other.index for other in self._peers.values()}
        index = next((i for i in range(MAX_SUBSCRIBERS) if i not in taken), None)
        if index is None:
            raise InUseError(
                f"stream {self._key!r} has {MAX_SUBSCRIBERS} subscribers, the most it may"
            )
        ring = self._ring
        sender, receiver = wake_pair()
        peer.index, peer.hello, peer.wake = index, hello, sender
        # The newest frame is the first that a strict subscriber gets.
        peer.passed = max(0, ring.next_seq - 2)
        peer.send(Welcome(self._key, os.getpid(), index, peer.passed), [receiver])
        # Before the epoch, with which it begins to look: of a frame after that it has to be told.
        with self._wake_lock:
            self._list_wakes()
        peer.send(ring.message, ring.export())
        peer.is_in = True
        self._count()

    def _refuse(self, peer: _Peer, reason: str, text: str) -> None:
        with contextlib.suppress(OSError):
            # Whatever the phase: it is the last thing this connection hears.
            peer.sock.send(encode(Refuse(reason, text)))
        self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        number = peer.sock.fileno()
        if self._peers.pop(number, None) is None:
            return
        self._selector.unregister(number)
        with self._wake_lock:
            self._list_wakes()
            peer.close()
        self._count()
        self._tell()

    def _tell(self) -> None:
        if self._news.empty():
            self._news.put(None)

    def _count(self) -> None:
        self._subscribers = sum(peer.is_in for peer in self._peers.values())

    def _list_wakes(self) -> None:
        self._wakes = tuple(p.wake for p in self._peers.values() if p.wake is not None)


def _is_there(peer: _Peer) -> bool:
    poller = select.poll()
    poller.register(peer.sock.fileno(), select.POLLRDHUP)
    return not poller.poll(0)


def _subscriber_status(peer: _Peer, ring: Ring) -> SubscriberStatus:
    hello = peer.hello
    assert hello is not None  # noqa: S101  the caller chose such
    return SubscriberStatus(
        peer.index,
        peer.credentials.pid,
        peer.credentials.uid,
        hello.mode,
        ring.leases_of(peer.index),
        hello.name,
    )
