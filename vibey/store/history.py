"""History: what happened on an installation, as a simulation wants it: arrivals, what their runs took, and mishaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

# A week begins on a Monday, as a simulation does; so what was Tuesday stays Tuesday.
ORIGIN = Statement(
    "history-origin",
    "the UTC Monday a history begins on, and the instants it covers",
    """select date_trunc('week', clock_timestamp() at time zone 'UTC' - %(seconds)s * interval '1 second')
                at time zone 'UTC' as origin,
              clock_timestamp() - %(seconds)s * interval '1 second' as since, clock_timestamp() as now""",
)
# The primary key serves: job numbers grow with their instants, but for what transactions overlapped.
ARRIVALS = Statement(
    "history-arrivals",
    "jobs enqueued since an instant, with the seconds their successful run took on its engine, in order",
    """select j.id, j.pool, p.name as project, j.priority, j.effort, j.capabilities, j.excluded, j.pinned,
              j.workspace is not null as in_workspace, j.payload -> 'repo' as repo, j.session, j.state,
              (extract(epoch from j.created_at - %(origin)s) * 1000)::bigint as at_ms, r.engine,
              (extract(epoch from r.ended_at - r.started_at) * 1000)::bigint as running_ms
       from jobs j join projects p on p.id = j.project_id
       left join lateral (select engine, started_at, ended_at from runs
                          where job_id = j.id and state = 'succeeded' limit 1) r on true
       where j.created_at >= %(since)s and j.created_at <= %(now)s order by j.created_at, j.id""",
)
MISHAPS = Statement(
    "history-mishaps",
    "what happened to engines since an instant, in order: pauses and circuits as they stood then, and their changes",
    """with told as materialized (
         select l.id, l.at, l.kind, l.engine, e.account, l.data from ledger l join engines e on e.name = l.engine
         where l.at <= %(now)s and (l.kind = 'CircuitChanged' or l.kind = 'EngineChanged' and l.data ? 'paused')),
       before as (
         select distinct on (kind, case kind when 'CircuitChanged' then account else engine end) *
         from told where at < %(since)s
         order by kind, case kind when 'CircuitChanged' then account else engine end, id desc)
       select kind, engine, account, data, (extract(epoch from %(since)s - %(origin)s) * 1000)::bigint as at_ms,
              (extract(epoch from %(since)s::timestamptz) * 1000)::bigint as epoch_ms, id from before
       union all
       select kind, engine, account, data, (extract(epoch from at - %(origin)s) * 1000)::bigint,
              (extract(epoch from at) * 1000)::bigint, id from told where at >= %(since)s
       order by id""",
)
OUTCOMES = Statement(
    "history-outcomes",
    "first waits of jobs enqueued since an instant, and their paid runs, as they really were",
    """select j.id, j.state, (extract(epoch from r.granted_at - r.due_at) * 1000)::bigint as waited_ms, r.why, r.tier
       from jobs j
       left join lateral (select runs.granted_at, runs.due_at, runs.why, e.tier
                          from runs join engines e on e.name = runs.engine
                          where runs.job_id = j.id order by runs.id) r on true
       where j.pool = 'main' and j.created_at >= %(since)s and j.created_at <= %(now)s order by j.id""",
)


def read(connection: Connection, seconds: float) -> tuple[list[Row[Any]], list[Row[Any]], list[Row[Any]]]:
    """Arrivals, mishaps and outcomes of the last so many seconds; instants count from the Monday the span begins in."""
    span = ORIGIN.all(connection, seconds=seconds)[0]
    between = {"since": span.since, "now": span.now}
    return (
        list(ARRIVALS.all(connection, origin=span.origin, **between)),
        list(MISHAPS.all(connection, origin=span.origin, **between)),
        list(OUTCOMES.all(connection, **between)),
    )
