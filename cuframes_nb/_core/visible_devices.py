"""``CUDA_VISIBLE_DEVICES`` as the driver reads it: which GPUs it leaves to a process.

The variable is a list of ordinals, or one of UUIDs or their beginnings, separated by commas; its
first entry says which of both. It ends at the first entry that names no GPU, and whatever follows
is hidden without a word. If it names one twice, CUDA does not start at all. The finer rules are not
in NVIDIA's documentation: they are what driver 580 was seen to do, and a test asks the driver
again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["VARIABLE", "Reading", "hiding", "read"]

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"

_ORDINAL: Final = re.compile(r"\s*([+-]?[0-9]+)")
"""Looked for where an entry begins; what comes behind it does not count."""

_KINDS: Final = ("GPU-", "MIG-")
"""The driver takes either word for either."""

_DIGITS: Final = 32
"""Of a UUID. What comes behind so many does not count."""


class Reading(NamedTuple):
    """What the variable comes to."""

    order: tuple[int, ...]  #: places in `uuids` of the GPUs that it leaves, by their new ordinals
    ended_by: str | None  #: the entry that names no GPU and ends the list, None if all do

    @property
    def repeats(self) -> bool:
        """Whether it names a GPU twice; then CUDA does not start."""
        return len(set(self.order)) < len(self.order)


def read(value: str | None, uuids: Sequence[str]) -> Reading:
    """Return which GPUs the variable leaves.

    Parameters
    ----------
    value
        The variable's value, None if it is not set.
    uuids
        Of all GPUs and MIG instances of the machine, the GPUs in the order of their ordinals.
    """
    if value is None:
        return Reading(tuple(range(len(uuids))), None)
    order: list[int] = []
    entries = value.split(",") if value else []
    find = _by_uuid if value.startswith(_KINDS) else _by_ordinal
    for entry in entries:
        place = find(entry, uuids)
        if place is None:
            return Reading(tuple(order), entry)
        order.append(place)
    return Reading(tuple(order), None)


def hiding(value: str | None, uuids: Sequence[str]) -> str:
    """Return how the variable hides what the driver does not show; empty if it is not set."""
    if value is None:
        return ""
    reading = read(value, uuids)
    if reading.repeats:
        return f"{VARIABLE}={value!r}, which names a GPU twice"
    if reading.ended_by is not None and uuids:
        return f"{VARIABLE}={value!r}, which ends at {reading.ended_by!r}: that names no GPU here"
    return f"{VARIABLE}={value!r}"


def _by_ordinal(entry: str, uuids: Sequence[str]) -> int | None:
    number = _ORDINAL.match(entry)
    gpus = [place for place, uuid in enumerate(uuids) if uuid.startswith("GPU-")]
    if number is None or not 0 <= int(number[1]) < len(gpus):
        return None
    return gpus[int(number[1])]


def _by_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    beginning = _digits(entry)[:_DIGITS]
    if not entry.startswith(_KINDS) or not re.fullmatch("[0-9a-f]+", beginning):
        return None
    fitting = [place for place, uuid in enumerate(uuids) if _digits(uuid).startswith(beginning)]
    return fitting[0] if len(fitting) == 1 else None


def _digits(uuid: str) -> str:
    return uuid[4:].replace("-", "").lower()
