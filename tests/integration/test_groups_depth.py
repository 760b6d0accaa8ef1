"""What a pass reads of its queue is as much as there are groups, however deep they are and whenever it was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.store import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

DEEP = 20_000
COPIES = """
    insert into jobs (project_id, pool, priority, standing, effort, effort_now, requirement_key, payload, held_at)
    select project_id, pool, priority, standing, effort, effort_now, requirement_key, payload,
           case when {held} then clock_timestamp() end
    from generate_series(1, {deep}) n, jobs where id <= 2
"""


@pytest.mark.parametrize("held", ["true", "false", "n % 2 = 0", "n > 1"])
@pytest.mark.parametrize("known", [False, True])
def test_groups_are_found_without_reading_them(open_bench: Callable[..., Bench], held: str, *, known: bool) -> None:
    """Planned while the queue was two jobs, and not again since: statistics may be a minute late, or never come."""
    bench = open_bench(engine={"a": noop()})
    bench.enqueue(1)
    bench.enqueue(1, effort="high")
    query(bench.url, "alter table jobs set (autovacuum_enabled = off)")
    with bench.installation.database.autocommit() as connection:
        assert len(jobs.groups(connection, "main")[0]) == 2
        query(bench.url, COPIES.format(held=held, deep=DEEP))
        if known:
            query(bench.url, "analyze jobs")
        assert _read(connection) <= 50
        found = {group.unheld for group in jobs.groups(connection, "main")[0]}
    assert found == {bool(bench.value("select bool_or(held_at is null) from jobs"))}


def _read(connection: Connection) -> int:
    """How many rows of jobs the statement, as this session has planned it, really read."""
    execution = jobs.GROUPS._execution  # noqa: SLF001  what is sent once it is prepared
    plan = connection.exec_driver_sql(f"explain (analyze, format json) {execution}", {"pool": "main"})
    nodes = _nodes(plan.scalar_one()[0]["Plan"])
    scans = [node for node in nodes if node.get("Relation Name") == "jobs"]
    assert scans
    return sum((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in scans)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
