"""Trials in a process of their own.

What they load, break or keep (CUDA contexts, FFmpeg's threads, an interpreter that crashes) ends
with that process, and one that hangs is ended. So a notebook's kernel can be examined from inside.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import cuframes_nb
from cuframes_nb._doctor.checks import REPORT, Check, Status, Trial, failure, outcomes
from cuframes_nb._os.runtime_dir import ENVIRONMENT

__all__ = ["apart", "main"]

_PATIENCE_SECONDS: Final = 60.0
"""A GPU that nobody used for a while takes seconds to wake, and there may be eight."""

_TOLD_LINES: Final = 3


def apart(trial: Trial, *, seconds: float = _PATIENCE_SECONDS) -> Iterator[Check]:
    """Yield what a trial comes to in a process of its own.

    Its streams are in a directory of its own, which is gone afterwards however it ends.

    Parameters
    ----------
    trial
        Its function must be importable by its name.
    seconds
        How long to wait for it.
    """
    target = f"{trial.look.__module__}:{trial.look.__qualname__}"
    about = json.dumps([trial.group, trial.name, trial.needed])
    with tempfile.TemporaryDirectory(prefix="cuframes-") as directory:
        out, err, ending = _run([target, about], _environment(directory), seconds)
    checks = [_check(line) for line in out.splitlines()]
    yield from checks
    if ending:
        *_, said = ["", *err.strip().splitlines()[-_TOLD_LINES:]]
        yield failure(trial, f"the process that tried it {ending}{said and f': {said}'}", REPORT)


def main() -> None:
    """Carry a trial out: the far side of `apart`, told by its arguments."""
    target, about = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(2, 1)  # what libraries print must not come between
    module, _, name = target.partition(":")
    group, title, needed = json.loads(about)
    trial = Trial(group, title, getattr(importlib.import_module(module), name), needed)
    for check in outcomes(trial):
        print(json.dumps(dataclasses.asdict(check)), file=out)


def _run(arguments: list[str], environment: dict[str, str], seconds: float) -> tuple[str, str, str]:
    """Return what the process wrote, and how it ended where that was not as it should."""
    # -P: no module of the directory that one happens to be in.
    command = [sys.executable, "-P", "-m", "cuframes_nb._doctor.apart", *arguments]
    process = subprocess.Popen(  # noqa: S603  our own module
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
    )  # fmt: skip
    ending = ""
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            ending = f"did not end within {seconds:g} s"
        except BaseException:
            process.kill()
            raise
    if not ending and process.returncode:
        ending = _ending(process.returncode)
    return out, err, ending


def _environment(directory: str) -> dict[str, str]:
    """Return the environment: this package is found as it was here, and nobody's streams."""
    root = str(Path(cuframes_nb.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, ENVIRONMENT: directory, "PYTHONPATH": path}


def _ending(code: int) -> str:
    if code > 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _check(line: str) -> Check:
    fields = json.loads(line)
    return Check(**{**fields, "status": Status(fields["status"])})


if __name__ == "__main__":
    main()
