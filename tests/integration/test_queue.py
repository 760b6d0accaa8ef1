"""The queue as people look at it: numbers that add up, one instant, and a cost that does not grow with the queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.errors import InvalidInput, UnknownName
from vibey.services import boards, views
from vibey.services.control import new_project
from vibey.services.queue import QueuePage, queue
from vibey.services.route import route
from vibey.store import queue as rows
from vibey.store.queue import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

DEEP = 20_000


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """One local slot, two paid ones, hybrid: what waits is held or full."""
    rules = {"mode": "hybrid", "overflow_after_seconds": 600, "paid_daily_cap": 3, "slots": {"p": 2}}
    return open_bench(engine={"l": noop(), "p": noop("paid")}, engines=rules)


def test_groups_and_counts_add_up(bench: Bench) -> None:
    """Held, waiting and backing off make the queued; groups make all that are due, each with its first job."""
    jobs = bench.enqueue(5)
    bench.enqueue(2, exclude=("l", "p"), priority=3, anyway=True)
    route(bench.installation, "main")
    (away,) = bench.enqueue(1)
    query(bench.url, f"update jobs set not_before = now() + interval '1 h' where id = {away}")
    found = queue(bench.installation, QueuePage())
    status = views.status(bench.installation)
    assert (found["queued"], found["held"]) == (status["queued"], status["held"]) == (7, 4)
    assert (found["waiting"], found["backing_off"]) == (2, 1)
    assert [(each["jobs"], each["held_jobs"], each["exclude"]) for each in found["groups"]] == [
        (4, 4, []),
        (2, 0, ["l", "p"]),
    ]
    assert found["groups"][0]["first"]["job_id"] == jobs[1]
    assert found["group_count"] == 2
    assert [each["job_id"] for each in found["jobs"]] == [*_of_priority(bench, 3), *jobs[1:]]


def test_a_spent_cap_is_told_only_to_jobs_it_keeps_from_something(open_bench: Callable[..., Bench]) -> None:
    """A job that no paid engine may serve, by name or by what it needs, is not sent to wait for midnight."""
    rules = {"mode": "hybrid", "overflow_after_seconds": 600, "paid_daily_cap": 0}
    bench = open_bench(engine={"l": noop(capabilities=["web"]), "p": noop("paid")}, engines=rules)
    bench.enqueue(1)
    (capped,), (barred,), (needy,) = (
        bench.enqueue(1),
        bench.enqueue(1, exclude=("p",)),
        bench.enqueue(1, capabilities=("web",)),
    )
    route(bench.installation, "main")
    for told in (
        {each["job_id"]: each["reason"] for each in queue(bench.installation, QueuePage())["jobs"]},
        {each["job_id"]: each["reason"] for each in views.jobs(bench.installation)["jobs"]},
        {job: views.job(bench.installation, job)["reason"] for job in (capped, barred, needy)},
    ):
        assert told[capped].startswith("every engine that may serve it is full, and the paid cap of 0 for ")
        assert told[barred] == told[needy] == "every engine that may serve it is full"


def _of_priority(bench: Bench, priority: int) -> list[int]:
    return [row[0] for row in bench.rows(f"select id from jobs where priority = {priority} order by id")]


def test_pages_hold_each_job_once_under_every_filter(bench: Bench) -> None:
    """Small pages, one after another, give each filter's jobs exactly once, in order; filters part the whole."""
    new_project(bench.installation, "other")
    for priority in (0, 5, -2, 5, 0):
        bench.enqueue(3, priority=priority)
        bench.enqueue(2, priority=priority, project="other", exclude=("l", "p"), anyway=True)
    route(bench.installation, "main")
    order = [row[0] for row in bench.rows("select id from jobs where state = 'queued' order by priority desc, id")]

    def pages(**wanted: Any) -> list[int]:
        found: list[int] = []
        after = None
        while True:
            page = queue(bench.installation, QueuePage(**wanted, after=after, limit=3))
            found += [each["job_id"] for each in page["jobs"]]
            after = page["next_after"]
            if after is None:
                return found

    assert pages() == order
    assert sorted(pages(show="held") + pages(show="waiting")) == sorted(order)
    assert len(pages(show="held")) == views.status(bench.installation)["held"] == 14
    assert pages(project="other") == pages(show="waiting")
    query(bench.url, "update jobs set not_before = now() + id % 3 * interval '1 min' where state = 'queued'")
    by_end = [row[0] for row in bench.rows("select id from jobs where state = 'queued' order by not_before, id")]
    assert pages(show="backoff") == by_end


def test_what_is_not_understood_is_refused(bench: Bench) -> None:
    """A filter, a place or a project that does not exist is named."""
    for wanted in (QueuePage(show="x"), QueuePage(after="1"), QueuePage(limit=0)):
        with pytest.raises(InvalidInput):
            queue(bench.installation, wanted)
    with pytest.raises(UnknownName):
        queue(bench.installation, QueuePage(project="none"))


def test_a_deep_page_reads_as_few_rows_as_the_first(bench: Bench) -> None:
    """The database touches about a page of jobs for each group, wherever in the queue the page is."""
    (first,) = bench.enqueue(1)
    bench.enqueue(1, exclude=("p",))
    query(
        bench.url,
        f"""insert into jobs (project_id, pool, priority, standing, effort, effort_now, excluded, requirement_key,
                              payload)
            select project_id, pool, n % 3, -(n % 3), effort, effort_now, excluded, requirement_key, payload
            from generate_series(1, {DEEP}) n join jobs on jobs.id = {first} + n % 2""",
    )
    query(bench.url, "analyze jobs")
    middle = bench.rows(f"select standing, id from jobs order by standing, id offset {DEEP // 2} limit 1")[0]
    shallow = _touched(bench, None)
    deep = _touched(bench, Place(*middle))
    assert shallow <= 50 * 20
    assert deep <= 50 * 20


def _touched(bench: Bench, after: Place | None) -> int:
    """How many rows of jobs the plan of a page really read."""

    def read(connection: Connection) -> Any:
        values = {
            "project": None,
            "held": None,
            "standing": after.value if after else rows.BEFORE_ALL,
            "after": after.job_id if after else 0,
            "limit": 50,
        }
        return connection.exec_driver_sql(f"explain (analyze, format json) {rows.DUE.sql}", values).scalar()

    plan = bench.installation.database.run(read)
    return _rows(json.loads(plan)[0]["Plan"] if isinstance(plan, str) else plan[0]["Plan"])


def _rows(node: dict[str, Any]) -> int:
    own = 0
    if node.get("Relation Name") == "jobs":
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return int(own) + sum(_rows(below) for below in node.get("Plans", []))


def test_a_board_is_of_one_instant(bench: Bench) -> None:
    """Slots in use and their holders agree on a board, and with what the commands show."""
    bench.enqueue(3)
    route(bench.installation, "main")
    board = boards.fleet(bench.installation)
    taken = [each for each in board["slots"] if each["run_id"] is not None]
    assert len(taken) == sum(each["in_use"] for each in board["engines"]) == 1
    status, slots = views.status(bench.installation), views.slots(bench.installation)
    shared = status.keys() - {"as_of", "workers", "engines", "database"}
    assert {key: board[key] for key in shared} == {key: status[key] for key in shared}
    assert [each["job_id"] for each in board["slots"]] == [each["job_id"] for each in slots["slots"]]
