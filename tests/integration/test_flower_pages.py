"""The router's pages in Flower: the numbers and words of the command line, at any depth, and nothing that could run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.databases import query
from tests.support.site import Site
from tests.support.wait import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.site import Reader

PAGES = ("/", "/engines", "/queue", "/jobs", "/cap", "/ledger")
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}"
MANY = 2_000


@pytest.fixture
def site(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Site]:
    """Flower on this test's own installation."""
    with closing(Site(database_url, redis_url, tmp_path / "site")) as opened:
        yield opened.start()


def _busy(site: Site) -> list[int]:
    """Three slots taken, held jobs, one that cannot be held, one in backoff, an engine paused, one unit of the cap."""
    jobs = site.bench.enqueue(6)
    site.bench.enqueue(1, exclude=("near", "far", "bought"), anyway=True)
    site.route()
    query(site.bench.url, f"update jobs set held_at = held_at - interval '61 s' where id = {jobs[3]}")
    site.route()
    (backing_off,) = site.bench.enqueue(1)
    query(
        site.bench.url,
        f"update jobs set not_before = now() + interval '1 h', reason = 'work: exit 1' where id = {backing_off}",
    )
    site.vibey("engine", "pause", "far")
    return jobs


def test_the_engines_page_says_what_status_says(site: Site) -> None:
    """Every number of `vibey status` is on the page as it is there, and every taken slot leads to its job."""
    _busy(site)
    page = site.look("/")
    status = site.vibey("status", "--json").json
    counts = ("queued", "held", "running", "granted")
    assert {name: int(page.figure(name)) for name in counts} == {name: status[name] for name in counts}
    assert (status["queued"], status["held"], status["granted"]) == (4, 2, 4)
    assert int(page.figure("cap-used")) == status["cap"]["used"] == 1
    assert int(page.figure("cap-limit")) == status["cap"]["limit"]
    assert page.figure("mode") == status["mode"]
    for each in status["engines"]:
        of = each["name"]
        assert [int(page.figure(name, of)) for name in ("in_use", "slots", "selected_count")] == [
            each["in_use"],
            each["slots"],
            each["selected_count"],
        ]
        assert float(page.figure("weight", of)) == each["weight"]
        assert page.figure("share", of) == f"{each['share'] * 100:.1f}%"
        assert page.figure("expected_share", of) == f"{each['expected_share'] * 100:.1f}%"
    taken = [given for tag, given in page.tags if tag == "li" and given.get("class") == "lane lane-taken"]
    slots = site.vibey("slots", "--json").json["slots"]
    assert sorted(given["data-key"] for given in taken) == sorted(str(s["run_id"]) for s in slots if s["run_id"])
    assert {f"/job/{s['job_id']}" for s in slots if s["job_id"]} <= set(page.links)
    assert "paused" in page.text


def test_the_queue_page_tells_a_newcomer_why_each_job_waits(site: Site) -> None:
    """Held, waiting and backing off add up to status, and reason and earliest start are those of `vibey explain`."""
    _busy(site)
    status = site.vibey("status", "--json").json
    page = site.look("/queue")
    counts = {name: int(page.figure(name)) for name in ("queued", "held", "waiting", "backing_off")}
    assert counts == {"queued": status["queued"], "held": status["held"], "waiting": 1, "backing_off": 1}
    listed = page.jobs()
    assert len(listed) == 3
    for job in listed:
        waiting = site.vibey("explain", job, "--json").json["waiting"]
        assert waiting["earliest"]["words"] in page.text
    held = site.look("/queue?show=held")
    waiting = site.look("/queue?show=waiting")
    assert (len(held.jobs()), len(waiting.jobs())) == (2, 1)
    assert "overflow possible at" in held.text
    assert "no configured engine can serve what it asks" in waiting.text
    backoff = site.look("/queue?show=backoff")
    assert "backing off until" in backoff.text
    (job,) = backoff.jobs()
    assert site.vibey("explain", job, "--json").json["waiting"]["earliest"]["words"] in backoff.text


def test_the_job_page_explains_and_lists_runs(site: Site) -> None:
    """What `vibey job` and `vibey explain` say of a job is on its page."""
    jobs = _busy(site)
    paid = site.vibey("explain", jobs[3], "--json").json["runs"][0]
    page = site.look(f"/job/{jobs[3]}")
    assert paid["grounds"]["because"] in page.text
    for each in paid["engines"]:
        assert each["detail"] in page.text
    assert "bought overflow" in page.text
    waiting = site.vibey("explain", jobs[5], "--json").json["waiting"]
    page = site.look(f"/job/{jobs[5]}")
    assert "Why it has not started" in page.text
    for each in waiting["engines"]:
        assert each["detail"].partition("; so far")[0] in page.text


