"""What may follow ``%cuframes``: each command's arguments, and their help.

Pure: nothing here prints or ends the process, as :mod:`argparse` does by itself.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import shlex
from typing import Any, Final, NoReturn

from cuframes_nb._show.arguments import count, rate, seconds, size

__all__ = [
    "COMMANDS",
    "BadUsageError",
    "Parser",
    "cell_parser",
    "help_text",
    "parse",
    "parse_cell",
]

_CELL: Final = "%%cuframes"
_LINE: Final = "%cuframes"


class BadUsageError(Exception):
    """The arguments are wrong; the message says how, and what would be right."""


class Parser(argparse.ArgumentParser):
    """Parses the arguments of one command.

    Parameters
    ----------
    prog, usage
        What the line begins with, and what follows.
    about
        What the command does.
    completes
        What its plain arguments are: ``"streams"``, ``"jobs"``, ``"commands"`` or ``""``.

    Attributes
    ----------
    short
        One line that shows how it is used.
    choices
        Its options, each with the values that it may have.
    """

    def __init__(self, prog: str, usage: str, about: str, completes: str = "") -> None:
        self.choices: dict[str, tuple[str, ...]] = {}
        self.about, self.completes = about, completes
        self.short = f"{prog} {usage}".rstrip()
        super().__init__(
            prog=prog,
            usage=f"%(prog)s {usage}",
            description=about,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
        )

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument, and remember what completes it."""
        values = tuple(map(str, settings.get("choices") or ()))
        self.choices.update({str(n): values for n in names if str(n).startswith("-")})
        return super().add_argument(*names, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of ending the process."""
        raise BadUsageError(f"{message}\nusage: {self.short}")

    def read(self, words: list[str]) -> argparse.Namespace:
        """Return the arguments.

        Raises
        ------
        BadUsageError
            If they are wrong.
        """
        try:
            return self.parse_intermixed_args(words)
        except argparse.ArgumentError as error:
            self.error(str(error))


def parse(line: str) -> tuple[str, argparse.Namespace]:
    """Return the command and its arguments of a line after ``%cuframes``.

    Raises
    ------
    BadUsageError
        If there is no such command, or its arguments are wrong.
    """
    command, *words = _split(line) or ["help"]
    if {"-h", "--help"} & {command, *words}:
        command, words = "help", [command] if command in COMMANDS else []
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"'{_LINE} help' explains each."
        raise BadUsageError(
            f"there is no command {command!r}; {hint} The commands: {', '.join(COMMANDS)}"
        )
    return command, COMMANDS[command].read(words)


def parse_cell(line: str) -> argparse.Namespace:
    """Return the arguments after ``%%cuframes``.

    Raises
    ------
    BadUsageError
        If they are wrong.
    """
    return cell_parser().read(_split(line))


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise BadUsageError(f"{error}: {line}") from None


def help_text(command: str | None = None) -> str:
    """Return what teaches all commands, or one."""
    if command is not None:
        return COMMANDS[command].format_help().rstrip()
    parsers = (*COMMANDS.values(), cell_parser())
    commands = "\n".join(f"  {parser.short}\n      {parser.about}" for parser in parsers)
    return _HELP.format(commands=commands, line=_LINE, cell=_CELL)


_HELP: Final = """\
Live video frames of other processes, without a copy.

{commands}

Start with a picture of your own, look at it, and compute on each frame:

  {line} publish demo
  {line} view demo

  {cell} demo
  brightness = float(frame.y.mean())    # runs for each new frame, while other cells run

  {line} jobs
  {line} stop demo

In such a cell, frame is the newest frame and n counts them; other variables are yours, before,
in and after it.
{line} COMMAND --help explains a command."""


# --- The commands ---------------------------------------------------------------------------------


def _parser(name: str, usage: str, about: str, completes: str = "") -> Parser:
    return Parser(f"{_LINE} {name}", usage, about, completes)


def _viewing(name: str, about: str) -> Parser:
    parser = _parser(name, "KEY [KEY ...] [--width N] [--fps N]", about, "streams")
    parser.add_argument("keys", nargs="+", metavar="KEY", help="name of a stream")
    parser.add_argument("--width", type=count, metavar="N", help="pixels wide")
    parser.add_argument("--fps", type=rate, metavar="N", help="pictures a second, at most")
    return parser


def _snapshot() -> Parser:
    parser = _parser("snapshot", "KEY [PATH]", "take one picture, to keep", "streams")
    parser.add_argument("key", metavar="KEY", help="name of a stream")
    parser.add_argument("path", nargs="?", metavar="PATH", help="file to write: .png or .jpg")
    return parser


def _record() -> Parser:
    about = "record a stream into a film, in the background"
    usage = "KEY [FILE] [--for TIME] [--codec CODEC]"
    parser = _parser("record", usage, about, "streams")
    parser.add_argument("key", metavar="KEY", help="name of a stream")
    parser.add_argument(
        "path", nargs="?", metavar="FILE", help="ends in .mp4, .mov or .mkv (default: KEY and time)"
    )
    parser.add_argument("--for", dest="seconds", type=seconds, metavar="TIME", help="10s, 2m")
    parser.add_argument(
        "--codec", choices=("auto", "h264", "hevc", "av1", "ffv1"), default="auto", help="as coded"
    )
    return parser


def _stats() -> Parser:
    parser = _parser("stats", "[KEY]", "show counters, and who reads what", "streams")
    parser.add_argument("key", nargs="?", metavar="KEY", help="name of a stream (default: all)")
    return parser


def _info() -> Parser:
    parser = _parser("info", "KEY", "show all that is known about a stream", "streams")
    parser.add_argument("key", metavar="KEY", help="name of a stream")
    return parser


def _publish() -> Parser:
    usage = (
        "KEY [VIDEO | --pattern] [--size WxH] [--fps N] [--memory auto|host|cuda] [--loop | --once]"
    )
    parser = _parser(
        "publish", usage, "publish a film, a camera or a test pattern from this kernel"
    )
    parser.add_argument("key", metavar="KEY", help="name of the stream to publish")
    about = "a film's file or URL; a camera's URL or device"
    parser.add_argument("video", nargs="?", metavar="VIDEO", help=about)
    parser.add_argument("--pattern", action="store_true", help="a moving test pattern instead")
    parser.add_argument("--size", type=size, metavar="WxH", help="pixels, such as 1280x720")
    parser.add_argument("--fps", type=rate, metavar="N", help="frames a second")
    parser.add_argument(
        "--memory", choices=("auto", "host", "cuda"), default="auto", help="where the frames are"
    )
    parser.add_argument("--loop", action="store_true", help="begin again at the end (the default)")
    parser.add_argument("--once", action="store_true", help="end with the film")
    return parser


def _stop() -> Parser:
    about = "stop jobs and publishers of this kernel"
    parser = _parser("stop", "NAME [NAME ...] | --all", about, "jobs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a job, or of its stream")
    parser.add_argument("--all", action="store_true", help="all of them")
    return parser


def _help() -> Parser:
    parser = _parser("help", "[COMMAND]", "explain the commands, or one", "commands")
    parser.add_argument("command", nargs="?", metavar="COMMAND")
    return parser


@functools.cache
def cell_parser() -> Parser:
    """Return what parses the line of a cell that is run for each frame."""
    about = "run the cell's code for each new frame, in the background"
    parser = Parser(_CELL, "KEY [--every N] [--for TIME] [--name NAME]", about, "streams")
    parser.add_argument("key", metavar="KEY", help="name of a stream")
    parser.add_argument("--every", type=count, default=1, metavar="N", help="each Nth frame only")
    parser.add_argument("--for", dest="seconds", type=seconds, metavar="TIME", help="10s, 2m")
    parser.add_argument("--name", metavar="NAME", help="of the job (default: KEY)")
    return parser


COMMANDS: Final[dict[str, Parser]] = {
    "ls": _parser("ls", "", "list the streams there are"),
    "view": _viewing("view", "watch streams live"),
    "grid": _viewing("grid", "watch several streams live, side by side"),
    "snapshot": _snapshot(),
    "record": _record(),
    "stats": _stats(),
    "info": _info(),
    "publish": _publish(),
    "jobs": _parser("jobs", "", "list what runs in the background of this kernel"),
    "stop": _stop(),
    "devices": _parser("devices", "", "list the GPUs, also those hidden from this kernel"),
    "doctor": _parser("doctor", "", "find out what works on this machine, by trying it"),
    "help": _help(),
}
"""What each command takes."""
