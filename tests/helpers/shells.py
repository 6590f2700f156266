"""An IPython shell for tests, and what it displays."""

import atexit
import contextlib
import io
import threading

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

__all__ = ["Outputs", "Shell", "shell"]

EXTENSION = "cuframes_nb.notebook"
SECONDS = 30.0


class Outputs(DisplayPublisher):
    """Keeps what was displayed by its id, as a page does, and lets tests wait for it."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.by_id = {}
        self.history = []
        self._changed = threading.Condition()

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_):
        """Take a display, from any thread."""
        with self._changed:
            name = (transient or {}).get("display_id", len(self.history))
            assert update == (name in self.by_id)
            self.by_id[name] = data
            self.history.append(data)
            self._changed.notify_all()

    def wait_for(self, text):
        """Return the display whose plain text has `text` in it, once there is one."""

        def found():
            return [data for data in self.by_id.values() if text in data["text/plain"]]

        with self._changed:
            assert self._changed.wait_for(found, SECONDS), (text, self.by_id)
            return found()[-1]


class Shell:
    """Runs cells in a shell that has the extension."""

    def __init__(self, shell):
        self.ip = shell
        self.outputs = shell.display_pub
        self.names = shell.user_ns

    @property
    def magics(self):
        return self.ip.magics_manager.registry["CuframesMagics"]

    def run(self, code):
        """Run a cell that succeeds; return the value of its last line."""
        with contextlib.redirect_stdout(io.StringIO()) as self.printed:
            result = self.ip.run_cell(code)
        result.raise_error()
        return result.result

    def told(self, code):
        """Run a cell that succeeds; return what it printed."""
        self.run(code)
        return self.printed.getvalue()

    def fails(self, code):
        """Run a cell that fails; return the error and what was told about it."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            result = self.ip.run_cell(code)
        error = result.error_in_exec or result.error_before_exec
        assert error is not None, told.getvalue()
        return error, told.getvalue()

    def usage_error(self, code):
        """Run a cell that is wrong; return the paragraph that says so."""
        error, told = self.fails(code)
        assert type(error).__name__ == "UsageError"
        assert told == f"UsageError: {error}\n"
        return str(error)

    def html(self, value):
        """Return a value as the shell shows it on a page, None if it only has text."""
        return self.ip.display_formatter.format(value)[0].get("text/html")

    def complete(self, line):
        """Return what completes a line."""
        with provisionalcompleter():
            return [one.text for one in self.ip.Completer.completions(line, len(line))]


@pytest.fixture
def shell(runtime_dir, tmp_path, monkeypatch):
    """Yield a shell as a kernel has it, with the extension; it leaves nothing behind."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    ip = InteractiveShell.instance(config=config, display_pub_class=Outputs)
    ip.kernel = object()  # the sign that a page shows what is displayed
    ip.extension_manager.load_extension(EXTENSION)
    try:
        yield Shell(ip)
    finally:
        ip.extension_manager.unload_extension(EXTENSION)
        ip.reset(new_session=False)
        ip.restore_sys_module_state()
        atexit.unregister(ip.atexit_operations)
        InteractiveShell.clear_instance()