def test_the_job_page_names_the_call_as_its_caller_knows_it(site: Site) -> None:
    """The task id of a routed call, as `vibey job` says it; another job has none."""
    routed, other = site.bench.enqueue(2)
    query(site.bench.url, f"update jobs set task_id = 'a-call' where id = {routed}")
    for ref in (routed, "a-call"):
        told = site.vibey("job", ref, "--json").json
        assert (told["job_id"], told["task_id"]) == (routed, "a-call")
    assert site.vibey("explain", "a-call", "--json").json["job_id"] == routed
    assert [site.vibey("job", ref).code for ref in ("a-cell", "call")] == [3, 2]
    assert "Task id a-call" in site.look(f"/job/{routed}").text
    assert "Task id" not in site.look(f"/job/{other}").text


def test_the_cap_page_shows_every_unit_with_its_evidence(site: Site) -> None:
    """A row for each unit of today: which job took it, why, and what was left; a unit given back says so."""
    jobs = _busy(site)
    page = site.look("/cap")
    assert page.figure("cap-used") == "1"
    assert page.figure("cap-remaining") == "2"
    assert int(page.figure("outside-cap")) == site.vibey("status", "--json").json["paid_outside_cap_today"] == 0
    assert f"/job/{jobs[3]}" in {urlsplit(link).path for link in page.links}
    assert "near 2 of 2 in use; far 1 of 1 in use; 2 of 3 left after it; mode hybrid (declared)" in page.text
    site.vibey("cancel", jobs[3])
    page = site.look("/cap")
    assert (page.figure("cap-used"), page.figure("cap-remaining")) == ("0", "3")
    assert "no: given back" in page.text


def test_a_cap_that_is_used_up_is_marked(site: Site) -> None:
    """In words and by the colour of its card, on both pages; a cap with units left is not."""

    def marked() -> list[int]:
        """How many cards each page marks."""
        pages = (site.look(path) for path in ("/", "/cap"))
        return [sum("metric-card-warning" in (given.get("class") or "") for _, given in page.tags) for page in pages]

    _busy(site)
    assert marked() == [0, 0]
    text = site.config.read_text(encoding="utf-8")
    site.config.write_text(text.replace("paid_daily_cap = 3", "paid_daily_cap = 1"), encoding="utf-8")
    assert site.vibey("apply", "--yes").code == 0
    assert marked() == [1, 1]
    assert ", none left" in site.look("/").text


def test_the_mode_section_shows_the_measurement(site: Site) -> None:
    """After a measurement its numbers stand beside the thresholds."""
    site.bench.enqueue(2)
    site.route()
    site.vibey("measure")
    evidence = site.vibey("mode", "--json").json["evidence"]
    page = site.look("/cap")
    assert f"attempts {evidence['demand']} {evidence['thresholds']['sessions']}" in page.text
    assert evidence["winner"] in page.text


def test_the_ledger_page_filters_and_pages(site: Site) -> None:
    """The ledger page shows the command's events, by the same filters, and pages on to the oldest."""
    jobs = site.bench.enqueue(60)
    site.route()
    everything = [each["id"] for each in site.vibey("ledger", "-n", "1000", "--json").json["events"]]
    assert _all_pages(site, "/ledger") == everything
    own = site.vibey("ledger", "--job", jobs[0], "--json").json["events"]
    page = site.look(f"/ledger?job={jobs[0]}")
    assert page.jobs() == [each["id"] for each in own]
    granted = site.look("/ledger?kind=RunGranted&engine=near")
    assert granted.text.count("RunGranted") >= 2
    assert "EngineSlotWaitStarted" not in site.look("/ledger?public=1&job=" + str(jobs[-1])).text.split("Data")[-1]


def test_thousands_of_jobs_page_by_page_in_the_order_of_routing(site: Site) -> None:
    """Every queued job is on exactly one page, by priority and then enqueueing, over groups and priorities."""
    _fill(site, MANY)
    expected = [
        row[0] for row in site.bench.rows("select id from jobs where state = 'queued' order by priority desc, id")
    ]
    page = site.look("/queue")
    assert int(page.figure("queued")) == MANY == len(expected)
    assert int(page.figure("waiting")) == MANY
    assert "the largest" not in page.text
    found = _all_pages(site, "/queue")
    assert found == expected
    assert len(_all_pages(site, "/jobs", most=3)) == 150


