"""The GPUs of the machine that CUDA does not show to this process, and what hides them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cuframes_nb._core.choosing import Candidate
from cuframes_nb._core.visible_devices import VARIABLE, hiding, read
from cuframes_nb._cuda import nvml
from cuframes_nb.errors import DeviceError

__all__ = ["Unseen", "from_kernel", "from_machine", "unseen"]

_PROC: Final = Path("/proc/driver/nvidia/gpus")
"""Where the kernel's driver tells of each GPU, but not of MIG instances, nor under WSL 2."""

_SHOW: Final = "add it there, or unset the variable"
_ONCE: Final = "name each GPU once: CUDA does not start otherwise"


class Unseen(NamedTuple):
    """What is hidden."""

    candidates: list[Candidate]
    veil: str  #: what may hide others that nobody tells of; empty if all are known


def unseen(visible: Iterable[str], problem: str = "") -> Unseen:
    """Return what this machine has besides the visible GPUs.

    Parameters
    ----------
    visible
        UUIDs of the GPUs that CUDA shows.
    problem
        What keeps it from showing any, in words; empty if it does show what is not hidden.
    """
    with contextlib.suppress(DeviceError):
        return Unseen(from_machine(nvml.look(), visible, problem), "")
    return from_kernel(visible, problem)


def from_kernel(visible: Iterable[str], problem: str = "") -> Unseen:
    """Return what the driver in the kernel tells of and CUDA does not show."""
    known = list(_from_proc())
    value = os.environ.get(VARIABLE)
    veil = "" if known or value is None else hiding(value, [])
    return Unseen(list(_hidden(known, visible, problem)), veil)


def from_machine(
    machine: nvml.Machine, visible: Iterable[str], problem: str = ""
) -> list[Candidate]:
    """Return what NVML tells of and CUDA does not show."""
    return list(_hidden(list(_from_nvml(machine)), visible, problem))


def _hidden(known: list[Candidate], visible: Iterable[str], problem: str) -> Iterator[Candidate]:
    """Yield those that are not visible, each with what hides it."""
    seen = {_digits(uuid) for uuid in visible}
    value, uuids = os.environ.get(VARIABLE), [candidate.uuid for candidate in known]
    repeats = read(value, uuids).repeats
    # Another list, wrong entries included, keeps no driver from starting.
    by_variable = hiding(value, uuids) if repeats or not problem else ""
    for candidate in known:
        if _digits(candidate.uuid) in seen:
            continue
        if candidate.hidden_by:  # MIG, whatever the variable says
            yield candidate
        elif by_variable:
            remedy = _ONCE if repeats else _SHOW
            yield candidate._replace(hidden_by=by_variable, remedy=remedy)
        elif candidate.parent and not problem:
            remedy = f"start it with {VARIABLE}={candidate.uuid}"
            yield candidate._replace(
                hidden_by="CUDA, which does not show every MIG instance to a process",
                remedy=remedy,
            )
        else:
            yield candidate._replace(
                hidden_by=problem or "the CUDA driver, which does not show it",
                remedy="'cuframes-nb doctor' looks into it",
            )


def _from_nvml(machine: nvml.Machine) -> Iterator[Candidate]:
    for board in machine.boards:
        whole = Candidate(
            None, board.name, board.uuid, board.pci_bus_id, board.total_bytes,
            bool(board.integrated),
        )  # fmt: skip
        if board.divided:
            parts = ", ".join(part.uuid for part in board.instances)
            whole = whole._replace(
                hidden_by="MIG, which divides it",
                remedy=f"use an instance of it: {parts}" if parts else "make an instance of it",
            )
        yield whole
        for part in board.instances:
            yield Candidate(
                None, part.name, part.uuid, board.pci_bus_id, part.total_bytes, parent=board.uuid
            )


def _from_proc() -> Iterator[Candidate]:
    for path in sorted(_PROC.glob("*/information")):
        with contextlib.suppress(OSError, KeyError):
            lines = (line.partition(":") for line in path.read_text().splitlines())
            said = {name.strip(): value.strip() for name, _, value in lines}
            yield Candidate(None, said["Model"], said["GPU UUID"], path.parent.name.lower())


def _digits(uuid: str) -> str:
    """Return a UUID without the word before it: CUDA has none, and NVML has two."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
