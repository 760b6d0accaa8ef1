"""The login by a link in a real browser: what it shows before, how it lets in, and that all pages work then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIVE = "#live-word:has-text('Live')"
# A terminal in the browser, a chat: another site whose page shows the link.
ELSEWHERE = "http://elsewhere.example/"


@pytest.fixture
def shared(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Site]:
    """Flower as on a machine with other accounts."""
    opened = Site(database_url, redis_url, tmp_path / "site", login="always").start()
    yield opened
    opened.close()


def link_of(site: Site) -> str:
    """The link that logs in, with the port of this test's Flower."""
    link = str(site.vibey("pages", "--json").json["link"])
    return link.replace("http://127.0.0.1:5555", site.origin)


@pytest.mark.parametrize("width", [375, 1280])
def test_one_click_on_the_link_logs_in(shared: Site, open_tab: Callable[..., Any], width: int) -> None:
    """Without it a page says how to get one; with it, also from another site, all pages work, Flower's own included."""
    tab = open_tab(width=width)
    page = tab.page
    for address in (f"{shared.origin}/queue", f"{shared.origin}/tasks"):
        answer = page.goto(address)
        assert (answer.status, "vibey pages" in page.inner_text("main")) == (401, True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert all("401" in words for words in tab.complaints)
    tab.complaints.clear()
    html = f'<a href="{link_of(shared)}">the link</a>'
    page.route(ELSEWHERE, lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(ELSEWHERE)
    page.click("a")
    page.wait_for_url(f"{shared.origin}/engines")
    page.wait_for_selector(LIVE)
    (job,) = shared.bench.enqueue(1)
    page.goto(f"{shared.origin}/queue")
    page.wait_for_selector(f"a:has-text('{job}')")
    for path, sign in (("/workers", "#workers-table"), ("/tasks", "#tasks-table"), ("/broker", "table")):
        assert page.goto(shared.origin + path).status == 200
        page.wait_for_selector(sign)
        page.wait_for_load_state("networkidle")
    page.goto(f"{shared.origin}/workers")
    page.evaluate("document.querySelector('.navbar-nav a[href=\"/jobs\"]').click()")
    page.wait_for_url(f"{shared.origin}/jobs")
    page.wait_for_selector(LIVE)
    assert page.evaluate("document.cookie").count("vibey_") == 0
    assert tab.complaints == []
    page.go_back()
    assert "token" not in page.url
