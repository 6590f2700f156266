"""``python -m cuframes_nb.cli``: the command line without an installed script."""

from __future__ import annotations

import sys

from cuframes_nb.cli import main

if __name__ == "__main__":
    sys.exit(main())
