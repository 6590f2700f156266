"""All trials together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cuframes_nb._doctor.apart import apart
from cuframes_nb._doctor.browsers import look_at_browsers
from cuframes_nb._doctor.checks import Check, Trial, outcomes
from cuframes_nb._doctor.codecs import look_at_codecs
from cuframes_nb._doctor.decoding import look_at_decoding
from cuframes_nb._doctor.gpus import look_at_gpus
from cuframes_nb._doctor.jpeg import look_at_jpeg
from cuframes_nb._doctor.packages import look_at_packages
from cuframes_nb._doctor.sharing import look_at_host_memory, look_at_kernel
from cuframes_nb._doctor.system import look_at_directory, look_at_limits, look_at_python

__all__ = ["TRIALS", "examine"]

Way = Callable[[Trial], Iterable[Check]]

TRIALS: Final[tuple[tuple[Trial, Way], ...]] = (
    (Trial("system", "Python", look_at_python, needed=True), outcomes),
    (Trial("system", "kernel", look_at_kernel, needed=True), outcomes),
    (Trial("system", "open files", look_at_limits), outcomes),
    (Trial("system", "runtime directory", look_at_directory, needed=True), outcomes),
    (Trial("frames", "host memory", look_at_host_memory, needed=True), apart),
    (Trial("GPU", "GPUs", look_at_gpus), apart),
    (Trial("GPU", "JPEG on a GPU", look_at_jpeg), apart),
    (Trial("packages", "packages", look_at_packages), apart),
    (Trial("films", "codecs", look_at_codecs), apart),
    (Trial("films", "decoding on a GPU", look_at_decoding), apart),
    (Trial("notebook", "browser", look_at_browsers), outcomes),
)
"""What is tried, and whether in this process."""


def examine(trials: Sequence[tuple[Trial, Way]] = TRIALS) -> list[Check]:
    """Try everything, side by side, and return how it is, in the order of the trials."""

    def checks(trial: Trial, way: Way) -> list[Check]:
        # Whatever goes wrong around a trial, such as a process that cannot be started, is its own.
        return list(outcomes(trial._replace(look=lambda: way(trial))))

    with ThreadPoolExecutor(len(trials), thread_name_prefix="cuframes doctor") as pool:
        found = pool.map(checks, *zip(*trials, strict=True))
        return [check for some in found for check in some]
