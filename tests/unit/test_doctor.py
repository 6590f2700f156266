"""What the doctor makes of what it finds; it tries nothing here."""

import json
import re

import pytest

from cuframes_nb._doctor import packages
from cuframes_nb._doctor.checks import Check, Status, Trial, outcomes, works
from cuframes_nb._doctor.report import Report
from cuframes_nb._show.documents import as_json, document
from cuframes_nb._show.tables import width_of

OK = Check("system", "Python", Status.OK, "3.11", needed=True)
WARN = Check("system", "open files", Status.WARN, "few", "raise it")
MISSING = Check("packages", "av", Status.MISSING, "for films", "pip install av")
FAILED = Check("frames", "host memory", Status.FAILED, "no", "do something", needed=True)


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([], True),
        ([OK, WARN, MISSING], True),
        ([OK, FAILED], False),
        ([Check("a", "b", Status.MISSING, "", needed=True)], False),
        ([Check("a", "b", Status.FAILED, "")], True),
        ([Check("a", "b", Status.WARN, "", needed=True)], True),
    ],
)
def test_only_what_is_needed_decides(checks, expected):
    assert works(checks) is expected


def test_a_trial_that_raises_has_failed_and_what_came_before_stays():
    def look():
        yield OK
        raise ZeroDivisionError("oh")

    first, second = outcomes(Trial("system", "it", look, needed=True))
    assert first == OK
    assert (second.group, second.name, second.status) == ("system", "it", Status.FAILED)
    assert (second.found, second.needed) == ("ZeroDivisionError: oh", True)
    assert "report" in second.advice


def test_a_report_has_a_sign_and_a_word_for_each():
    lines = Report([OK, WARN, MISSING, FAILED]).text().split("\n")
    for text in (
        "  ✓ ok       Python       3.11",
        "  ! warn     open files   few",
        "                          → raise it",
        "  – missing  av           for films",
        "  ✗ failed   host memory  no",
    ):
        assert text in lines
    assert lines[0] == "System"
    assert lines[-1] == (
        "Frames cannot be shared here (4 checks: 1 ok, 1 warn, 1 missing, 1 failed)"
    )


def test_what_works_is_said():
    assert Report([OK, MISSING]).text().endswith("Frames can be shared here (2 checks: 1 ok, "
                                                 "1 missing)")  # fmt: skip


def test_long_texts_go_on_below_and_commands_stay_whole():
    command = "pip install 'cuframes-nb[cuda13]'"
    check = Check("GPU", "driver", Status.MISSING, "word " * 30, f"run {command} for it " * 3)
    text = Report([check]).text(72)
    assert all(width_of(line) <= 72 for line in text.split("\n"))
    assert text.count("word") == 30
    assert text.count("cuframes-nb[cuda13]'") == 3
    assert Report([check]).text(5).count("word") == 30


def test_what_others_say_does_nothing_to_a_terminal():
    text = Report([Check("a", "b\x1b[31m", Status.FAILED, "c\nd\x07", "\u202e")]).text(80)
    assert not re.search(r"[\x1b\x07\u202e]", text)


def test_a_page_has_a_table_a_group():
    page = Report([OK, WARN, MISSING])._repr_html_()
    assert page.count("<table>") == 2
    assert "<caption>System</caption>" in page
    assert "✓ ok" in page
    assert "Frames can be shared here" in page


def test_a_program_gets_words():
    (found,) = json.loads(as_json(document([WARN])))
    assert found == {
        "group": "system", "name": "open files", "status": "warn", "found": "few",
        "advice": "raise it", "needed": False,
    }  # fmt: skip


# --- Packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "least", "expected"),
    [
        ("1.9", "1.10", True),
        ("1.10", "1.9", False),
        ("14", "14.0", True),  # which says less than it is asked for
        ("14.0.1", "14", False),
        ("2.0rc1", "2", False),
        ("13.0", "14", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version, least, expected):
    assert packages.older(version, least) is expected


@pytest.fixture
def installed(monkeypatch):
    """Have packages be installed in the versions that a dictionary says; return it."""
    versions = {}

    def version(name):
        if name not in versions:
            raise packages.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(packages.metadata, "version", version)
    return versions


def looked(module, name="it"):
    package = packages.Package(name, (name,), module, "things", "video")
    return packages._look(package, {name: "2"})


def test_a_package_that_is_there_is_told_with_its_version(installed):
    installed["it"] = "2.1"
    assert looked("json") == Check("packages", "it", Status.OK, "2.1")


def test_a_package_that_is_not_there_says_what_needs_it_and_how_to_get_it(installed):
    for module in ("no_such_module", ""):
        check = looked(module)
        assert (check.status, check.found) == (Status.MISSING, "for things")
        assert check.advice == "pip install 'cuframes-nb[video]'"


def test_a_package_that_cannot_be_imported_has_failed(installed):
    installed["it"] = "2.1"
    check = looked("no_such_module")
    assert check.status is Status.FAILED
    assert "2.1, but it cannot be imported (ModuleNotFoundError" in check.found


def test_an_old_package_is_warned_of(installed):
    installed["it"] = "1.9"
    check = looked("json")
    assert (check.status, check.found) == (Status.WARN, "1.9, and 2 or newer is asked for")
    assert check.advice == "pip install -U it"


def test_what_is_asked_for_is_read_from_the_package():
    assert packages.least_versions()["numpy"] == "1.26"
    assert packages.least_versions()["ipykernel"] == "7.1"
