"""What holds for every test: nothing is left behind, and no real runtime directory is touched."""

import gc
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

from tests.helpers.device import warm_up, why_no_cuda
from tests.helpers.leaks import no_fd_leak, no_thread_leak

__all__ = ["no_fd_leak", "no_thread_leak"]

pytest_plugins = ["pytester"]

hypothesis.settings.register_profile("cuframes", deadline=None, print_blob=True)
hypothesis.settings.load_profile("cuframes")


def pytest_collection_finish():
    """Leave what collecting made, for good, out of the garbage collections to come."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what needs a device where there is none; else warm it up before leaks are counted."""
    if item.get_closest_marker("gpu"):
        if reason := why_no_cuda():
            pytest.skip(reason)
        warm_up()


@pytest.fixture(autouse=True)
def runtime_dir(no_fd_leak, no_thread_leak, monkeypatch):
    """Give the test a runtime directory of its own, in ``CUFRAMES_RUNTIME_DIR``.

    Its path is short: a Unix socket's may have 107 bytes, and pytest's ``tmp_path`` is long.
    """
    path = Path(tempfile.mkdtemp(prefix="cf-", dir="/tmp"))
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(path))
    yield path
    shutil.rmtree(path, ignore_errors=True)
