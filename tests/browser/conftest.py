"""A real headless Chromium, once for each test process, with a fresh profile for each page.

Without one on the machine these tests are skipped and say so; with VIBEY_TEST_BROWSER=1 they fail instead.
VIBEY_TEST_CHROMIUM names a program in another place.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# One of its own in a container has no user namespaces; nothing it starts may look for the network.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program."""
    named = os.environ.get("VIBEY_TEST_CHROMIUM")
    found = named or next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        _without("no Chromium is installed here: apt-get install chromium")
    return found


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """What drives it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("playwright is not installed: make install")
    with sync_playwright() as driver:
        yield driver


def _without(reason: str) -> NoReturn:
    if os.environ.get("VIBEY_TEST_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def site(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Site]:
    """Flower on this test's own installation, not started yet."""
    opened = Site(database_url, redis_url, tmp_path / "site")
    yield opened
    opened.close()


class Tab:
    """A page of the browser, and everything it complained of."""

    def __init__(self, page: Page) -> None:
        """Listen to it."""
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._obeyed)

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    def _obeyed(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def open_tab(playwright: Playwright, chromium: str, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """A function that opens a page in a profile of its own: `open_tab(width=375, color_scheme="dark")`."""
    contexts = []

    def opener(width: int = 1280, height: int = 900, **options: Any) -> Tab:
        context = playwright.chromium.launch_persistent_context(
            tmp_path / f"profile-{len(contexts)}",
            executable_path=chromium,
            headless=True,
            args=list(FLAGS),
            viewport={"width": width, "height": height},
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(20_000)
        return Tab(context.new_page())

    yield opener
    for context in contexts:
        context.close()