def _fill(site: Site, count: int) -> None:
    """Queue jobs in three groups and four priorities, without their events: they are only looked at."""
    first = site.bench.enqueue(1)[0]
    site.bench.enqueue(1, effort="high")
    site.bench.enqueue(1, capabilities=("web",))
    query(
        site.bench.url,
        f"""insert into jobs (project_id, pool, priority, standing, effort, effort_now, capabilities,
                              requirement_key, payload)
            select project_id, pool, n % 4, -(n % 4), effort, effort_now, capabilities, requirement_key, payload
            from generate_series(1, {count - 3}) n join jobs on jobs.id = {first} + n % 3""",
    )


def _all_pages(site: Site, path: str, most: int = 1000) -> list[int]:
    """The numbers of all rows of all pages, followed by their links."""
    found: list[int] = []
    address: str | None = path
    while address is not None and most > 0:
        page = site.get(address).page
        found += page.jobs()
        address, most = page.next_page(), most - 1
    return found


def test_nothing_of_a_job_can_run(site: Site) -> None:
    """Markup in payload, key, session, result, reason and detail is shown, never obeyed."""
    (job,) = site.bench.enqueue(1, payload={"prompt": NASTY}, session="s", idempotency_key=NASTY)
    site.route()
    text = NASTY.replace("'", "''")
    query(site.bench.url, f"update runs set detail = '{text}', failure_class = '{text[:20]}'")
    query(site.bench.url, f"update jobs set result = to_jsonb('{text}'::text), session = '{text}'")
    query(site.bench.url, f"update engines set detail = '{text}', installed = false where name = 'bought'")
    query(
        site.bench.url, f"insert into ledger (kind, job_id, data) values ('JobFailed', {job}, to_jsonb('{text}'::text))"
    )
    for path in (*PAGES, f"/job/{job}", f"/job/{job}?all=1", f"/ledger?job={job}"):
        answer = site.get(path)
        assert answer.status == 200, path
        _is_inert(answer.page, path)
        assert "<script>alert" not in answer.text, path
        assert "<img src=x" not in answer.text, path
        assert "49" not in answer.page.text.split("7*7")[-1][:4], path
    assert "<script>alert(1)</script>" in site.look(f"/job/{job}").text


def test_a_hostile_address_is_not_obeyed(site: Site) -> None:
    """What stands in the address comes back escaped, or is refused in words."""
    refused = {
        "/queue?show=%3Cscript%3E": 400,
        "/queue?after=1.2.3": 400,
        "/ledger?before=1'--": 400,
        "/ledger?kind=%3Cimg%20src=x%3E": 400,
        "/jobs?state=x": 400,
        "/jobs?project=%22%3E%3Cscript%3E": 404,
        "/cap?project=" + "x" * 500: 400,
        "/job/999999": 404,
        "/job/99999999999999999999": 404,
        "/job?id=%3Cscript%3E": 400,
        "/engines?project=none%00such": 404,
    }
    for path, status in refused.items():
        answer = site.get(path)
        assert answer.status == status, (path, answer.status)
        _is_inert(answer.page, path)


def _is_inert(page: Reader, path: str) -> None:
    """Scripts come from files, and no element carries a style or a handler of its own."""
    for tag, given in page.tags:
        assert tag != "script" or (given.get("src") or "").startswith("/"), (path, given)
        assert not [name for name in given if name.startswith("on") or name == "style"], (path, tag, given)


def test_pages_carry_a_policy_that_forbids_what_is_not_ours(site: Site) -> None:
    """Each of our pages forbids inline script and style, framing, caching and other origins."""
    for path in (*PAGES, "/job/1", "/job?id=x"):
        headers = site.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_every_page_says_that_the_file_differs_from_what_is_in_force(site: Site) -> None:
    """On each page as it is read, and on open ones as soon as the file is edited, until it is applied."""
    (job,) = site.bench.enqueue(1)
    pages = (*PAGES, f"/job/{job}")
    stream = site.stream("/live/ledger")
    try:
        _, first = stream.next("page")
        assert "differs" not in first["html"]
        assert not [path for path in pages if "differs from what is in force" in site.look(path).text]
        text = site.config.read_text(encoding="utf-8")
        site.config.write_text(text.replace("paid_daily_cap = 3", "paid_daily_cap = 4"), encoding="utf-8")
        _, edited = stream.next("page")
        assert "vibey.toml differs from what is in force (generation " in edited["html"]
        for path in pages:
            until(lambda path=path: "differs from what is in force" in site.look(path).text, what=path)
        assert site.vibey("apply", "--yes").code == 0
        until(lambda: "differs" not in stream.next("page")[1]["html"], what="the notice to go")
    finally:
        stream.close()


