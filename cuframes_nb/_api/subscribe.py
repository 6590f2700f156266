"""Attaching to a stream."""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from cuframes_nb._api.address import OWN_SCHEME, Address
from cuframes_nb._api.connection import Connection
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._runtime.select import subscriber_backend
from cuframes_nb._runtime.session import SessionOptions
from cuframes_nb._wire.messages import ReadMode
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError

__all__ = ["subscribe"]

_MODES: Final = {"newest": ReadMode.NEWEST, "strict": ReadMode.STRICT}

_MOST_SPIN_US: Final = 100_000


def subscribe(
    source: str | os.PathLike[str],
    mode: str = "newest",
    *,
    timeout: float | None = 5.0,
    reconnect: bool = True,
    device: str | int | None = None,
    peer: bool = False,
    copy_to: str | int | None = None,
    name: str | None = None,
    writable: bool = False,
    trusted_uids: Collection[int] = (),
    spin_us: float = 0,
) -> Subscriber:
    """Attach to a stream.

    Parameters
    ----------
    source
        The stream's key (``"cam1"`` or ``"cuframes://cam1"``) or the path of its socket. Or
        ``"gst:///tmp/gst.cuda.ipc"``: a GStreamer pipeline that ends in ``cudaipcsink``; it knows
        neither `name` nor `spin_us`.
    mode
        ``"newest"``: each `next` gives the newest frame, skipping older ones. ``"strict"``: each
        frame in order; with the publisher's policy ``"strict-wait"`` none is missed.
    timeout
        Seconds to wait for the stream to appear, None for ever.
    reconnect
        Whether to wait for the publisher to come back when it goes.
    device
        GPU to read the frames on (UUID, beginning of a UUID, PCI bus id, ordinal); by default the
        one that holds them, and without `peer` it can be no other.
    peer
        Whether frames that another GPU holds may be mapped into the one that reads them: `device`,
        by default the one that holds them if this process sees it, else the one that
        `select_device` returns. Nothing is copied: each read goes over NVLink or PCI Express.
        The GPU that holds them may be hidden from this process, and gets no context here.
    copy_to
        GPU that each frame is copied to when it is taken, once, on CuPy's current stream there;
        frames that are there already are not copied. The GPU that holds them must be visible.
    name
        What the publisher's ``info`` calls this subscriber; by default the program's name.
    writable
        Map the pixels for writing. GPU memory only; other subscribers see what is written.
    trusted_uids
        Users besides this one and root whose publishers may be attached to;
        ``$CUFRAMES_TRUSTED_UIDS`` adds to them.
    spin_us
        Microseconds before and after the moment when the next frame is expected, from the rhythm of
        those before, for which `next` looks for it without sleeping: CPU time for latency, since a
        process that sleeps has to be woken and finds its caches cold. 0 never spins.

    Returns
    -------
    Subscriber
        Connected; close it or use it as a context manager.

    Raises
    ------
    StreamNotFoundError
        If there is no such stream; the message lists those there are.
    FrameTimeout
        If its publisher does not answer, or a GStreamer pipeline has no frame.
    AccessDeniedError
        If the publisher does not let this user in, or is one this user does not trust.
    DeviceError
        If the GPU that holds the frames is not on this machine, is hidden from this process, or is
        not the one asked for; with `peer`, if that one cannot reach its memory.
    InvalidArgumentError
        If a value is wrong, or a GPU is named for a stream in host memory.
    UnsupportedError
        If the frames are of a kind that cannot be read here; the message says what can be done.
    """
    if mode not in _MODES:
        raise InvalidArgumentError(f"mode {mode!r} is not known; use 'newest' or 'strict'")
    if peer and copy_to is not None:
        raise InvalidArgumentError(
            f"peer=True reads the frames where they are, and copy_to={copy_to!r} copies each: say "
            f"one of them"
        )
    address, uids, spin_ns = Address(source), _uids(trusted_uids), _spin_ns(spin_us)
    if address.scheme != OWN_SCHEME:
        if peer or copy_to is not None:
            raise UnsupportedError(
                f"peer=True and copy_to= are not for the frames of a pipeline, {address}: "
                f"subscribe without them, and copy to the other GPU what it needs"
            )
        read: Callable[..., Subscriber] = address.bridge.subscribe
        return read(
            address.other_path,
            address.key,
            mode,
            timeout=timeout,
            reconnect=reconnect,
            device=device,
            writable=writable,
            trusted_uids=uids,
        )
    options = SessionOptions(
        _MODES[mode],
        _short_name(name),
        functools.partial(subscriber_backend, device=device, peer=peer, copy_to=copy_to),
        writable,
        uids,
    )
    connection = Connection(address, options, reconnect=reconnect)
    return Subscriber(connection, options.mode, spin_ns=spin_ns, timeout=timeout)


def _spin_ns(spin_us: Any) -> int:
    if not isinstance(spin_us, int | float) or not 0 <= spin_us <= _MOST_SPIN_US:
        raise InvalidArgumentError(
            f"spin_us is {spin_us!r}; it must be 0 (never spin) to {_MOST_SPIN_US} microseconds"
        )
    return int(spin_us * 1000)


def _uids(trusted_uids: Any) -> frozenset[int]:
    try:
        uids = frozenset(map(operator.index, trusted_uids))
    except TypeError:
        raise InvalidArgumentError(
            f"trusted_uids is {trusted_uids!r}; it must be user numbers, as in (1000,)"
        ) from None
    return uids


def _short_name(name: str | None) -> str:
    """Return a name of at most 64 bytes of UTF-8."""
    text = name if name is not None else Path(sys.argv[0] if sys.argv else "").name or "python"
    return text.encode(errors="replace")[:64].decode(errors="ignore")
