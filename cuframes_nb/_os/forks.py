"""What a forked child must let go of.

A child shares its parent's open file descriptions. Were it to keep them, a lock or a connection of
a parent that died would live on in the child. So every owner of a descriptor registers here, and a
child starts by closing them all.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from cuframes_nb.errors import ForkedError

__all__ = ["check_process", "close_in_child", "this_process"]


class _Abandons(Protocol):
    def _abandon(self) -> None:
        """Close what is held, without touching anything that the parent shares."""


_registered: weakref.WeakSet[_Abandons] = weakref.WeakSet()

_here = os.getpid()


def close_in_child(owner: _Abandons) -> None:
    """Call ``owner._abandon()`` first thing in any child that this process forks."""
    _registered.add(owner)


def this_process() -> int:
    """Return this process's number, without a system call."""
    return _here


def check_process(pid: int, what: str) -> None:
    """Raise unless this is still the process that made the object.

    Parameters
    ----------
    pid
        ``os.getpid()`` at the time the object was made.
    what
        The object, as the message should name it.

    Raises
    ------
    ForkedError
        In a forked child.
    """
    if _here != pid:  # asked for every array: a system call would be a tenth of its cost
        raise ForkedError(
            f"{what} was made in process {pid} and cannot be used in its forked child "
            f"{_here}: make a new one in the child, or start it with the 'spawn' method"
        )


def _enter_child() -> None:
    global _here  # noqa: PLW0603  the one place where a process becomes another
    _here = os.getpid()
    for owner in list(_registered):
        owner._abandon()  # noqa: SLF001  the protocol of this module
    _registered.clear()


os.register_at_fork(after_in_child=_enter_child)
