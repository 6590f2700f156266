"""A browser to look at the live view with, on this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

from cuframes_nb._doctor.checks import Check, Status

__all__ = ["look_at_browsers"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "firefox")
_SECONDS: Final = 10.0


def look_at_browsers() -> Iterator[Check]:
    """Yield the first browser that says what it is."""
    said = filter(None, map(_version, _NAMES))
    if version := next(said, ""):
        yield Check("notebook", "browser", Status.OK, version)
    else:
        yield Check(
            "notebook",
            "browser",
            Status.MISSING,
            f"none of {', '.join(_NAMES)}",
            "nothing, if you look from another machine",
        )


def _version(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        return ""
    try:
        run = subprocess.run(  # noqa: S603  found on the user's own PATH
            [path, "--version"], capture_output=True, check=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.strip().splitlines()[0] if run.stdout.strip() else ""
