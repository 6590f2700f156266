"""What may stand at the end of a command line, by what argparse knows of it.

Pure, but for the live streams, which are asked for when a ``KEY`` is to be completed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Candidate", "Completion", "complete", "join_pieces"]

_SCHEME: Final = "cuframes://"

_FILES: Final = frozenset({"FILE", "SOURCE", "VIDEO"})
"""Metavars of arguments that are files."""

_NEW_KEYS: Final = frozenset({"publish"})
"""Commands whose ``KEY`` is one that is not there yet."""

Keys = Callable[[], Iterable[str]]


class Candidate(NamedTuple):
    """A word, and what it means."""

    text: str
    about: str = ""


class Completion(NamedTuple):
    """What may stand there."""

    candidates: tuple[Candidate, ...] = ()
    files: bool = False  #: whether a file may, too


def complete(parser: argparse.ArgumentParser, words: Sequence[str], keys: Keys) -> Completion:
    """Return what may stand in place of the last word.

    Parameters
    ----------
    parser
        Of the whole command line.
    words
        Those behind the program's name, up to the one that is being written.
    keys
        Returns the keys of the live streams.
    """
    *before, word = words or [""]
    place = _Place(parser)
    for one in before:
        if not place.passes(one):
            return Completion()
    found = place.completion(word, keys)
    fitting = (candidate for candidate in found.candidates if candidate.text.startswith(word))
    return Completion(tuple(fitting), found.files)


class _Place:
    """Where in a command line one is: as argparse would read it, but never an error."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._enter(parser, "")

    def _enter(self, parser: argparse.ArgumentParser, command: str) -> None:
        self._parser, self._command = parser, command
        self._used: set[str] = set()
        self._pending: argparse.Action | None = None
        self._only_positionals = False
        # argparse offers no other way to ask a parser what it takes.
        actions = parser._actions  # noqa: SLF001
        self._options = [a for a in actions if a.option_strings and a.help is not argparse.SUPPRESS]
        self._positionals = [action for action in actions if not action.option_strings]

    def passes(self, word: str) -> bool:
        """Go on behind a word; return whether anything is known of what comes then."""
        if self._pending is not None:
            self._pending = None
        elif word == "--" and not self._only_positionals:
            self._only_positionals = True
        elif self._is_option(word):
            self._pass_option(word)
        elif self._positionals:
            return self._pass_positional(word)
        return True

    def _is_option(self, word: str) -> bool:
        return word.startswith("-") and word != "-" and not self._only_positionals

    def _pass_option(self, word: str) -> None:
        name, equals, _ = word.partition("=")
        action = self._option(name)
        if action is not None:
            self._used.update(action.option_strings)
            if not equals and action.nargs != 0:
                self._pending = action

    def _pass_positional(self, word: str) -> bool:
        action = self._positionals[0]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  as above
            if word not in action.choices:
                return False
            self._enter(action.choices[word], word)
        elif action.nargs not in {"*", "+"}:
            del self._positionals[0]
        return True

    def completion(self, word: str, keys: Keys) -> Completion:
        """Return what may stand here, whether or not it begins with the word."""
        name, equals, _ = word.partition("=")
        if self._pending is not None:
            return self._values(self._pending, word, keys)
        if not self._is_option(word) and word != "-":
            if self._positionals:
                return self._values(self._positionals[0], word, keys)
            return Completion(() if self._only_positionals else tuple(self._unused()))
        if not equals:
            return Completion(tuple(self._unused()))
        action = self._option(name)
        if action is None or action.nargs == 0:
            return Completion()
        found = self._values(action, word.removeprefix(f"{name}="), keys)
        named = (Candidate(f"{name}={one.text}", one.about) for one in found.candidates)
        return Completion(tuple(named), found.files)

    def _unused(self) -> Iterator[Candidate]:
        """Yield the options that can still be given; of two spellings the long one."""
        for action in self._options:
            if self._used.isdisjoint(action.option_strings):
                yield Candidate(max(action.option_strings, key=len), _about(action, self._parser))

    def _option(self, name: str) -> argparse.Action | None:
        return next((a for a in self._options if name in a.option_strings), None)

    def _values(self, action: argparse.Action, word: str, keys: Keys) -> Completion:
        """Return what an argument may be."""
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  as above
            about = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            return Completion(tuple(Candidate(n, about.get(n, "")) for n in action.choices))
        if action.choices is not None:
            return Completion(tuple(Candidate(str(choice)) for choice in action.choices))
        if action.metavar in _FILES or action.type is Path:
            return Completion(files=True)
        if action.metavar == "KEY" and self._command not in _NEW_KEYS:
            return _streams(word, keys)
        return Completion()


def _streams(word: str, keys: Keys) -> Completion:
    """Return what names a stream: a key, an address, or the path of a socket."""
    if ":" in word:
        return Completion(tuple(Candidate(f"{_SCHEME}{key}") for key in keys()))
    if "/" in word:
        return Completion(files=True)
    return Completion(tuple(map(Candidate, keys())))


def _about(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    try:
        return (action.help or "") % {**vars(action), "prog": parser.prog}
    except (TypeError, ValueError, KeyError):
        return action.help or ""


def join_pieces(pieces: Sequence[str], breaks: str = "=:") -> tuple[list[str], str]:
    """Return whole words, and how much of the last one lies before bash's own piece of it.

    Bash also breaks words at the characters of ``$COMP_WORDBREAKS``, and replaces the last piece
    only.
    """
    words: list[str] = []
    glued = False
    before = ""
    for piece in pieces:
        is_break = bool(piece) and not piece.strip(breaks)
        if words and (is_break or glued) and words[-1]:
            before = words[-1] + (piece if is_break else "")
            words[-1] += piece
        else:
            before = ""
            words.append(piece)
        glued = is_break
    return words, before
