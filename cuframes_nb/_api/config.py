"""What a publisher was asked to publish, checked."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, Final

from cuframes_nb._os.credentials import group_id
from cuframes_nb._wire.messages import MAX_SLOTS, Policy
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout

__all__ = ["StreamConfig", "check_buffers", "group_number", "policy_named", "timestamp"]

_RING_SIZE: Final = 4
_OWNERSHIPS: Final = ("library", "external")

_POLICIES: Final = {"drop-oldest": Policy.DROP_OLDEST, "strict-wait": Policy.STRICT_WAIT}


@dataclasses.dataclass(frozen=True, slots=True)
class StreamConfig:
    """The parameters of an epoch, as the user gave them.

    Raises
    ------
    InvalidArgumentError
        If a value is wrong.
    """

    width: int
    height: int
    format: str
    ring_size: int
    fps: float
    color: ColorSpec | None  #: None: assumed from the height
    pitch: int | Sequence[int] | None  #: None: from the width

    def __post_init__(self) -> None:
        _check_ring_size(self.ring_size)
        _check_fps(self.fps)
        self.color_spec(self.layout())

    def changed(self, **given: Any) -> StreamConfig:
        """Return it with those values that are not None; the pitch follows the width."""
        values = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(self, **{"pitch": None, **values})

    def layout(self) -> FrameLayout:
        """Return the geometry of a frame."""
        return FrameLayout.make(self.format, self.width, self.height, pitch=self.pitch)

    def color_spec(self, layout: FrameLayout) -> ColorSpec:
        """Return what the code values mean."""
        format_ = layout.format
        color = self.color
        if color is None:
            return ColorSpec.assume(layout.height, yuv=format_.is_yuv)
        if not isinstance(color, ColorSpec):
            raise InvalidArgumentError(
                f"color is {color!r}; it must be a ColorSpec such as ColorSpec('bt709')"
            )
        if format_.is_yuv == (color.matrix == "rgb"):
            raise InvalidArgumentError(
                f"colour matrix {color.matrix!r} does not go with format {format_}"
            )
        return color


def check_buffers(ownership: str, buffers: Sequence[Any] | None, ring_size: int | None) -> int:
    """Return how many slots there are to be.

    Raises
    ------
    InvalidArgumentError
        If ownership, buffers and size do not go together.
    """
    if ownership not in _OWNERSHIPS:
        raise InvalidArgumentError(
            f"ownership {ownership!r} is not known; use one of {', '.join(_OWNERSHIPS)}"
        )
    if (ownership == "external") != (buffers is not None):
        raise InvalidArgumentError(
            f"ownership={ownership!r} was asked for {'with' if buffers is not None else 'without'} "
            f"buffers: pass ownership='external' and buffers=[...] together, or neither"
        )
    if buffers is None:
        return _RING_SIZE if ring_size is None else ring_size
    if not isinstance(buffers, list | tuple):
        raise InvalidArgumentError(
            f"buffers is {type(buffers).__name__}; it must be a list, with a frame's memory each"
        )
    if not 2 <= len(buffers) <= MAX_SLOTS:
        raise InvalidArgumentError(
            f"{len(buffers)} buffers were given; a stream has between 2 and {MAX_SLOTS}"
        )
    if ring_size not in {None, len(buffers)}:
        raise InvalidArgumentError(
            f"ring_size={ring_size!r} was asked for, and there are {len(buffers)} buffers, which "
            f"are the slots: leave ring_size= out"
        )
    return len(buffers)


def timestamp(value: Any) -> int | None:
    """Return a presentation time that the wire can carry: a signed 64-bit number."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgumentError(
            f"pts_ns is {value!r}; it must be a whole number of nanoseconds of 64 bits"
        )
    return number


def policy_named(name: str) -> Policy:
    """Return the policy of that name."""
    try:
        return _POLICIES[name]
    except (KeyError, TypeError):
        raise InvalidArgumentError(
            f"policy {name!r} is not known; use one of {', '.join(_POLICIES)}"
        ) from None


def group_number(group: str | int | None) -> int | None:
    """Return the number of a group given by name or number."""
    if group is None:
        return None
    if isinstance(group, bool) or not isinstance(group, str | int):
        raise InvalidArgumentError(f"group is {group!r}; it must be a group's name or number")
    try:
        return group_id(group)
    except LookupError:
        raise InvalidArgumentError(f"there is no group {group!r} on this machine") from None


def _check_ring_size(ring_size: Any) -> None:
    if not isinstance(ring_size, int) or not 2 <= ring_size <= MAX_SLOTS:
        raise InvalidArgumentError(
            f"ring_size is {ring_size!r}; it must be between 2 and {MAX_SLOTS} slots"
        )


def _check_fps(fps: Any) -> None:
    if not isinstance(fps, int | float) or not 0 <= fps < 1e6:
        raise InvalidArgumentError(f"fps is {fps!r}; it must be 0 (unknown) or a positive rate")
