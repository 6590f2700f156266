"""The leak checks are able to fail."""

import pytest

CONFTEST = """
from tests.helpers.leaks import no_fd_leak, no_thread_leak
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run the source of a test module under the leak checks, and return the outcome."""
    pytester.makeini("[pytest]\nmarkers = foreign_fds")
    pytester.makeconftest(CONFTEST)

    def run(source, grace=0.05):
        monkeypatch.setattr("tests.helpers.leaks.GRACE_S", grace)
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio")

    return run


def test_a_leaked_descriptor_fails_its_test(run):
    result = run("""
        import os, tests.helpers
        def test_leaks(): tests.helpers.kept = os.memfd_create("forgotten")
        def test_after(): os.close(tests.helpers.kept)
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["1 descriptor(s) left open:", "  * -> /memfd:forgotten*"])


def test_a_leaked_thread_fails_its_test(run):
    result = run("""
        import threading
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait, name="cuframes-hub", daemon=True)
        def test_leaks(): thread.start()
        def test_after(): stop.set(); thread.join()
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["1 thread(s) left running:", "  <Thread(cuframes-hub*"])


def test_what_is_closed_late_or_declared_foreign_passes(run):
    run(
        """
        import os, threading, pytest, tests.helpers
        def test_late():
            threading.Timer(0.01, os.close, [os.memfd_create("late")]).start()
        @pytest.mark.foreign_fds
        def test_foreign(): tests.helpers.kept = os.memfd_create("foreign")
        def test_after(): os.close(tests.helpers.kept)
    """,
        grace=60,  # "late" is on a busy machine whatever the timer's thread makes of it
    ).assert_outcomes(passed=3)
