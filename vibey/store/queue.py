"""The queue: queued jobs as people look at them, page by page, in the order that routing takes them.

Routing's order is by where jobs stand (`vibey.store.ageing`) over all groups, but no index has it: keeping one would
cost every enqueue and every grant. The index on due jobs has it within each group, so a page is merged from the first
few of each. What a page costs is the number of groups times its length, however long the queue is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

COLUMNS = """j.id, j.standing, j.title, j.labels, p.name as project, j.pool, j.state, j.priority, j.attempt,
              j.max_attempts, j.engine,
              j.reason, j.not_before, j.held_at, j.created_at, j.ended_at, j.cancel_requested_at, j.deadline_at,
              j.requirement_key, j.effort_now, j.capabilities, j.excluded, j.avoided, j.handed_off, j.pinned,
              j.workspace,
              array(select pin from unnest(j.pinned) as pin
                    where not exists (select 1 from engines e where e.name = pin and e.configured)) as unknown_pins,
              j.affinity, j.session,
              g.reason as group_reason, g.since as group_since, clock_timestamp() as now,
              (select last_tick_at > j.due_at from installation where id = 1) as looked_at,
              extract(epoch from clock_timestamp() - j.created_at)::float as age_seconds"""
JOINS = """join projects p on p.id = j.project_id
       left join group_states g on g.pool = j.pool and g.requirement_key = j.requirement_key"""
BEFORE_ALL = -(2**63)
GROUPS = Statement(
    "queue-groups",
    "the largest groups of due jobs, each with its numbers and its first job; indexes on due and held jobs serve it",
    f"""with groups as materialized (
         select pool, requirement_key, count(*)::bigint as jobs, count(held_at)::bigint as held_jobs,
                count(*) over () as groups, min(held_at) as first_held_at
         from jobs where state = 'queued' and not_before is null
         group by pool, requirement_key order by count(*) desc, pool, requirement_key limit %(limit)s)
       select {COLUMNS}, n.jobs, n.held_jobs, n.groups, n.first_held_at
       from groups n
       cross join lateral (
         select * from jobs where pool = n.pool and requirement_key = n.requirement_key and state = 'queued'
           and not_before is null
         order by standing, id limit 1) j
       {JOINS}
       order by n.jobs desc, n.pool, n.requirement_key""",  # noqa: S608  both parts are constants
)
DUE = Statement(
    "queue-due",
    "a page of due jobs in queue order, after one of them: the first of each group, found by a skip scan, merged",
    f"""with recursive keys as (
         (select pool, requirement_key as key from jobs where state = 'queued' and not_before is null
          order by pool, requirement_key limit 1)
         union all
         select n.pool, n.key from keys cross join lateral (
           select pool, requirement_key as key from jobs
           where state = 'queued' and not_before is null and (pool, requirement_key) > (keys.pool, keys.key)
           order by pool, requirement_key limit 1) n),
       page as (
         select j.id, j.standing
         from keys
         left join group_states g on g.pool = keys.pool and g.requirement_key = keys.key
         cross join lateral (
           select project_id from jobs where pool = keys.pool and requirement_key = keys.key and state = 'queued'
             and not_before is null limit 1) owner
         cross join lateral (
           select id, standing from jobs
           where pool = keys.pool and requirement_key = keys.key and state = 'queued' and not_before is null
             and (standing, id) > (%(standing)s, %(after)s)
             and (%(held)s::bool is null or %(held)s = (held_at is not null and coalesce(g.reason = 'held', false)))
           order by standing, id limit %(limit)s) j
         where (%(project)s::int is null or owner.project_id = %(project)s)
           and (%(held)s::bool is distinct from true or g.reason = 'held')
         order by j.standing, j.id limit %(limit)s)
       select {COLUMNS}
       from page join jobs j on j.id = page.id
       {JOINS}
       order by j.standing, j.id""",  # noqa: S608  both parts are constants
)
BACKING_OFF = Statement(
    "queue-backing-off",
    "a page of jobs in backoff, the first to come back first, after one of them; the index on backoffs serves it",
    f"""select {COLUMNS}, (extract(epoch from j.not_before) * 1000000)::bigint as not_before_us
       from jobs j {JOINS}
       where j.state = 'queued' and j.not_before is not null
         and (j.not_before, j.id) > ('epoch'::timestamptz + %(us)s * interval '1 microsecond', %(after)s)
         and (%(project)s::int is null or j.project_id = %(project)s)
       order by j.not_before, j.id limit %(limit)s""",  # noqa: S608  both parts are constants
)
BACKOFFS = Statement(
    "queue-backoffs",
    "how many jobs are in backoff; the index on backoffs serves it",
    "select count(*)::bigint from jobs where state = 'queued' and not_before is not null",
)
POSITION = Statement(
    "queue-position",
    "how many due jobs of its pool come before a due job in queue order, counted up to a limit: those before it in "
    "each group, which a skip scan finds",
    """with recursive job as materialized (
         select id, pool, standing from jobs where id = %(id)s and state = 'queued' and not_before is null),
       keys as (
         (select j.requirement_key as key from jobs j, job
          where j.pool = job.pool and j.state = 'queued' and j.not_before is null
          order by j.requirement_key limit 1)
         union all
         select (select j.requirement_key from jobs j, job
                 where j.pool = job.pool and j.state = 'queued' and j.not_before is null
                   and j.requirement_key > keys.key
                 order by j.requirement_key limit 1)
         from keys where keys.key is not null)
       select (select count(*) from (
                 select 1
                 from keys
                 cross join lateral (
                   select 1 from jobs j
                   where j.pool = job.pool and j.requirement_key = keys.key and j.state = 'queued'
                     and j.not_before is null and (j.standing, j.id) < (job.standing, job.id)
                   limit %(limit)s) earlier
                 limit %(limit)s) counted)
       from job""",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A job's place in a list: its sort value (where it stands, or the microsecond its backoff ends) and its number."""

    value: int
    job_id: int


def groups(connection: Connection, limit: int) -> Sequence[Row[Any]]:
    """The largest groups: a row each, of its first job, with `jobs`, `held_jobs` and the number of all `groups`."""
    return GROUPS.all(connection, limit=limit)


def due(
    connection: Connection, *, project: int | None, held: bool | None, after: Place | None, limit: int
) -> Sequence[Row[Any]]:
    """A page of due jobs in queue order; only held ones, only others, or both (None)."""
    return DUE.all(
        connection,
        project=project,
        held=held,
        standing=after.value if after else BEFORE_ALL,
        after=after.job_id if after else 0,
        limit=limit,
    )


def backing_off(connection: Connection, *, project: int | None, after: Place | None, limit: int) -> Sequence[Row[Any]]:
    """A page of jobs in backoff, by its end."""
    return BACKING_OFF.all(
        connection,
        project=project,
        us=after.value if after else 0,
        after=after.job_id if after else 0,
        limit=limit,
    )


def backoffs(connection: Connection) -> int:
    """How many jobs are in backoff."""
    return int(BACKOFFS.scalar(connection))


def jobs_before(connection: Connection, job_id: int, limit: int) -> int | None:
    """How many due jobs of its pool come before this one, `limit` at most; None when it is not due itself."""
    found: int | None = POSITION.scalar(connection, id=job_id, limit=limit)
    return found
