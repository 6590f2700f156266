"""Where video comes from, and how that is told without its password. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from cuframes_nb.errors import InvalidArgumentError

__all__ = ["LIVE_SCHEMES", "redacted", "scheme_of", "with_credentials"]

LIVE_SCHEMES: Final = frozenset(
    {"rtsp", "rtsps", "rtmp", "rtmps", "rtp", "srt", "srtp", "tcp", "udp", "udplite", "mms"}
)
"""Schemes of FFmpeg's protocols that carry what happens now; http(s) carries films, too."""


def scheme_of(where: str) -> str:
    """Return the scheme of a URL, lower case; empty for a file name."""
    scheme, colon, _ = where.partition("://")
    return scheme.lower() if colon and scheme.isascii() and scheme[:1].isalpha() else ""


def redacted(where: str) -> str:
    """Return an address as it may be shown: without user, password and query (it has tokens)."""
    if not scheme_of(where):
        return where
    try:
        parts = urlsplit(where)
        host = parts.netloc.rpartition("@")[2]
        parts.port  # noqa: B018  raises where a password with a slash was taken for it
    except ValueError:  # no address at all; what of it is secret, nobody knows
        return f"{scheme_of(where)}://..."
    return urlunsplit((parts.scheme, host, parts.path, "..." if parts.query else "", ""))


def with_credentials(where: str, user: str, password: str) -> str:
    """Return a URL with this user and password.

    Raises
    ------
    InvalidArgumentError
        If it is no URL of a host.
    """
    parts = urlsplit(where)
    host = parts.netloc.rpartition("@")[2]
    if not scheme_of(where) or not host:
        raise InvalidArgumentError(f"{redacted(where)} has no host that asks for a password")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{host}"))
