"""Which memory lies behind an address: ``/proc/PID/maps``, proc_pid_maps(5)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["Region", "region_at", "regions"]


class Region(NamedTuple):
    """A mapped range of a process's addresses."""

    start: int
    end: int
    access: str  #: as ``r--s``: readable, not writable, shared
    file: tuple[str, int]  #: device and inode
    name: str


def regions(pid: int | str = "self") -> list[Region]:
    """Return what a process maps; nothing where it is not ours to know."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [_region(line) for line in text.splitlines()]


def region_at(address: int) -> Region | None:
    """Return what this process maps at `address`."""
    return next((r for r in regions() if r.start <= address < r.end), None)


def _region(line: str) -> Region:
    span, access, _, device, inode, *name = line.split(maxsplit=5)
    start, _, end = span.partition("-")
    return Region(int(start, 16), int(end, 16), access, (device, int(inode)), "".join(name))
