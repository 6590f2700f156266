"""For tests, ours and those of who writes another kind of memory."""

from __future__ import annotations

from cuframes_nb.testing.arenas import ArenaConformance

__all__ = ["ArenaConformance"]
