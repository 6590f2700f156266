"""Which GPU: what people wish, what there is, and why that one. No driver is asked here.

A GPU that this process does not see (a *hidden* one) can not be chosen. It is told of because the
way out differs: what is hidden can be shown, and what is not on this machine can not. Whether
hidden ones are known changes no choice, only the words of an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cuframes_nb.errors import DeviceError, InvalidArgumentError

__all__ = [
    "ENVIRONMENT",
    "WAYS",
    "Candidate",
    "Choice",
    "choose",
    "choose_holder",
    "choose_peer",
    "listing",
]

ENVIRONMENT: Final = "CUFRAMES_DEVICE"

WAYS: Final = "a UUID or its beginning, a PCI bus id or an ordinal"
"""How a GPU may be named."""

_UUID: Final = re.compile(r"(?:(gpu|mig)-)?([0-9a-f][0-9a-f-]*)")
_BUS: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?")
_ORDINAL: Final = re.compile(r"(?:cuda:)?([0-9]{1,3})")
"""Longer numbers are the beginning of a UUID: no process sees a thousand GPUs."""


class Candidate(NamedTuple):
    """A GPU, or an instance of one that MIG divides, as far as a choice is concerned."""

    ordinal: int | None  #: its number in this process, None if that does not see it
    name: str
    uuid: str  #: "GPU-…", or "MIG-…" for an instance
    pci_bus_id: str  #: "0000:65:00.0"
    total_bytes: int = 0
    integrated: bool = False
    hidden_by: str = ""  #: in words, where it is hidden
    remedy: str = ""  #: what shows it
    parent: str = ""  #: UUID of the GPU that an instance is a part of

    def __str__(self) -> str:
        number = "hidden" if self.ordinal is None else str(self.ordinal)
        return f"{number} {self.name} {self.uuid} {self.pci_bus_id}"


class Choice(NamedTuple):
    """A GPU and why it was chosen."""

    candidate: Candidate
    reason: str


def choose(
    candidates: Sequence[Candidate],
    wanted: str | int | None,
    *,
    default: str = "",
    veil: str = "",
    argument: str = "device",
) -> Choice:
    """Return the GPU for a publisher, and why that one.

    Parameters
    ----------
    candidates
        Those that the process sees; hidden ones as far as they are known.
    wanted
        A UUID or a beginning of one that fits one GPU, a PCI bus id, or an ordinal of this process
        (``1`` or ``"cuda:1"``); None for the `default`.
    default
        The same, from ``$CUFRAMES_DEVICE``; empty for the discrete GPU with the most memory.
    veil
        What may hide GPUs that nobody tells of; empty if all hidden ones are among `candidates`.
    argument
        What people call `wanted`.

    Raises
    ------
    InvalidArgumentError
        If `wanted` is no way to name a GPU, or fits several.
    DeviceError
        If it is not on this machine, or hidden from this process; the message says which.
    """
    if wanted is not None:
        return Choice(_named(candidates, wanted, f"{argument}={wanted!r}", veil), "asked for")
    if default.strip():
        name = f"${ENVIRONMENT}={default!r}"
        return Choice(_named(candidates, default, name, veil), f"${ENVIRONMENT}")
    return _best(candidates, veil)


def choose_holder(
    candidates: Sequence[Candidate],
    uuid: str,
    wanted: str | int | None = None,
    *,
    veil: str = "",
    hint: str = "",
) -> Choice:
    """Return the GPU that holds a publisher's frames, for a subscriber.

    Parameters
    ----------
    candidates
        Those that the process sees; hidden ones as far as they are known.
    uuid
        Of the GPU that holds the frames.
    wanted
        The GPU that the subscriber asked for, as in `choose`; None if it takes any.
    veil
        As in `choose`.
    hint
        What else may be done where another GPU is there to read them.

    Raises
    ------
    InvalidArgumentError
        If `wanted` is no way to name a GPU, or fits several.
    DeviceError
        If the GPU is not on this machine, hidden from this process, or another than `wanted`; the
        message says which.
    """
    frames = f"the frames are on GPU {uuid}"
    holder = _holder(candidates, uuid)
    # An instance that MIG makes of a GPU reaches no other one.
    helpful = hint and _visible(candidates) and not (holder and holder.parent)
    hint = f"; {hint}" if helpful else ""
    if holder is None:
        hint = hint if veil else ""
        raise DeviceError(f"{frames}, which is {_absent(veil)}; here: {listing(candidates)}{hint}")
    if holder.ordinal is None:
        raise DeviceError(f"{frames}, which is {_hidden(holder)}{hint}")
    if wanted is not None:
        other = _named(candidates, wanted, f"device={wanted!r}", veil)
        if other is not holder:
            raise DeviceError(
                f"{frames} ({holder.name}, ordinal {holder.ordinal}), and device={wanted!r} is "
                f"another one ({other}): subscribe without device= and copy to the other GPU what "
                f"it needs{hint}"
            )
    return _at_home(holder)


def choose_peer(
    candidates: Sequence[Candidate],
    uuid: str,
    wanted: str | int | None = None,
    *,
    default: str = "",
    veil: str = "",
) -> Choice:
    """Return the GPU that reads a publisher's frames, be they its own or mapped into it.

    Parameters
    ----------
    candidates
        Those that the process sees; hidden ones as far as they are known.
    uuid
        Of the GPU that holds the frames. It may be hidden: what it holds can still be mapped.
    wanted
        The GPU to read them; None for the one that holds them if the process sees it, else the
        choice of a publisher.
    default, veil
        As in `choose`.

    Raises
    ------
    InvalidArgumentError
        If `wanted` is no way to name a GPU, or fits several.
    DeviceError
        If the frames are on no GPU of this machine, or the process sees none that fits.
    """
    holder = _holder(candidates, uuid)
    if holder is None and not veil:
        raise DeviceError(
            f"the frames are on GPU {uuid}, which is {_absent(veil)}; here: {listing(candidates)}"
        )
    if wanted is None and holder is not None and holder.ordinal is not None:
        return _at_home(holder)
    reader, reason = choose(candidates, wanted, default=default, veil=veil)
    if reader is holder:
        return _at_home(holder)
    where = f"{holder.name} ({uuid})" if holder else uuid
    return Choice(reader, f"{reason}, to read frames that are on {where}")


def _at_home(holder: Candidate) -> Choice:
    return Choice(holder, f"the frames are on {holder.name}")


def _holder(candidates: Sequence[Candidate], uuid: str) -> Candidate | None:
    return next((c for c in candidates if _bare(c.uuid) == _bare(uuid)), None)


def listing(candidates: Sequence[Candidate]) -> str:
    """Return GPUs in one line, visible ones first."""
    ordered = sorted(candidates, key=lambda c: (c.ordinal is None, c.ordinal or 0))
    return ", ".join(map(str, ordered)) or "none"


def _best(candidates: Sequence[Candidate], veil: str) -> Choice:
    visible = _visible(candidates)
    if not visible:
        if hidden := [c for c in candidates if c.ordinal is None]:
            raise DeviceError(
                f"this process sees no GPU: {hidden[0].uuid} ({hidden[0].name}) is "
                f"{_hidden(hidden[0])}"
            )
        hides = veil and f"{veil} hides what there is, or "
        raise DeviceError(
            f"this process sees no GPU: {hides}none is on this machine (or was given to this "
            f"container)"
        )

    def rank(candidate: Candidate) -> tuple[bool, int]:
        return not candidate.integrated, candidate.total_bytes

    best = max(visible, key=lambda c: (*rank(c), -(c.ordinal or 0)))
    equals = sum(rank(c) == rank(best) for c in visible)
    if len(visible) == 1:
        return Choice(best, "the only GPU")
    kind = "an integrated GPU, there is no discrete one," if best.integrated else "the discrete GPU"
    first = f", the first of {equals} such" if equals > 1 else ""
    return Choice(best, f"{kind} with the most memory{first}")


def _named(candidates: Sequence[Candidate], wanted: str | int, name: str, veil: str) -> Candidate:
    """Return the one GPU that a wish fits. `name` says where the wish comes from."""
    wish = _Wish(wanted, name)
    fitting = [c for c in candidates if wish.fits(c)]
    visible = _visible(fitting)
    if len(visible) == 1:
        return visible[0]
    if visible:
        raise InvalidArgumentError(f"{name} fits several GPUs, say which: {listing(visible)}")
    if fitting:
        raise DeviceError(f"{name} is {fitting[0].name}, which is {_hidden(fitting[0])}")
    hidden = [c for c in candidates if c.ordinal is None]
    if wish.is_ordinal and hidden:
        raise DeviceError(
            f"there is no GPU {wish.text} among those that this process sees, which alone have "
            f"ordinals: {listing(candidates)}. {hidden[0].uuid} is {_hidden(hidden[0])}"
        )
    raise DeviceError(
        f"there is no GPU {wish.text}: {name} is {_absent(veil)}; here: {listing(candidates)}"
    )


def _visible(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [c for c in candidates if c.ordinal is not None]


def _absent(veil: str) -> str:
    absent = "not on this machine (or not given to this container)"
    return f"hidden from this process by {veil}, or {absent}" if veil else absent


def _hidden(candidate: Candidate) -> str:
    remedy = candidate.remedy and f": {candidate.remedy}"
    return f"hidden from this process by {candidate.hidden_by}{remedy}"


class _Wish:
    """One way to name a GPU, read."""

    def __init__(self, wanted: str | int, name: str) -> None:
        self.text = _text(wanted)
        text = self.text.lower()
        ordinal, bus, uuid = (way.fullmatch(text) for way in (_ORDINAL, _BUS, _UUID))
        if not (ordinal or bus or uuid):
            raise InvalidArgumentError(f"{name} names no GPU: write {WAYS}")
        self.is_ordinal = ordinal is not None
        self._ordinal = None if ordinal is None else int(ordinal[1])
        self._bus = None if bus is None else _place(bus)
        self._kind, self._beginning = ("", "") if uuid is None else (uuid[1], _bare(uuid[2]))

    def fits(self, candidate: Candidate) -> bool:
        if self.is_ordinal:
            return candidate.ordinal == self._ordinal
        if self._bus is not None:
            bus = _BUS.fullmatch(candidate.pci_bus_id.lower())
            return bus is not None and _place(bus) == self._bus
        kind, _, bare = candidate.uuid.lower().partition("-")
        return self._kind in {None, kind} and _bare(bare).startswith(self._beginning)


def _text(wanted: object) -> str:
    """Return a wish as text, empty if it is none: True is 1 to Python, and no GPU to anybody."""
    if isinstance(wanted, str):
        return wanted.strip()
    try:
        return "" if isinstance(wanted, bool) else str(operator.index(wanted))  # type: ignore[arg-type]
    except TypeError:
        return ""


def _place(bus: re.Match[str]) -> tuple[int, ...]:
    """Return domain, bus, device and function; tools write them with more or fewer zeros."""
    return tuple(int(part or "0", 16) for part in bus.groups())


def _bare(uuid: str) -> str:
    """Return the digits of a UUID, however it is written."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")
