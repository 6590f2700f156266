"""Which streams there are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from typing import Final

from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._os.runtime_dir import list_sockets
from cuframes_nb._runtime.session import ask_status
from cuframes_nb.errors import CuframesError

__all__ = ["list_streams"]

_PATIENCE_SECONDS: Final = 1.0


def list_streams(*, trusted_uids: Collection[int] = ()) -> list[StreamInfo]:
    """Return what is known about each live stream that this user may read, sorted by key.

    Sockets of dead publishers, and publishers that do not answer within a second, are left out.

    Parameters
    ----------
    trusted_uids
        As for :func:`subscribe`.
    """
    found = []
    for _, path in list_sockets():
        with contextlib.suppress(OSError, CuframesError):
            status = ask_status(path, trusted_uids, time.monotonic() + _PATIENCE_SECONDS)
            found.append(describe(status, path))
    return found
