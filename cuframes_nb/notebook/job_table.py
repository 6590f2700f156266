"""The jobs of a kernel as a table."""

from __future__ import annotations

from collections.abc import Iterable

from cuframes_nb._show.quantities import counted, rate_text, seconds_text
from cuframes_nb._show.tables import Column, Table
from cuframes_nb.notebook.jobs import JobStatus

__all__ = ["JobTable"]


class JobTable(Table):
    """The jobs of this kernel.

    Attributes
    ----------
    statuses
        The values that the table shows.
    """

    def __init__(self, statuses: Iterable[JobStatus]) -> None:
        self.statuses = tuple(statuses)
        super().__init__(
            counted(len(self.statuses), "job", "No job was started in this kernel"),
            ["name", "kind", "stream", "state", Column("frames", number=True),
             Column("fps", number=True), Column("errors", number=True),
             Column("for", number=True), "note"],
            (
                [s.name, s.kind, s.key, s.state, f"{s.frames:,}", rate_text(s.fps),
                 f"{s.errors:,}", seconds_text(s.seconds), s.note]
                for s in self.statuses
            ),
        )  # fmt: skip
