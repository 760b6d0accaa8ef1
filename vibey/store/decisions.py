"""Decisions: keeping what passes decided and found, and reading it to replay and to explain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

RECORD = Statement(
    "pass-record",
    "keep the decisions of a pass that granted nothing: why some groups wait",
    """with pass as (
         insert into passes (pool, world, asked, classes)
         values (%(pool)s, %(world)s::jsonb, %(asked)s::jsonb, '[]') returning id)
       insert into decisions (pass_id, ordinal, requirement_key, asked, outcome, trace)
       select pass.id, r.ordinality - 1, r.key, r.asked, r.outcome, r.trace
       from pass, rows from (json_to_recordset(%(rows)s::json) as (key bigint, asked int, outcome text, trace json))
         with ordinality as r
       order by r.ordinality""",
)
BOUNDS = Statement(
    "pass-bounds",
    "the first and the last pass since an instant, or since so many seconds ago, or of all",
    """select (select id from passes
               where at >= coalesce(%(since)s::timestamptz, statement_timestamp() - %(seconds)s * interval '1 second',
                                    '-infinity')
               order by at limit 1) as first,
              (select id from passes order by id desc limit 1) as last""",
)
NEXT = Statement(
    "pass-next",
    "the next passes in order; the primary key serves it",
    "select id from passes where id between %(first)s and %(last)s order by id limit %(limit)s",
)
NEXT_OF_JOB = Statement(
    "pass-next-of-job",
    "the next passes that decided about a job, in order",
    """select distinct pass_id as id from decisions
       where job_id = %(job)s and pass_id between %(first)s and %(last)s order by 1 limit %(limit)s""",
)
PASSES = Statement(
    "pass-read",
    "some passes as they were kept",
    "select id, pool, at, world, asked, classes from passes where id = any(%(ids)s) order by id",
)
DECISIONS = Statement(
    "pass-decisions",
    "every decision of some passes in order",
    """select id, pass_id, job_id, requirement_key, run_id, attempt, asked, outcome, engine, tier, trace
       from decisions where pass_id = any(%(ids)s) order by pass_id, ordinal""",
)
OF_RUNS = Statement(
    "pass-of-runs",
    "the passes that granted some runs of a job",
    "select distinct pass_id from decisions where job_id = %(job)s and run_id = any(%(runs)s) order by 1",
)
LATEST_OF_GROUP = Statement(
    "decision-of-group",
    "the latest decision about a group, or the latest one until an instant",
    """select d.id, d.pass_id, d.outcome, d.trace, p.at from decisions d join passes p on p.id = d.pass_id
       where d.requirement_key = %(key)s and (%(until)s::timestamptz is null or p.at <= %(until)s)
       order by d.id desc limit 1""",
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The decisions of a pass of a pool, all as JSON: their rows in order, and apart what they have in common."""

    pool: str
    world: str
    asked: str
    classes: str
    rows: str


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass as it was kept, with its decisions in order."""

    row: Row[Any]
    decisions: Sequence[Row[Any]]


def record(connection: Connection, recorded: Recorded) -> None:
    """Keep a pass that granted nothing, and why groups wait after it."""
    RECORD.run(
        connection,
        pool=recorded.pool,
        world=recorded.world,
        asked=recorded.asked,
        rows=recorded.rows,
    )


def bounds(
    connection: Connection, since: datetime | None = None, seconds: float | None = None
) -> tuple[int, int] | None:
    """The ids of the first and the last pass since then; None when there is none."""
    row = BOUNDS.first(connection, since=since, seconds=seconds)
    return None if row is None or row.first is None else (row.first, row.last)


def page(connection: Connection, first: int, last: int, limit: int, job: int | None = None) -> list[Pass]:
    """The next passes from `first` on, in order; only those that decided about a job, when it is named."""
    within = {"first": first, "last": last, "limit": limit}
    rows = NEXT.all(connection, **within) if job is None else NEXT_OF_JOB.all(connection, job=job, **within)
    return read(connection, [row.id for row in rows])


def read(connection: Connection, passes: Sequence[int]) -> list[Pass]:
    """These passes as they were kept, in order of their ids."""
    wanted = list(passes)
    if not wanted:
        return []
    found: dict[int, list[Row[Any]]] = {each: [] for each in wanted}
    for row in DECISIONS.all(connection, ids=wanted):
        found[row.pass_id].append(row)
    return [Pass(row, found[row.id]) for row in PASSES.all(connection, ids=wanted)]
