"""How the pages become a web site: ``make docs``."""

from pathlib import Path

project = "cuframes_nb"
author = "the cuframes_nb authors"
copyright = author  # noqa: A001  Sphinx's name for it

extensions = ["myst_parser"]
myst_heading_anchors = 4
root_doc = "index"
html_theme = "furo"
html_title = project
suppress_warnings = ["myst.xref_missing"]  # links to files outside of docs/, right on a code host

SECTIONS = ("tutorial", "how-to", "reference", "design", "design/decisions")


def add_sidebar(app, docname, source):
    """Give the index a table of contents, which elsewhere would only show as code."""
    if docname == root_doc:
        here = Path(app.srcdir)
        pages = [
            path.relative_to(here).with_suffix("").as_posix()
            for section in SECTIONS
            for path in sorted((here / section).glob("*.md"))
        ]
        lines = ["```{toctree}", ":hidden:", *pages, "protocol", "benchmarks", "```"]
        source[0] += "\n" + "\n".join(lines) + "\n"


def setup(app):
    """Have Sphinx call us."""
    app.connect("source-read", add_sidebar)
