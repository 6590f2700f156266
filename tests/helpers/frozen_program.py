"""A small program to freeze: it reads a frame of a stream, and is the command line besides."""

import sys

import cuframes_nb as cf
from cuframes_nb.cli import main


def read(key):
    """Print what a frame of the stream has."""
    with cf.subscribe(key, timeout=20) as sub, sub.next(20) as frame:
        drawn = int(frame.y.max()) > int(frame.y.min()) and int(frame.rgb().max()) > 0
        print(frame.device, frame.width, frame.height, frame.format, drawn)  # noqa: T201


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2])
    else:
        sys.exit(main())
