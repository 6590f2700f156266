"""What a notebook shows: the live viewer, and the magics ``%cuframes`` and ``%%cuframes``.

::

    %load_ext cuframes_nb
    %cuframes help
"""

from __future__ import annotations

from typing import Any

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics, their completion, and pictures and tables of this package's objects.

    Parameters
    ----------
    ipython
        The shell; IPython passes it for ``%load_ext``.
    """
    from cuframes_nb.notebook.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Stop every job that the magics started, and take away what was added.

    Parameters
    ----------
    ipython
        The shell; IPython passes it for ``%unload_ext``.
    """
    from cuframes_nb.notebook.extension import unload

    unload(ipython)
