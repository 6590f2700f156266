"""Which streams there are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._os.runtime_dir import list_sockets
from cuframes_nb._runtime.session import ask_status
from cuframes_nb.errors import CuframesError

__all__ = ["list_streams"]

_PATIENCE_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 64


def list_streams(*, trusted_uids: Collection[int] = ()) -> list[StreamInfo]:
    """Return what is known about each live stream that this user may read, sorted by key.

    Sockets of dead publishers, and publishers that do not answer within a second, are left out.

    Parameters
    ----------
    trusted_uids
        As for :func:`subscribe`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS

    def ask(path: Path) -> StreamInfo | None:
        with contextlib.suppress(OSError, CuframesError):
            return describe(ask_status(path, trusted_uids, deadline), path)
        return None

    paths = [path for _, path in list_sockets()]
    if not paths:
        return []
    # All at once: one that is stopped must not make the others wait.
    with ThreadPoolExecutor(min(len(paths), _MOST_AT_ONCE)) as pool:
        return [info for info in pool.map(ask, paths) if info is not None]
