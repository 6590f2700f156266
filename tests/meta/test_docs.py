"""Code in the documentation runs, and no file tells where it was written.

The ``python`` blocks of a page run in order in one namespace, in a process and a runtime directory
of their own. A block fenced as ``python no-run`` or ``python gpu`` is only compiled. A comment
``<!-- python`` … ``-->`` holds code that runs and is not shown, such as a publisher to look at.
"""

import ast
import asyncio
import inspect
import json
import re
import signal
import subprocess
import sys

import pytest

from tests.helpers.children import ROOT, child_env

PAGES = sorted({*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")})
BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<fence>`{3,})|<!-- )python\b(?P<info>[^\n]*)\n"
    r"(?P<code>.*?)"
    r"^[ \t]*(?(fence)(?P=fence)|-->)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def blocks(text):
    """Return ``(line of the first statement, info string, code)`` of each block."""
    return [
        (
            text.count("\n", 0, match.start("code")) + 1,
            match["info"],
            re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE),
        )
        for match in BLOCK.finditer(text)
    ]


def compiled(page, line, code):
    """Compile a block so that a traceback names its place in the page; it may await."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile("\n" * (line - 1) + code, page, "exec", flags=flags, dont_inherit=True)


def main():
    """Run the blocks that stdin describes; the far side of the test below."""
    # Who started the tests may have had Ctrl-C ignored, as shells do in the background, and a
    # program that a page starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    page, found = json.load(sys.stdin)
    names = {"__name__": "__main__"}
    for line, code in found:
        code_object = compiled(page, line, code)
        result = eval(code_object, names)
        if inspect.iscoroutine(result):
            asyncio.run(result)


@pytest.mark.process
@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_code_in_a_page_runs(page, runtime_dir, tmp_path):
    found = blocks((ROOT / page).read_text(encoding="utf-8"))
    for line, _, code in found:
        compiled(page, line, code)
    to_run = [(line, code) for line, info, code in found if not {"no-run", "gpu"} & {*info.split()}]
    if not to_run:
        return
    run = subprocess.run(
        [sys.executable, "-c", "from tests.meta.test_docs import main; main()"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=child_env(),
        input=json.dumps([str(ROOT / page), to_run]),
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr


def test_blocks_are_found_with_their_lines():
    text = (
        "a\n```python\nx = 1\n```\n  ```python gpu\n  y\n  ```\n<!-- python\nz\n-->\n```sh\nno\n```"
    )
    assert blocks(text) == [(3, "", "x = 1\n"), (6, " gpu", "y\n"), (9, "", "z\n")]


def test_no_file_tells_where_it_was_written():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    places = [f"/{'work'}/", f"{ROOT}/"]
    telling = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, places))})")
    found = [
        name
        for name in filter(None, listed.stdout.split("\0"))
        if (ROOT / name).is_file()
        and telling.search((ROOT / name).read_text(encoding="utf-8", errors="ignore"))
    ]
    assert found == []
