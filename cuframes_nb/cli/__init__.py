"""The command line, ``cuframes-nb``: a command a module, imported when it is run."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

import cuframes_nb
from cuframes_nb.cli import (
    _logging,
    _output,
    bench,
    completion,
    demo,
    devices,
    doctor,
    info,
    ls,
    publish,
    record,
    snapshot,
    top,
)
from cuframes_nb.errors import CuframesError

__all__ = ["main"]

_ABOUT: Final = """\
Live video frames shared between processes without a copy.

One process publishes frames under a key; any number of others subscribe to that key and get NumPy
or CuPy arrays on the very memory the frames were written to."""

_EXAMPLES: Final = """\
start here:
  cuframes-nb demo                   a film, published and watched by two processes
  cuframes-nb demo --video me.mp4    the same with a film of yours
  cuframes-nb top                    what is published, and who reads it
  cuframes-nb record demo demo.mp4   what is published, as a film
  cuframes-nb bench --quick          what it costs on this machine

'cuframes-nb COMMAND --help' explains a command.

environment:
  CUFRAMES_RUNTIME_DIR   where the streams' sockets are
  CUFRAMES_DEVICE        GPU to use: UUID, its beginning, PCI bus id or CUDA ordinal"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0 if it went well, 1 after an error (told in one line on stderr), 130 after Ctrl-C. Without
        a command it shows the help.

    Raises
    ------
    SystemExit
        With 2 if the arguments are wrong, with 0 after ``--help``.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = _parser()
    if argv[:1] == [completion.ANSWER]:
        completion.answer(parser, argv[1:])
        return 0
    args = parser.parse_args(argv)
    if args.run is None:
        parser.print_help()
        return 0
    _output.replace_what_cannot_be_written()
    try:
        with _logging.to_stderr(_logging.verbosity(args)):
            return int(args.run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CuframesError, OSError) as error:
        mark = _logging.priority(logging.ERROR)
        print(f"{mark}cuframes-nb: {_one_line(error)}", file=sys.stderr)
        return 1


def _one_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, CuframesError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cuframes-nb",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=cuframes_nb.__version__)
    parser.set_defaults(run=None)
    _logging.add_option(parser, place="before")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (
        demo,
        publish,
        ls,
        info,
        top,
        record,
        snapshot,
        devices,
        doctor,
        bench,
        completion,
    ):
        command.add_parser(commands)
    for parser_of_command in commands.choices.values():
        _logging.add_option(parser_of_command, place="behind")
    return parser
