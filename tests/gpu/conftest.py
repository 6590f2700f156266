"""All tests here need a CUDA device: without one, their modules are skipped unread."""

import pytest

from tests.helpers.device import why_no_cuda
from tests.helpers.pipelines import gst

__all__ = ["gst"]


class _WithoutDevice(pytest.Module):
    """A test module that is not looked into."""

    def collect(self):
        pytest.skip(why_no_cuda(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Stand in for each module where there is no device."""
    return _WithoutDevice.from_parent(parent, path=module_path) if why_no_cuda() else None


def pytest_itemcollected(item):
    """Mark every test of this folder, so that none can be forgotten."""
    item.add_marker(pytest.mark.gpu)
