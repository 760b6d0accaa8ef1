"""The router's pages in a real browser: live, by keyboard, on a narrow screen, without script, obeying no job."""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.wait import until
from vibey.engines.output import OutputLog
from vibey.services.outputs import output_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

PAGES = ("/", "/queue", "/jobs", "/job/1", "/cap", "/ledger")
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
LONG = "long" * 60
# The ratio of contrast between an element's own text and what is behind it, for every element with text in sight.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.9) { return colour; }
    }
    return [255, 255, 255];
  };
  return Array.from(document.querySelectorAll("main *")).filter((element) =>
    Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.nodeValue.trim())
    && element.getClientRects().length && !element.closest(".visually-hidden, noscript, option, thead"))
    .map((element) => {
      const [one, two] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
      return [(Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05), element.outerHTML.slice(0, 120)];
    });
}"""

AT_END = "(log => log.scrollTop + log.clientHeight >= log.scrollHeight - 2)(document.getElementById('log'))"
FOCUSED = (
    "(e => [e.name || e.textContent.trim(), getComputedStyle(e).outlineStyle, e.rel || ''])(document.activeElement)"
)


def _fill(site: Site) -> None:
    """Jobs that run, are held, overflow and can run nowhere, all with hostile payloads."""
    jobs = site.bench.enqueue(6, payload={"prompt": NASTY, "long": LONG}, session=None)
    site.bench.enqueue(1, exclude=("near", "far", "bought"), anyway=True, idempotency_key=NASTY)
    site.route()
    query(site.bench.url, f"update jobs set held_at = held_at - interval '61 s' where id = {jobs[3]}")
    site.route()
    site.vibey("measure")
    query(site.bench.url, f"update engines set detail = '{NASTY}{LONG}', installed = false where name = 'bought'")
    query(site.bench.url, f"update runs set detail = '{NASTY}{LONG}' where job_id = {jobs[0]}")
    query(
        site.bench.url,
        f"insert into ledger (kind, job_id, data) values ('JobFailed', 1, to_jsonb('{NASTY}{LONG}'::text))",
    )


def test_pages_follow_what_happens_without_a_reload(site: Site, open_tab: Callable[..., Any]) -> None:
    """A job that is granted appears in its lane, the queue's numbers move, and what had the focus keeps it."""
    tab = open_tab()
    tab.page.goto(site.start().origin)
    tab.page.wait_for_selector("#live-word:has-text('Live')")
    tab.page.evaluate("window.stillTheSame = true")
    tab.page.focus("[data-engine=far] .name, a:has-text('Queued')")
    (job,) = site.bench.enqueue(1)
    tab.page.wait_for_selector("[data-figure=queued]:text-is('1')")
    site.route()
    tab.page.wait_for_selector(f".lane-taken a:text-is('job {job}')")
    tab.page.wait_for_selector("[data-figure=queued]:text-is('0')")
    assert tab.page.evaluate("window.stillTheSame") is True
    assert tab.page.evaluate("document.activeElement.textContent") == "Queued"
    assert tab.complaints == []


def test_a_page_says_when_it_is_no_longer_live(site: Site, open_tab: Callable[..., Any]) -> None:
    """When Flower goes away the page keeps its numbers and says that they are old, in a word that is read out."""
    tab = open_tab()
    tab.page.goto(f"{site.start().origin}/queue")
    tab.page.wait_for_selector("#live-word:has-text('Live')")
    site.stop()
    tab.page.wait_for_selector("#live-word:has-text('Not live')")
    assert tab.page.get_attribute("#live-word", "aria-live") == "polite"
    assert "Nothing is queued" in tab.page.inner_text("#fragment")


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_no_page_scrolls_sideways(site: Site, open_tab: Callable[..., Any], width: int) -> None:
    """However long names, payloads and details are, a page is as wide as the screen."""
    site.start()
    _fill(site)
    tab = open_tab(width=width)
    for path in PAGES:
        tab.page.goto(site.origin + path)
        tab.page.wait_for_selector("#live-word:has-text('Live')")
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_themes(site: Site, open_tab: Callable[..., Any], scheme: str) -> None:
    """Every text has a contrast of 4.5 to what is behind it."""
    site.start()
    _fill(site)
    tab = open_tab(color_scheme=scheme)
    for path in PAGES:
        tab.page.goto(site.origin + path)
        found = tab.page.evaluate(CONTRASTS)
        assert len(found) > 10
        assert [each for each in found if each[0] < 4.5] == [], path


