"""Who looks: the views on pages, how large each is, and which cameras it shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from cuframes_nb._viewer.messages import Hello, Histogram, Size, Solo

__all__ = ["Audience"]

_Room: TypeAlias = tuple[int, int]


@dataclasses.dataclass(slots=True)
class _Place:
    """A place on a page where the pictures are shown.

    Attributes
    ----------
    room
        Device pixels for a picture.
    as_text
        Whether pictures have to come in base64.
    solo
        The camera that is shown alone; None: all are shown.
    histograms
        The cameras of which it shows histograms.
    """

    room: _Room
    as_text: bool = False
    solo: int | None = None
    histograms: set[int] = dataclasses.field(default_factory=set)


class Audience:
    """The views that have said hello and not goodbye.

    Parameters
    ----------
    counts
        Says of a view whether it counts: it can be seen, and answers.
    """

    def __init__(self, counts: Callable[[str], bool]) -> None:
        self._counts = counts
        self._places: dict[str, _Place] = {}

    def __contains__(self, view: str) -> bool:
        return view in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def eldest(self) -> str:
        """The view that came first of those that are there."""
        return next(iter(self._places))

    def hear(self, message: Hello | Size | Solo | Histogram) -> None:
        """Take in what a view says of itself; only `Hello` makes one that is not known."""
        if isinstance(message, Hello) and message.view not in self._places:
            self._places[message.view] = _Place((message.w, message.h))
        place = self._places.get(message.view)
        if place is None:
            return
        if isinstance(message, Solo):
            place.solo = message.cam
        elif isinstance(message, Histogram):
            (place.histograms.add if message.on else place.histograms.discard)(message.cam)
        else:
            place.room = (message.w, message.h)
            if isinstance(message, Hello):
                place.as_text = message.b64

    def forget(self, view: str) -> None:
        """Note that a view is gone."""
        self._places.pop(view, None)

    # --- What the pictures have to be -------------------------------------------------------------

    @property
    def room(self) -> _Room | None:
        """Device pixels that the largest view has for a picture; None without a view."""
        rooms = [place.room for place in self._counted()]
        return (max(w for w, _ in rooms), max(h for _, h in rooms)) if rooms else None

    @property
    def as_text(self) -> bool:
        """Whether any view needs pictures in base64."""
        return any(place.as_text for place in self._places.values())

    def sees(self, cam: int) -> bool:
        """Whether any view shows this camera."""
        places = self._counted()
        return not places or any(place.solo in {None, cam} for place in places)

    def wants_histogram(self, cam: int) -> bool:
        """Whether any view shows a histogram of this camera."""
        return any(cam in place.histograms for place in self._counted())

    def _counted(self) -> list[_Place]:
        return [place for view, place in self._places.items() if self._counts(view)]
