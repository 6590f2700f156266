"""Serving a stream of ours to GStreamer's ``cudaipcsrc``."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
import weakref
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cuframes_nb._api.address import OWN_SCHEME, Address, checked_path
from cuframes_nb._api.publisher import Publisher
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._os.wakeups import WakeReceiver, wake_pair
from cuframes_nb._wire.messages import MemoryKind
from cuframes_nb.bridges.gst.client import Client, ring_caps
from cuframes_nb.bridges.gst.feed import Feed
from cuframes_nb.bridges.gst.forwarding import CUDA, Forwarder
from cuframes_nb.bridges.gst.listener import Listener
from cuframes_nb.errors import UnsupportedError

__all__ = ["Server", "serve"]

_log = logging.getLogger("cuframes_nb")

_MOST_CLIENTS: Final = 32
_RETRY_SECONDS: Final = 0.2
"""How long not to accept while there is no room."""

_STOP_SECONDS: Final = 3.0
"""For all clients to go; each is given two."""


def serve(
    source: str | os.PathLike[str] | Publisher | Subscriber,
    path: str | os.PathLike[str],
    *,
    timeout: float | None = 5.0,
    trusted_uids: Collection[int] = (),
) -> Server:
    """Let GStreamer pipelines read a stream: ``cudaipcsrc address=PATH``.

    Each pipeline that connects is a subscriber of the stream, for the newest frame. It is given the
    publisher's own memory; ``cudaipcsrc`` copies it on the GPU before it says that it has read, and
    until then the publisher does not write there. Nothing that a pipeline does or fails to do holds
    the publisher or other pipelines up. When the publisher closes the stream, pipelines end
    (EOS); one that was killed is waited for.

    Parameters
    ----------
    source
        The stream: a key, an address or the path of a socket, or a publisher or subscriber of it.
        Its frames have to be in GPU memory of the publisher's making (``memory="cuda"``), of a
        format other than gray8. They may be another process's, and this one needs no GPU.
    path
        The socket to make. One that nobody listens to any more is replaced.
    timeout
        Seconds to wait for the stream to appear, None for ever.
    trusted_uids
        As for `subscribe`.

    Returns
    -------
    Server
        It serves, on threads of its own, until it is closed; a context manager.

    Raises
    ------
    StreamNotFoundError, FrameTimeout, AccessDeniedError
        As `subscribe`; also if the socket cannot be made.
    StreamExistsError
        If somebody listens at `path`.
    UnsupportedError
        If GStreamer cannot read frames of this kind.
    """
    address = _address(source)
    feeds = _Feeds(address, frozenset(trusted_uids), CUDA)
    return Server(feeds, checked_path(Path(path)), timeout)


def _address(source: str | os.PathLike[str] | Publisher | Subscriber) -> Address:
    if isinstance(source, Publisher):
        return Address(source.info.path)
    address = Address(source.address if isinstance(source, Subscriber) else source)
    if address.scheme != OWN_SCHEME:
        raise UnsupportedError(
            f"{address} is GStreamer's already: have cudaipcsrc read {address.other_path}"
        )
    return address


class _Feeds:
    """Makes subscriptions of one stream.

    Parameters
    ----------
    address, trusted_uids
        The stream, and whom to trust.
    kinds
        The kinds of memory that can be handed on.
    """

    def __init__(
        self, address: Address, trusted_uids: frozenset[int], kinds: Collection[MemoryKind]
    ) -> None:
        self.address = address
        self._uids = trusted_uids
        self._kinds = kinds

    def make(self, name: str) -> Feed:
        """Return a new one, under that name."""
        return Feed(self.address, name, Forwarder(self._kinds), self._uids)

    def check(self, timeout: float | None) -> None:
        """Wait for the stream; raise if pipelines cannot read it."""
        forwarder = Forwarder(self._kinds)
        with contextlib.closing(Feed(self.address, "gst", forwarder, self._uids)) as feed:
            ring_caps(feed.wait(timeout))
            forwarder.check()


class Server:
    """Serves pipelines that read a stream; made with `serve`.

    Attributes
    ----------
    path : Path
        Its socket.
    """

    def __init__(self, feeds: _Feeds, path: Path, timeout: float | None) -> None:
        feeds.check(timeout)
        self.path = path
        self._address = feeds.address
        self._door = _Door(feeds, path)
        self._finalizer = weakref.finalize(self, _stop, self._door, os.getpid())
        self._door.start()

    @property
    def clients(self) -> int:
        """How many pipelines are connected."""
        return self._door.count

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Tell the pipelines of the end, and let them go; idempotent.

        Those that still hold a frame after two seconds are disconnected.
        """
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
        state = "closed" if self.closed else f"{self.clients} connected"
        return f"<Server of stream {str(self._address)!r} at {self.path}, {state}>"


class _Door:
    """Takes pipelines in, on a thread."""

    def __init__(self, feeds: _Feeds, path: Path) -> None:
        self._feeds = feeds
        self._clients: set[Client] = set()
        self._guard = threading.Lock()
        self._stopping = False
        with contextlib.ExitStack() as undo:
            self._sender, fd = wake_pair()
            undo.callback(self._sender.close)
            self._receiver = WakeReceiver.adopt(fd)
            undo.callback(self._receiver.close)
            self._listener = Listener(path)
            undo.pop_all()
        self._thread = threading.Thread(target=self._run, name="cuframes-gst-server", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def count(self) -> int:
        return len(self._clients)

    def stop(self) -> None:
        self._stopping = True
        self._sender.wake()
        if threading.current_thread() is not self._thread:  # which may have collected the server
            self._thread.join()
        with self._guard:
            clients = list(self._clients)
        for client in clients:
            client.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for client in clients:
            client.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._receiver.fileno(), select.POLLIN)
        poller.register(self._listener.fileno(), select.POLLIN)
        try:
            while not self._stopping:
                poller.poll()
                self._receiver.drain()
                if not self._take_in() and not self._stopping:
                    time.sleep(_RETRY_SECONDS)  # whoever waits stays in the queue
        finally:
            self._listener.close()
            self._sender.close()
            self._receiver.close()

    def _take_in(self) -> bool:
        """Take in the next client, if there is one; return whether there is room for more."""
        if len(self._clients) >= _MOST_CLIENTS:
            return False
        try:
            stream = self._listener.accept()
            if stream is None:
                return True
            try:
                client = Client(stream, self._feeds.make, self._forget)
            except BaseException:
                stream.close()
                raise
        except OSError as error:
            _log.warning("a pipeline cannot be taken in: %s", error.strerror)
            return False
        with self._guard:
            self._clients.add(client)
        client.start()
        return True

    def _forget(self, client: Client) -> None:
        with self._guard:
            self._clients.discard(client)


def _stop(door: _Door, pid: int) -> None:
    """Stop, unless this is a forked child, which has nothing to stop."""
    if os.getpid() == pid:
        door.stop()