def test_nothing_of_a_job_runs(site: Site, open_tab: Callable[..., Any]) -> None:
    """Hostile payloads, details and keys open no dialog, make no element, and meet no rule of the page's policy."""
    site.start()
    _fill(site)
    tab = open_tab()
    for path in PAGES:
        tab.page.goto(site.origin + path)
        tab.page.wait_for_selector("#live-word:has-text('Live')")
        assert tab.page.locator("main img, main script, main svg[onload]").count() == 0, path
    assert tab.complaints == []


def test_the_log_tail_follows_as_text(site: Site, open_tab: Callable[..., Any]) -> None:
    """Output appears as it is written, colours taken out, markup as text, the end kept in sight."""
    site.start()
    (job,) = site.bench.enqueue(1)
    site.route()
    ((run, _, _),) = site.bench.live()
    query(site.bench.url, f"update runs set host = '{socket.gethostname()}', started_at = now(), state = 'running'")
    path = output_of(site.bench.installation, run)
    path.parent.mkdir(parents=True)
    log = OutputLog(path)
    log.write(f"\x1b[32mcloning\x1b[0m {NASTY}\n".encode())
    tab = open_tab()
    tab.page.goto(f"{site.origin}/job/{job}")
    tab.page.wait_for_selector("#log:has-text('cloning')")
    assert tab.page.inner_text("#log") == f"cloning {NASTY}\n"
    for number in range(200):
        log.write(f"line {number}\n".encode())
    tab.page.wait_for_selector("#log:has-text('line 199')")
    until(lambda: tab.page.evaluate(AT_END), what="the end of the log in sight")
    log.close()
    assert tab.complaints == []


def _said(text: str) -> bytes:
    return json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}).encode() + b"\n"


EDIT = {"file_path": f"src/{NASTY}.py", "old_string": "one\ntwo\n", "new_string": f"one\n{NASTY}\n"}
USED = {"usage": {"input_tokens": 1200, "output_tokens": 34}, "total_cost_usd": 0.25}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_transcript_is_read_on_the_page(site: Site, open_tab: Callable[..., Any], scheme: str) -> None:
    """A client's events are rows in its styles, live, as text whatever they hold, legible, and raw when asked for."""
    site.start()
    (job,) = site.bench.enqueue(1)
    site.route()
    ((run, _, _),) = site.bench.live()
    query(site.bench.url, f"update runs set host = '{socket.gethostname()}', started_at = now(), state = 'running'")
    query(site.bench.url, "update engines set kind = 'claude-code'")
    path = output_of(site.bench.installation, run)
    path.parent.mkdir(parents=True)
    log = OutputLog(path)
    events = [
        {"type": "system", "subtype": "init", "model": "m"},
        {"type": "assistant", "message": {"content": [{"type": "thinking", "thinking": "It may be the import."}]}},
        {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": NASTY}}]},
        },
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": f"{NASTY}\n" * 9}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Edit", "input": EDIT}]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "no", "is_error": True}]}},
    ]
    log.write(b"".join(json.dumps(event).encode() + b"\n" for event in events) + _said(f"Fixed: {NASTY}{LONG}"))
    tab = open_tab(width=768, color_scheme=scheme)
    tab.page.goto(f"{site.origin}/job/{job}")
    tab.page.wait_for_selector(".row-said:has-text('Fixed')")
    assert tab.page.locator(".row-added").inner_text().strip() == f"+{NASTY}"
    assert tab.page.locator(".row-removed").inner_text().strip() == "-two"
    assert tab.page.locator(".row-result").count() == 6
    log.write(json.dumps({"type": "result", "result": "Done.", **USED}).encode() + b"\n")
    tab.page.wait_for_selector(".row-usage:has-text('1,200 tokens in, 34 out, $0.2500')")
    until(lambda: tab.page.evaluate(AT_END), what="the end of the log in sight")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 768
    found = tab.page.evaluate(CONTRASTS)
    assert [each for each in found if each[0] < 4.5] == []
    assert tab.page.locator("main img, main script, main svg[onload]").count() == 0
    tab.page.screenshot(path=path.with_name(f"{scheme}.png"), full_page=True)
    tab.page.click("a:text-is('As it was printed')")
    tab.page.wait_for_selector("#log:has-text('total_cost_usd')")
    tab.page.click("a:text-is('As people read it')")
    tab.page.wait_for_selector(".row-usage")
    log.close()
    assert tab.complaints == []


