"""What a trial comes to, and trials that always come to something. Pure values."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["REPORT", "Check", "Status", "Trial", "failure", "outcomes", "works"]

REPORT: Final = "this is a bug of cuframes_nb, or of what is named here: please report it"


class Status(enum.StrEnum):
    """How something is."""

    OK = "ok"
    WARN = "warn"  #: it works, and something is to be known
    MISSING = "missing"  #: it is not there; what needs it does not work
    FAILED = "failed"  #: it is there and does not work


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One thing, and how it was found.

    Attributes
    ----------
    group, name
        What was looked at.
    status
        How it is.
    found
        What was found, in words.
    advice
        What to do, empty where nothing is to be done.
    needed
        Whether frames cannot be shared on this machine without it.
    """

    group: str
    name: str
    status: Status
    found: str
    advice: str = ""
    needed: bool = False


class Trial(NamedTuple):
    """Something to try.

    A name of one's own says what to report if the trial itself fails.
    """

    group: str
    name: str
    look: Callable[[], Iterable[Check]]
    needed: bool = False


def outcomes(trial: Trial) -> Iterator[Check]:
    """Yield what a trial comes to. One that raises has failed, and nothing else has."""
    try:
        yield from trial.look()
    except Exception as error:  # noqa: BLE001  whatever it is, it is what was to be found out
        yield failure(trial, f"{type(error).__name__}: {error}", REPORT)


def failure(trial: Trial, found: str, advice: str) -> Check:
    """Return the check that says that a trial could not be carried out."""
    return Check(trial.group, trial.name, Status.FAILED, found, advice, trial.needed)


def works(checks: Iterable[Check]) -> bool:
    """Whether everything works that sharing frames needs."""
    bad = {Status.MISSING, Status.FAILED}
    return not any(check.needed and check.status in bad for check in checks)
