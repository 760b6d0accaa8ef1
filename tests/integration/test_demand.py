"""Demand as a real database recorded it: what counts, for how long, and where it could have run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.databases import query
from tests.support.history import ran, settle
from tests.support.installation import Bench, noop
from vibey.services import demand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vibey.domain.demand import Demand

ENGINES = {"near": noop(capabilities=["web"]), "far": noop(), "bought": noop("paid")}


@pytest.fixture
def bench(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    """Two local engines and a paid one."""
    made = Bench(database_url, redis_url, tmp_path, {"engine": dict(ENGINES)})
    yield made
    made.close()


def windowed(bench: Bench, hours: int = 168) -> dict[int, Demand]:
    """The window's demand by job."""
    found, _ = bench.installation.database.run(lambda connection: demand.window(connection, hours))
    return {each.job_id: each for each in found}


def test_demand_is_what_wanted_a_local_engine(bench: Bench) -> None:
    """Local runs count as they ran, overflows and fallbacks with the median; refused and unwanted ones not at all."""
    names = (
        "short",
        "middle",
        "long",
        "over",
        "fallen",
        "plain",
        "refused",
        "withdrawn",
        "old",
        "live",
        "queued",
        "alone",
    )
    jobs = dict(zip(names, bench.enqueue(len(names)), strict=True))
    query(bench.url, f"update jobs set excluded = '{{near,far}}' where id = {jobs['alone']}")
    for name, minutes in (("short", 1), ("middle", 20), ("long", 60)):
        ran(bench, jobs[name], due=100, minutes=minutes)
    ran(bench, jobs["over"], due=90, minutes=3, engine="bought", why="overflow")
    ran(bench, jobs["fallen"], due=90, minutes=3, engine="bought", why="fallback")
    ran(bench, jobs["plain"], due=90, minutes=3, engine="bought")
    ran(bench, jobs["refused"], due=90, minutes=3, failure_class="capacity", state="failed")
    ran(bench, jobs["withdrawn"], due=90, minutes=3, state="withdrawn", started_at=None)
    ran(bench, jobs["old"], due=169 * 60, minutes=3)
    settle(bench)
    ran(bench, jobs["live"], due=30, minutes=None)
    query(bench.url, f"update jobs set state = 'running', run_id = 1 where id = {jobs['live']}")
    found = windowed(bench)
    told = {name: round(found[job].running_ms / 60_000) for name, job in jobs.items() if job in found}
    assert told == {"short": 1, "middle": 20, "long": 60, "over": 20, "fallen": 20, "live": 30, "queued": 20}
    assert found[jobs["queued"]].eligible == {"near", "far"}


def test_of_a_busy_window_the_newest_count(bench: Bench) -> None:
    """More attempts than are replayed: the newest, at the length of those that ran, though none of them is left."""
    (done,) = bench.enqueue()
    ran(bench, done, due=90, minutes=20)
    settle(bench)
    waiting = bench.enqueue(3)
    found, _ = bench.installation.database.run(lambda connection: demand.window(connection, 168, limit=2))
    assert {each.job_id: round(each.running_ms / 60_000) for each in found} == dict.fromkeys(waiting[1:], 20)


def test_a_refused_attempt_that_waits_again_counts_once(bench: Bench) -> None:
    """It keeps its first look; an attempt in two runs after a handoff is one with the time of both."""
    refused, handed = bench.enqueue(2)
    ran(bench, refused, due=90, minutes=3, failure_class="capacity", state="failed")
    query(
        bench.url,
        f"update jobs set due_at = (select due_at from runs where job_id = {refused}) where id = {refused}",
    )
    ran(bench, handed, due=80, minutes=5, failure_class="handoff", state="failed")
    ran(bench, handed, due=80, minutes=7, engine="far")
    query(
        bench.url,
        f"update runs set due_at = (select min(due_at) from runs where job_id = {handed}) where job_id = {handed}",
    )
    query(
        bench.url, f"update jobs set state = 'succeeded', ended_at = clock_timestamp(), attempt = 1 where id = {handed}"
    )
    found, now_ms = bench.installation.database.run(lambda connection: demand.window(connection, 168))
    told = {
        each.job_id: (round(each.running_ms / 60_000), round((now_ms - each.looked_at_ms) / 60_000)) for each in found
    }
    assert len(found) == 2
    assert told == {refused: (12, 90), handed: (12, 80)}


def test_eligible_engines_are_those_that_may_serve_the_job(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """Within its pool, with its capabilities, less its exclusions; engines switched off do not count."""
    tables = {
        "engine": {**ENGINES, "spare": noop(), "off": noop(enabled=False)},
        "pool": {"side": {"members": ["spare", "bought"]}},
    }
    made = Bench(database_url, redis_url, tmp_path, tables)
    (plain,), (web,), (less,), (side,), (none,), (pinned,) = (
        made.enqueue(),
        made.enqueue(capabilities=["web"]),
        made.enqueue(exclude=["near"]),
        made.enqueue(pool="side"),
        made.enqueue(pool="side", capabilities=["web"], anyway=True),
        made.enqueue(engines=["far", "bought"]),
    )
    found = {job: set(each.eligible) for job, each in windowed(made).items()}
    assert found == {
        plain: {"near", "far", "spare"},
        web: {"near"},
        less: {"far", "spare"},
        side: {"spare"},
        pinned: {"far"},
    }
    assert none not in found
    made.close()
