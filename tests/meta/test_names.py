"""What the package says it has, it has; and the reference page says the same."""

import inspect
import re

import pytest

import cuframes_nb
from tests.helpers.children import ROOT

NAMES = sorted(cuframes_nb.__all__)


@pytest.fixture(scope="module")
def reference():
    return (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_there_and_explained(name):
    value = getattr(cuframes_nb, name)
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        own = vars(value) if inspect.isclass(value) else {"__doc__": value.__doc__}
        doc = own.get("__doc__") or ""
        assert doc.strip(), f"{name} has no docstring of its own"
        assert not doc.startswith(f"{value.__name__}("), f"{name} has only a generated docstring"


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_in_the_reference(name, reference):
    assert re.search(rf"`[^`\n]*\b{re.escape(name)}\b", reference), f"{name} is not in api.md"


def test_the_reference_names_nothing_else(reference):
    named = set(re.findall(r"\bcf\.([A-Za-z_]\w*)", reference))
    assert {name for name in named if not hasattr(cuframes_nb, name)} == set()


def test_names_are_listed_once_and_completed():
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) <= set(dir(cuframes_nb))
