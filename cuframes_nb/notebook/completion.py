"""Tab completion after ``%cuframes``: commands, options, and the names there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from IPython.core.completer import SimpleCompletion, completion_matcher

from cuframes_nb.notebook.arguments import COMMANDS, Parser, cell_parser

__all__ = ["candidates", "matcher"]

_LINE: Final = re.compile(r"\s*(?:[\w, ]+=\s*)?(?P<percent>%{0,2})cuframes\s+(?P<rest>.*)")

Names = Callable[[str], Sequence[str]]
"""Returns the names of ``"streams"`` or ``"jobs"`` there are."""


def candidates(line: str, names: Names) -> list[str]:
    """Return what may stand at the end of a line, in place of its last word.

    Parameters
    ----------
    line
        The line until the cursor.
    names
        Returns the names there are.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return []
    *before, word = re.split(r"\s+", match["rest"])
    if match["percent"] == "%%":
        found = _arguments(cell_parser(), before, word, names)
    elif not before:
        found = list(COMMANDS)
    elif before[0] in COMMANDS:
        found = _arguments(COMMANDS[before[0]], before[1:], word, names)
    else:
        found = []
    return [text for text in found if text.startswith(word)]


def _arguments(parser: Parser, before: Sequence[str], word: str, names: Names) -> list[str]:
    """Return what may follow the words `before`."""
    if before and parser.choices.get(before[-1]):
        return list(parser.choices[before[-1]])
    options = [option for option in parser.choices if option not in before]
    if word.startswith("-"):
        return options
    there = list(COMMANDS) if parser.completes == "commands" else names(parser.completes)
    known = [name for name in there if name not in before]
    # Options come after the names, as people write them; files are left to IPython's own matcher.
    return known + (options if not word and parser.completes else [])


def matcher(names: Names) -> Any:
    """Return a matcher for ``IPCompleter.custom_matchers``."""

    @completion_matcher(identifier="cuframes_nb.matcher", priority=1000, api_version=2)
    def match(context: Any) -> dict[str, Any]:
        word = re.split(r"\s", context.text_until_cursor)[-1]
        found = candidates(context.text_until_cursor, names) if word == context.token else []
        return {
            "completions": [SimpleCompletion(text, type="cuframes") for text in found],
            "matched_fragment": word,
            "ordered": True,
            "suppress": True,
        }

    return match
