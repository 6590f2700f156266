"""Whether two descriptors are one open file description (kcmp(2))."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

from cuframes_nb._os.fds import OwnedFd

__all__ = ["same_description"]

_NUMBERS: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
"""Of the system call, by machine (asm/unistd.h)."""

_KCMP_FILE: Final = 0  # linux/kcmp.h

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def same_description(one: OwnedFd, other: OwnedFd) -> bool:
    """Whether what is opened through both is one and the same, and not only the same file.

    Raises
    ------
    OSError
        If the kernel does not tell: containers with a strict seccomp profile forbid the question.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"the number of kcmp(2) on {platform.machine()} is not known")
    pid = os.getpid()
    arguments = [number, pid, pid, _KCMP_FILE, one.fileno(), other.fileno()]
    answer = int(_libc.syscall(*map(ctypes.c_long, arguments)))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"comparing descriptors failed: {os.strerror(error)}")
    return answer == 0