def test_an_empty_installation_says_what_to_do_next(site: Site) -> None:
    """Without jobs and without workers the pages name the next command."""
    query(site.bench.url, "delete from workers")
    assert "vibey up" in site.look("/").text
    assert "vibey enqueue" in site.look("/queue").text
    assert "vibey enqueue" in site.look("/jobs").text
    assert "No paid unit was taken today" in site.look("/cap").text


def test_one_navigation_for_ours_and_flowers_pages(site: Site) -> None:
    """Every page, Flower's too, leads to every other; Flower's own say that they are worker-level."""
    ours = {"/engines", "/queue", "/jobs", "/cap", "/ledger"}
    for path in (*PAGES, "/workers", "/tasks", "/broker"):
        page = site.look(path)
        assert ours | {"/workers", "/tasks", "/broker"} <= set(page.links), path
        assert ("Worker level: this is what Celery's" in page.text) == (path in {"/workers", "/tasks", "/broker"})


def test_tables_speak_to_a_screen_reader(site: Site) -> None:
    """Tables have a caption, headings a scope; each page has one first heading, a language, and a way to skip to it."""
    _busy(site)
    for path in (*PAGES, "/job/1"):
        page = site.look(path)
        tags = [tag for tag, _ in page.tags]
        assert tags.count("h1") == 1, path
        assert tags.count("table") == tags.count("caption") > 0, path
        assert all(given.get("scope") for tag, given in page.tags if tag == "th"), path
        assert ("html", {"lang": "en"}) in page.tags
        assert "#main-content" in page.links
        labelled = [given for tag, given in page.tags if tag in {"select", "input"} and given.get("type") != "hidden"]
        assert len(labelled) <= tags.count("label"), path


def test_pages_under_a_prefix(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """With Flower's `--url_prefix` every link of ours is under it."""
    site = Site(database_url, redis_url, tmp_path / "site", arguments=("--url_prefix=flower",))
    site.prefix = "/flower"
    try:
        site.start()
        page = site.look("/queue")
        own = [link for link in page.links if link.startswith("/")]
        assert own
        assert all(link.startswith("/flower/") for link in own)
        scripts = [given["src"] for tag, given in page.tags if tag == "script"]
        site.prefix = ""
        assert {site.get(str(address)).status for address in scripts} == {200}
    finally:
        site.close()


def test_a_stream_tells_only_what_is_new(site: Site) -> None:
    """The first event has the page, the next only the instant, until something changes, for which nobody reloads."""
    stream = site.stream("/live/queue")
    try:
        _, first = stream.next("page")
        assert "Nothing is queued" in first["html"]
        name, beat = stream.next("as_of", "page")
        assert (name, "html" in beat) == ("as_of", False)
        site.bench.enqueue(1)
        _, second = stream.next("page")
        assert "Nothing is queued" not in second["html"]
        assert second["as_of"] >= beat["as_of"] >= first["as_of"]
    finally:
        stream.close()


def test_a_database_that_goes_away_is_told_and_not_hidden(
    services: Any, template_database: str, redis_url: str, tmp_path: Path
) -> None:
    """An open page hears what is wrong; a new one says it with status 503."""
    from tests.support import databases

    url = databases.create(services.database_url, "vibey_going", template=template_database)
    site = Site(url, redis_url, tmp_path / "site")
    try:
        stream = site.start().stream("/live/engines")
        stream.next("page")
        databases.drop(services.database_url, "vibey_going")
        _, words = stream.next("trouble")
        assert "Postgres is unreachable" in words
        stream.close()
        answer = site.get("/queue")
        assert answer.status == 503
        assert "vibey doctor" in answer.page.text
        _is_inert(answer.page, "/queue")
    finally:
        site.close()
        databases.drop(services.database_url, "vibey_going")
