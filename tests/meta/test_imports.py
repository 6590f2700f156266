"""Importing the package is cheap."""

import subprocess
import sys

from tests.helpers.children import ROOT, child_env

HEAVY = {"IPython", "PIL", "anywidget", "asyncio", "av", "cuda", "cupy", "numpy", "torch"}


def loaded_by(statement):
    """Return the top-level modules that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=child_env(),
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_plain_import_is_light():
    loaded = loaded_by("import cuframes_nb")
    assert "cuframes_nb" in loaded
    assert loaded & HEAVY == set()
