"""How pictures are made for the bytes there are: a ladder from the best picture to the smallest.

Quality goes first, because it is missed least, then size. Going down is immediate, since pictures
that are too large are late; going up wants some room, so that a plan stays for a while.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Ladder", "Plan"]

BEST_QUALITY: Final = 80
LEAST_QUALITY: Final = 40
SCALES: Final = (
    1.0,
    0.93,
    0.87,
    0.81,
    0.75,
    0.7,
    0.65,
    0.61,
    0.57,
    0.53,
    0.49,
    0.45,
    0.42,
    0.38,
    0.35,
)

_UP: Final = 0.85
"""A better plan is taken if its pictures are expected to need no more than this share."""
_DOWN: Final = 0.95
"""The plan is left for a cheaper one above this share."""
_LEARNS: Final = 0.2


class Plan(NamedTuple):
    """How pictures are made."""

    quality: int  #: of the JPEG, 1 to 100
    scale: float  #: linear, of the size at which it is looked at


class Ladder:
    """The plans from best to cheapest, and how many bytes their pictures are expected to have.

    Parameters
    ----------
    quality
        The quality that every plan has; None for what the bytes allow.
    """

    def __init__(self, quality: int | None) -> None:
        self._plans = _plans(quality)
        self._at = len(self._plans) - 1
        self._unit: float | None = None

    @property
    def plan(self) -> Plan:
        """How pictures are to be made now; the cheapest until something is known."""
        return self._plans[self._at]

    @property
    def is_best(self) -> bool:
        """Whether there is nothing better."""
        return self._at == 0

    def learn(self, plan: Plan, nbytes: int) -> None:
        """Note that a message with pictures made by `plan` had so many bytes.

        Growth is believed faster than shrinking: what is too large is late.
        """
        unit = nbytes / _weight(plan)
        if self._unit is None or unit > 2 * self._unit:
            self._unit = unit
        else:
            self._unit += _LEARNS * (unit - self._unit)

    def choose(self, nbytes: float) -> None:
        """Take the best plan whose messages are expected to have no more than so many bytes."""
        if self._unit is None:
            return
        shares = [_weight(plan) * self._unit / nbytes for plan in self._plans]
        better = next((at for at, share in enumerate(shares) if share <= _UP), len(shares) - 1)
        if better < self._at or shares[self._at] > _DOWN:
            self._at = better


def _weight(plan: Plan) -> float:
    """Return about how many bytes pictures by this plan have; only ratios mean something.

    JPEG's tables are divided by a number that follows from the quality, and bytes go roughly with
    its power of -0.7. They grow less than pixels do, because larger pictures are smoother.
    """
    coarse = 200 - 2 * plan.quality if plan.quality >= 50 else 5000 / plan.quality
    return float(max(coarse, 2.0) ** -0.7 * plan.scale**1.6)


def _plans(quality: int | None) -> list[Plan]:
    if quality is not None:
        return [Plan(quality, scale) for scale in SCALES]
    best = [Plan(each, 1.0) for each in range(BEST_QUALITY, LEAST_QUALITY, -5)]
    return best + [Plan(LEAST_QUALITY, scale) for scale in SCALES]
