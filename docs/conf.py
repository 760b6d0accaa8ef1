"""How `make docs` makes a site of these pages with Sphinx, strictly and without any network.

The pages are plain Markdown that reads just as well on a Git host. So the site's navigation is not written into them:
it is made of the lists of links in each folder's README.md, a heading of the start page being a section. A page that no
list names is an error. So is, once the site is built, a script, style, picture or font from elsewhere.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from vibey import __version__  # noqa: E402  (found by the line above, wherever Sphinx was started)

project = "Vibey"
author = "the Vibey authors"
copyright = author
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
exclude_patterns = ["generate"]
nitpicky = True
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"Vibey {release}"
html_static_path = ["static"]
html_css_files = ["vibey.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_use_index = False
html_theme_options = {"top_of_page_buttons": []}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LISTED = re.compile(r"^(?:- |\| *`?[\w-]+`? *\|.*)\[.*?\]\(([\w./-]+)\.md\)", re.MULTILINE)
ASSET = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"", re.IGNORECASE
)
FETCHED = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')]+)", re.IGNORECASE)


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give each README.md the tables of contents that its lists of links amount to."""
    if PurePosixPath(docname).name != "README":
        return
    parts = HEADING.split(source[0])
    sections = [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    for heading, text in sections:
        pages = [page for page in LISTED.findall(text) if not page.startswith("..")]
        if pages:
            caption = f":caption: {heading}\n" if heading and docname == app.config.root_doc else ""
            source[0] += "\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(pages) + "\n```\n"


def refuse_foreign_assets(app: Sphinx, failed: Exception | None) -> None:
    """Raise for a page that would fetch something from elsewhere when it is read."""
    if failed is not None:
        return
    for pattern, suffix in ((ASSET, ".html"), (FETCHED, ".css")):
        for file in sorted(Path(app.outdir).rglob(f"*{suffix}")):
            if found := pattern.search(file.read_text(encoding="utf-8")):
                raise ExtensionError(f"{file.name} fetches {found[1]}; a page may need nothing but this site")


def open_at_the_start(app: Sphinx, failed: Exception | None) -> None:
    """Let the site's folder open at the start page, which has its name from the Git host."""
    if failed is None:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Register the above with Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", open_at_the_start)
    app.connect("build-finished", refuse_foreign_assets)
