"""A real browser for every test of this folder."""

import contextlib
from pathlib import Path

import pytest

from tests.browser.lab import launch

HERE = Path(__file__).parent
VIEWS = """
() => [...document.querySelectorAll(".cuframes-view")].map((view) => {
  const {top, bottom} = view.getBoundingClientRect();
  return `${top | 0} to ${bottom | 0} of ${innerHeight}: ${view.innerText}`;
}).join("\\n")
"""


def pytest_collection_modifyitems(items):
    """Let these tests have the machine to themselves: pages are slow beside others."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("alone")


@pytest.fixture(scope="module")
def browser():
    """Run the browser; where there is none, the tests fail rather than look the other way.

    For a module: its driver has an event loop on this thread, and other tests have their own.
    """
    with launch() as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Say with a failure where on the page the views were, and what they said."""
    report = yield
    page = item.funcargs.get("page")
    if report.failed and hasattr(page, "evaluate"):
        with contextlib.suppress(Exception):  # it has gone
            report.sections.append(("views", page.evaluate(VIEWS)))
    return report
