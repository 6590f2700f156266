"""What other users see of this process's arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["hide"]

_ARG_START: Final = 48
"""Of the fields in /proc/PID/stat, counted from 1: where the arguments begin, proc_pid_stat(5)."""


def hide(argument: str) -> None:
    """Blot out the user, password and query of a URL among this process's arguments.

    Until then, as always, everybody could read it in ``/proc/PID/cmdline``. Where the arguments
    cannot be written, they stay.
    """
    secrets = [
        (len(argument[: found.start(1)].encode()), len(found[1].encode()))
        for found in (re.search(r"://(.*)@", argument), re.search(r"://.*\?(.+)", argument))
        if found
    ]
    if not secrets:
        return
    try:
        arguments = Path("/proc/self/cmdline").read_bytes()
        begin = arguments.find(argument.encode())
        if begin < 0:
            return  # this is not how the program was started
        # The name in the second field is in brackets, and may have blanks.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        first = int(fields[_ARG_START - 3]) + begin
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            for place, length in secrets:
                memory.seek(first + place)
                memory.write(b"*" * length)
    except OSError:
        return