def test_everything_is_reached_by_keyboard(site: Site, open_tab: Callable[..., Any]) -> None:
    """The first key leads past the navigation, focus is always seen, and Tab reaches filters, jobs and paging."""
    site.start()
    site.bench.enqueue(60, exclude=("near", "far", "bought"), anyway=True)
    tab = open_tab()
    tab.page.goto(f"{site.origin}/queue")
    tab.page.wait_for_selector("#live-word:has-text('Live')")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip-link"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "main-content"
    reached = []
    for _ in range(80):
        tab.page.keyboard.press("Tab")
        seen = tab.page.evaluate(FOCUSED)
        reached.append(seen)
        if seen[2] == "next":
            break
    assert [name for name, _, _ in reached][:3] == ["show", "project", "Show"]
    assert {style for _, style, _ in reached} <= {"solid", "auto"}
    assert reached[-1][2] == "next"
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("a:text-is('First page')")
    assert len(tab.page.locator("#jobs-title ~ table tbody tr").all()) == 10


def test_ten_thousand_jobs_are_as_usable_as_ten(site: Site, open_tab: Callable[..., Any]) -> None:
    """One page of fifty, the numbers of all, and a next page."""
    site.start()
    (first,) = site.bench.enqueue(1, exclude=("near", "far", "bought"), anyway=True)
    query(
        site.bench.url,
        f"""insert into jobs (project_id, pool, standing, effort, effort_now, excluded, requirement_key, payload)
            select project_id, pool, standing, effort, effort_now, excluded, requirement_key, payload
            from generate_series(2, 10000) n join jobs on jobs.id = {first}""",
    )
    tab = open_tab(width=375)
    tab.page.goto(f"{site.origin}/queue")
    tab.page.wait_for_selector("[data-figure=queued]:text-is('10,000')")
    rows = tab.page.locator("#jobs-title ~ table tbody tr")
    assert rows.count() == 50
    tab.page.click("a[rel=next]")
    tab.page.wait_for_selector(f"th a:text-is('job {first + 50}')")
    assert rows.count() == 50


def test_without_script_the_page_is_whole(site: Site, open_tab: Callable[..., Any]) -> None:
    """No script: the numbers and reasons are there, and the page asks for itself again."""
    site.start()
    _fill(site)
    tab = open_tab(java_script_enabled=False)
    tab.page.goto(f"{site.origin}/queue")
    assert "no configured engine can serve what it asks" in tab.page.inner_text("#fragment")
    assert 'http-equiv="refresh"' in tab.page.content()
    tab.page.select_option("select[name=show]", "held")
    tab.page.click(".filters button")
    assert re.search(r"show=held", tab.page.url)
    assert "overflow possible at" in tab.page.inner_text("#fragment") or "No queued job fits" in tab.page.inner_text(
        "#fragment"
    )


def test_actions_by_hand(site: Site, open_tab: Callable[..., Any]) -> None:
    """With a login and leave to act: pause from the list, and cancel a job after a second look, stay on our pages."""
    site.environment.update(FLOWER_BASIC_AUTH="alice:secret", FLOWER_VIBEY_ACTIONS="true")
    site.start()
    (job,) = site.bench.enqueue(1, exclude=("near", "far", "bought"), anyway=True)
    tab = open_tab(http_credentials={"username": "alice", "password": "secret"})
    tab.page.goto(site.origin)
    tab.page.wait_for_selector("#live-word:has-text('Live')")
    tab.page.click("[data-engine=near] button:has-text('Pause')")
    tab.page.wait_for_selector(".notice:has-text('Paused')")
    assert site.vibey("engines", "--json").json["engines"][0]["paused"] is True
    tab.page.goto(f"{site.origin}/job/{job}")
    tab.page.wait_for_selector("#live-word:has-text('Live')")
    tab.page.click("summary:has-text('Cancel')")
    tab.page.wait_for_selector("#as-of")
    tab.page.click("button:has-text('Yes, cancel')")
    tab.page.wait_for_selector(".notice:has-text('Cancelled')")
    assert site.vibey("job", job, "--json").json["state"] == "cancelled"
    assert tab.complaints == []
