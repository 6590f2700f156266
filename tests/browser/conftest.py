"""A real browser for every test of this folder."""

import pytest

from tests.browser.lab import launch


@pytest.fixture(scope="session")
def browser():
    """Run the browser; where there is none, the tests fail rather than look the other way."""
    with launch() as running:
        yield running
