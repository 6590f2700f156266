"""``cuframes-nb completion``: what has a shell complete our command lines."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cuframes_nb.cli._completion import complete, join_pieces

__all__ = ["ANSWER", "add_parser", "answer"]

ANSWER: Final = "__complete"
"""The command, not for people, by which the scripts ask what may stand at the end of a line."""

_ABOUT: Final = """\
Print a script that has your shell complete commands, options, files and keys of live streams."""

_EPILOG: Final = """\
for this shell:
  source <(cuframes-nb completion bash)
  source <(cuframes-nb completion zsh)
  cuframes-nb completion fish | source

for good:
  cuframes-nb completion bash > ~/.local/share/bash-completion/completions/cuframes-nb
  cuframes-nb completion zsh > DIRECTORY/_cuframes-nb    (one of your $fpath)
  cuframes-nb completion fish > ~/.config/fish/completions/cuframes-nb.fish"""

_BASH: Final = r"""# bash completion of cuframes-nb
_cuframes_nb() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            compopt -o default 2>/dev/null
        else
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <("$1" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _cuframes_nb cuframes-nb
"""

_ZSH: Final = r"""#compdef cuframes-nb
_cuframes_nb() {
    local line files=
    local -a found
    for line in "${(@f)$("$words[1]" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :files ]]; then
            files=1
        elif [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#found )) && _describe 'cuframes-nb' found
    [[ -n $files ]] && _files
    return 0
}
if [[ $funcstack[1] == _cuframes-nb ]]; then
    _cuframes_nb "$@"
else
    compdef _cuframes_nb cuframes-nb
fi
"""

_FISH: Final = r"""# fish completion of cuframes-nb
function __cuframes_nb
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    for line in (command $program __complete fish $words "$current" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c cuframes-nb -f -a '(__cuframes_nb)'
"""

_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_parser(commands: Any) -> None:  # argparse's class for it is private
    """Add the command to the command line."""
    parser = commands.add_parser(
        "completion",
        help="print what has your shell complete this",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    print(_SCRIPTS[args.shell], end="")
    return 0


def answer(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Tell a shell's script what may stand in place of the last word.

    A candidate a line, a tabulator and what it is about. The line ``:files`` says that a file may
    stand there, too.

    Parameters
    ----------
    parser
        Of the whole command line.
    arguments
        The shell, and the words behind the program's name up to the cursor.
    """
    shell, *words = arguments or [""]
    before = ""
    if shell == "bash":
        words, before = join_pieces(words)
    found = complete(parser, words, _live_keys)
    if found.files:
        print(":files")
    for candidate in found.candidates:
        print(f"{candidate.text[len(before) :]}\t{' '.join(candidate.about.split())}")


def _live_keys() -> Iterator[str]:
    """Yield the keys that somebody publishes; nobody is asked anything, so it takes no time."""
    from cuframes_nb._os.runtime_dir import list_sockets, somebody_listens

    for key, path in list_sockets():
        with contextlib.suppress(OSError):
            if somebody_listens(path):
                yield key
