"""What the numbers in a frame mean: matrix, range, primaries and transfer. Pure values.

Names are FFmpeg's; numbers are the code points of Rec. ITU-T H.273 (07/2021).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from cuframes_nb.errors import InvalidArgumentError

__all__ = ["ColorSpec"]

MATRIX_CODES: Final = {"rgb": 0, "bt709": 1, "bt601": 6, "bt2020": 9}
"""MatrixCoefficients, H.273 table 4. ``bt2020`` is the non-constant-luminance form."""

RANGE_CODES: Final = {"limited": 0, "full": 1}
"""VideoFullRangeFlag, H.273 clause 8.3."""

PRIMARIES_CODES: Final = {"bt709": 1, "bt470bg": 5, "smpte170m": 6, "bt2020": 9, "smpte432": 12}
"""ColourPrimaries, H.273 table 2."""

TRANSFER_CODES: Final = {
    "bt709": 1, "smpte170m": 6, "linear": 8, "srgb": 13, "bt2020-10": 14, "pq": 16, "hlg": 18,
}  # fmt: skip
"""TransferCharacteristics, H.273 table 3."""

UNSPECIFIED: Final = 2
"""H.273's code point for "unspecified" in each table."""

LUMA_WEIGHTS: Final = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
}
"""Kr, Kb: H.273 table 4 rows 6, 1 and 9 (BT.601-7 2.5.1, BT.709-6 item 3.2, BT.2020-2 table 4)."""


@dataclasses.dataclass(frozen=True, slots=True)
class ColorSpec:
    """How code values become colours.

    Parameters
    ----------
    matrix
        ``"bt601"``, ``"bt709"``, ``"bt2020"``; ``"rgb"`` for frames that are RGB already.
    range
        ``"limited"`` (luma 16..235, chroma 16..240 at 8 bits) or ``"full"`` (0..255).
    primaries, transfer
        H.273 names (see this module's tables), or None where nothing is known.
    assumed
        True when nobody said what the colours are and this is the usual assumption.

    Raises
    ------
    InvalidArgumentError
        If a name is not known.
    """

    matrix: str = "bt709"
    range: str = "limited"
    primaries: str | None = None
    transfer: str | None = None
    assumed: bool = dataclasses.field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Check the names."""
        _check("matrix", self.matrix, MATRIX_CODES)
        _check("range", self.range, RANGE_CODES)
        if self.primaries is not None:
            _check("primaries", self.primaries, PRIMARIES_CODES)
        if self.transfer is not None:
            _check("transfer", self.transfer, TRANSFER_CODES)

    @classmethod
    def assume(cls, height: int, *, yuv: bool = True) -> ColorSpec:
        """Return what untagged video of `height` lines is taken to be.

        BT.709 limited from 720 lines up, else BT.601 limited: the sizes for which the two standards
        were written, and what players do. Frames that are not YUV are full-range RGB.
        """
        if not yuv:
            return cls("rgb", "full", assumed=True)
        return cls("bt709" if height >= 720 else "bt601", "limited", assumed=True)

    @property
    def luma_weights(self) -> tuple[float, float]:
        """Kr and Kb of the matrix.

        Raises
        ------
        InvalidArgumentError
            For ``"rgb"``, which has none.
        """
        try:
            return LUMA_WEIGHTS[self.matrix]
        except KeyError:
            raise InvalidArgumentError("the matrix 'rgb' has no luma weights") from None


def _check(name: str, value: str, table: dict[str, int]) -> None:
    if value not in table:
        known = ", ".join(table)
        raise InvalidArgumentError(f"colour {name} {value!r} is not known; use one of {known}")
