"""A real browser for every test of this folder."""

import pytest

from tests.browser.lab import launch


@pytest.fixture(scope="module")
def browser():
    """Run the browser; where there is none, the tests fail rather than look the other way.

    For a module: its driver has an event loop on this thread, and other tests have their own.
    """
    with launch() as running:
        yield running
