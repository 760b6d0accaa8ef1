"""Summary: how a known set of jobs is getting on, and how the engines share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

ENGINES = Statement(
    "summary-engines",
    "configured engines with their counters, runs held now, and how many of some jobs each brought to success",
    """select e.name, e.tier, e.weight, e.slots, e.selected_count, e.expected,
              (select count(*) from runs r where r.engine = e.name and r.ended_at is null) as in_use,
              (select count(*) from runs r where r.job_id = any(%(jobs)s::bigint[]) and r.engine = e.name
                 and r.state = 'succeeded') as succeeded
       from engines e where e.configured order by e.ordinal, e.name""",
)
JOBS = Statement(
    "summary-jobs",
    "some jobs: state, runs so far, and seconds from enqueueing to the first start",
    """select j.id, j.state, j.attempt, j.reason, j.capabilities, count(r.id) as runs,
              extract(epoch from min(r.started_at) - j.created_at)::float as waited
       from jobs j left join runs r on r.job_id = j.id
       where j.id = any(%(jobs)s::bigint[]) group by j.id order by j.id""",
)
RUNS = Statement(
    "summary-runs",
    "the runs of some jobs, with the seconds of the database's clock between which each held its slot",
    """select job_id, engine, state, why, detail, extract(epoch from granted_at)::float as begun,
              extract(epoch from coalesce(ended_at, clock_timestamp()))::float as ended
       from runs where job_id = any(%(jobs)s::bigint[]) order by id""",
)
HOLDS = Statement(
    "summary-holds",
    "some jobs' first holds, one an attempt, and how many of the jobs had any",
    """select count(*)::bigint as holds, count(distinct job_id)::bigint as jobs from ledger
       where job_id = any(%(jobs)s::bigint[]) and kind = 'EngineSlotWaitStarted'""",
)
OPEN = Statement(
    "summary-open", "every job that has not ended", "select id from jobs where ended_at is null order by id"
)


def read(
    connection: Connection, jobs: Sequence[int]
) -> tuple[list[Row[Any]], list[Row[Any]], list[Row[Any]], Row[Any]]:
    """Engines, jobs, runs and holds, in this order, as the statements above describe them."""
    numbers = list(jobs)
    return (
        list(ENGINES.all(connection, jobs=numbers)),
        list(JOBS.all(connection, jobs=numbers)),
        list(RUNS.all(connection, jobs=numbers)),
        HOLDS.all(connection, jobs=numbers)[0],
    )


def open_jobs(connection: Connection) -> list[int]:
    """The numbers of all jobs that have not ended."""
    return [row.id for row in OPEN.all(connection)]
