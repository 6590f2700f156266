"""Values of this package as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

__all__ = ["as_json", "document"]


def document(value: Any) -> Any:
    """Return a dataclass, or several, as plain dictionaries and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, list | tuple):
        return [document(one) for one in value]
    return value


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON; paths and the like as strings.

    All is ASCII, so that no name that comes from another process can do anything to a terminal.
    """
    return json.dumps(document(value), default=str, indent=indent)
