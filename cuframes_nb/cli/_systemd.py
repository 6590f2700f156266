"""Telling systemd how it goes: sd_notify(3), a datagram to the socket that it names."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify"]


def notify(
    *, ready: bool = False, stopping: bool = False, watchdog: bool = False, status: str = ""
) -> None:
    """Tell systemd, if it asked.

    Parameters
    ----------
    ready, stopping
        The service is up; it ends now.
    watchdog
        It is not stuck.
    status
        What ``systemctl status`` shows.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    said = {"READY=1": ready, "STOPPING=1": stopping, "WATCHDOG=1": watchdog}
    lines = [line for line, is_so in said.items() if is_so]
    if status:
        lines.append(f"STATUS={status}")
    if address.startswith("@"):
        address = "\0" + address[1:]  # in the abstract name space
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto("\n".join(lines).encode(), socket.MSG_NOSIGNAL, address)
