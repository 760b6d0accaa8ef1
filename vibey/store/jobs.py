"""Jobs: enqueueing them, finding the heads of their groups, and moving those no run is behind."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from vibey.domain.effort import Effort
from vibey.domain.requirement import Requirement
from vibey.store.ageing import STANDING
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

INSERT = Statement(
    "job-insert",
    "insert a batch of jobs with their events; duplicates by idempotency key insert nothing, and jobs without a number "
    "take the next ones in the order of the batch",
    f"""with rows as materialized (
         select * from json_to_recordset(%(rows)s::json) as r(
           n int, id bigint, project_id int, pool text, priority int, effort smallint, effort_now smallint,
           capabilities text[], excluded text[], pinned text[], workspace text[], session text,
           requirement_key bigint, payload jsonb,
           idempotency_key text, max_attempts int, deadline_seconds double precision,
           delay_seconds double precision, traceparent text,
           task_id text, title text, labels jsonb)),
       made as (
         insert into jobs (id, project_id, pool, priority, standing, effort, effort_now, capabilities, excluded, pinned,
                           workspace, session, requirement_key, payload, idempotency_key, max_attempts, traceparent,
                           created_at, deadline_at, not_before, due_at, task_id, tell_after, title,
                           labels)
         select coalesce(id, nextval('jobs_id_seq')), project_id, pool, priority, {STANDING}, effort, effort_now,
                capabilities, excluded, pinned, workspace, session, requirement_key, payload, idempotency_key,
                max_attempts, traceparent, created_at,
                clock_timestamp() + deadline_seconds * interval '1 second',
                clock_timestamp() + delay_seconds * interval '1 second',
                clock_timestamp() + coalesce(delay_seconds, 0) * interval '1 second',
                task_id, case when task_id is not null then clock_timestamp() end,
                coalesce(title, ''), coalesce(labels, '{{}}')
         from (select rows.*, age_ms, coalesce(%(at)s::timestamptz, clock_timestamp()) as created_at
               from rows, installation order by n) r
         on conflict (project_id, idempotency_key) where idempotency_key is not null do nothing
         returning id, project_id, idempotency_key, labels),
       noted as (
         insert into ledger (kind, project_id, job_id) select 'JobEnqueued', project_id, id from made),
       labelled as (
         insert into job_labels (key, value, job_id)
         select l.key, l.value, made.id from made cross join lateral jsonb_each_text(made.labels) l)
       select id, project_id, idempotency_key from made order by id""",  # noqa: S608  (made of constants)
)
NUMBERS = Statement(
    "job-numbers",
    "take the numbers of the next jobs, in order, and the instant at which they are enqueued",
    """select nextval('jobs_id_seq') as id, at
       from (select clock_timestamp() as at) now, generate_series(1, %(count)s)""",
)
SAVE = Statement("job-keys-save", "mark where a batch's inserts begin", "savepoint vibey_keys")
KEEP = Statement("job-keys-keep", "keep a batch's inserts", "release savepoint vibey_keys")
UNDO = Statement(
    "job-keys-undo", "undo a batch's inserts, and give their locks back", "rollback to savepoint vibey_keys"
)
BY_KEYS = Statement(
    "job-by-keys",
    "the jobs that already carry these idempotency keys",
    """select id, project_id, idempotency_key from jobs
       where project_id = any(%(projects)s) and idempotency_key = any(%(keys)s)""",
)
# Whether some were never held is read off an end of an index. A plan made while the table was small, and kept, would
# hash the whole queue for an `exists`.
GROUPS = Statement(
    "job-groups",
    "one head per group of due jobs in a pool: a skip scan, so its cost is the number of groups",
    """with recursive keys as (
         (select requirement_key as key from jobs
          where pool = %(pool)s and state = 'queued' and not_before is null
          order by requirement_key limit 1)
         union all
         select (select j.requirement_key from jobs j
                 where j.pool = %(pool)s and j.state = 'queued' and j.not_before is null
                   and j.requirement_key > keys.key
                 order by j.requirement_key limit 1)
         from keys where keys.key is not null)
       select head.*, p.name as project, g.reason as group_reason, n.number as notes, n.claimed as notes_claimed,
              (select held_at is null from jobs where pool = %(pool)s and state = 'queued' and not_before is null
               and requirement_key = keys.key order by held_at desc limit 1) as unheld,
              (select (extract(epoch from statement_timestamp() - min(held_at)) * 1000)::bigint from jobs
               where pool = %(pool)s and state = 'queued' and not_before is null
                 and requirement_key = keys.key) as held_ms
       from keys
       cross join lateral (
         select requirement_key, project_id, pool, effort_now, capabilities, excluded, avoided, handed_off, pinned,
                workspace, standing
         from jobs where pool = %(pool)s and state = 'queued' and not_before is null
           and requirement_key = keys.key
         order by standing, id limit 1) head
       join projects p on p.id = head.project_id
       left join group_states g on g.pool = %(pool)s and g.requirement_key = head.requirement_key
       left join notings n on n.pool = %(pool)s""",
    prepared=True,
)
HEADS = Statement(
    "job-heads",
    "lock the first due jobs of some groups, as many of each as could be taken, leaving out any that someone holds; "
    "of a group with a patience only jobs held at least that long",
    """with heads as materialized (
         select j.id
         from unnest(%(keys)s::bigint[], %(limits)s::int[], %(patience_ms)s::bigint[]) as g(key, n, patience)
         cross join lateral (
           (select id, standing from jobs
            where pool = %(pool)s and state = 'queued' and not_before is null and requirement_key = g.key
              and g.patience is null and (deadline_at is null or deadline_at > statement_timestamp())
            order by standing, id limit g.n)
           union all
           (select id, standing
            from (select id, standing from jobs
                  where g.patience is not null and pool = %(pool)s and state = 'queued' and not_before is null
                    and requirement_key = g.key
                    and held_at <= statement_timestamp() - g.patience * interval '1 millisecond'
                    and (deadline_at is null or deadline_at > statement_timestamp())
                  offset 0) ripe
            order by standing, id limit g.n)) j
         order by j.standing, j.id limit %(limit)s),
       locked as materialized (
         select id, requirement_key, attempt, standing, affinity, session, traceparent, held_at from jobs
         where id = any(array(select id from heads)) and state = 'queued' and not_before is null
           and requirement_key = any(%(keys)s::bigint[])
         order by id for no key update skip locked)
       select l.id, l.requirement_key, l.attempt, l.affinity, l.session, l.standing, l.traceparent,
              coalesce((extract(epoch from clock_timestamp() - l.held_at) * 1000)::bigint, 0) as waited_ms,
              (select count(*) from heads) as asked
       from locked l
       order by l.standing, l.id""",
    prepared=True,
)
HOLD = Statement(
    "job-hold",
    "note the first hold of some groups' jobs that had none in this attempt, with its event",
    """with first as materialized (
         select j.id, j.project_id, j.attempt, g.grounds
         from json_to_recordset(%(rows)s::json) as g(key bigint, grounds jsonb)
         cross join lateral (
           select id, project_id, attempt from jobs
           where pool = %(pool)s and requirement_key = g.key and state = 'queued' and not_before is null
             and held_at is null
           order by id limit %(limit)s for no key update skip locked) j
         limit %(limit)s),
       held as (
         update jobs j set held_at = clock_timestamp() from first where j.id = first.id
         returning j.id)
       insert into ledger (kind, project_id, job_id, data)
       select 'EngineSlotWaitStarted', first.project_id, first.id,
              %(common)s::jsonb || first.grounds || jsonb_build_object('attempt', first.attempt + 1)
       from first join held using (id) order by first.id returning job_id""",
)
LOCK = Statement(
    "job-lock",
    "lock one job and read what cancelling, retrying or settling it needs",
    """select j.id, j.project_id, p.name as project, j.pool, j.state, j.attempt, j.max_attempts, j.refunds, j.handoffs,
              j.effort, j.effort_now, j.avoided, j.handed_off, j.run_id, j.requirement_key, j.cancel_requested_at,
              j.capabilities, j.excluded, j.pinned, j.workspace, j.payload -> 'repo' as repo, j.engine
       from jobs j join projects p on p.id = j.project_id where j.id = %(id)s for no key update of j""",
)
PROMOTE = Statement(
    "job-promote",
    "make jobs due whose backoff is over, skipping any that are held",
    """with due as materialized (
         select id from jobs where state = 'queued' and not_before <= statement_timestamp()
         order by not_before limit %(limit)s for no key update skip locked)
       update jobs j set not_before = null from due where j.id = due.id returning j.pool""",
)
POOLS_DUE = Statement(
    "job-pools-due",
    "the pools that have a due job",
    """with recursive pools as (
         (select pool from jobs where state = 'queued' and not_before is null order by pool limit 1)
         union all
         select (select j.pool from jobs j where j.state = 'queued' and j.not_before is null
                   and j.pool > pools.pool order by j.pool limit 1)
         from pools where pools.pool is not null)
       select pool from pools where pool is not null""",
)
PAST_DEADLINE = Statement(
    "job-past-deadline",
    "fail queued jobs whose deadline has passed",
    """with late as materialized (
         select id from jobs where deadline_at <= statement_timestamp() and ended_at is null and state = 'queued'
         order by deadline_at limit 1000 for no key update skip locked),
       moved as (
         update jobs j set state = 'failed', ended_at = clock_timestamp(), not_before = null,
                reason = 'the deadline passed before an engine was free'
         from late where j.id = late.id returning j.id, j.project_id)
       insert into ledger (kind, project_id, job_id, data)
       select 'JobFailed', project_id, id, '{"reason": "deadline"}' from moved returning job_id""",
)
MATCHING = Statement(
    "job-matching",
    "how many unended jobs fit a filter, by state, and the last of them; the partial index on open jobs serves it",
    """select state, count(*)::bigint as n, max(id) as last from jobs
       where ended_at is null and cancel_requested_at is null and state = any(%(states)s)
         and (%(project)s::int is null or project_id = %(project)s) and labels @> %(labels)s::jsonb
       group by state""",
)
FIRST_MATCHING = Statement(
    "job-first-matching",
    "the first unended jobs that fit a filter, to be shown before they are cancelled",
    """select j.id, p.name as project, j.state, j.engine, j.title
       from jobs j join projects p on p.id = j.project_id
       where j.ended_at is null and j.cancel_requested_at is null and j.state = any(%(states)s)
         and (%(project)s::int is null or j.project_id = %(project)s) and j.labels @> %(labels)s::jsonb
       order by j.id limit %(limit)s""",
)
LOCK_MATCHING = Statement(
    "job-lock-matching",
    "lock a page of unended jobs that fit a filter, in their order, and read what cancelling them needs",
    """select j.id, j.project_id, j.pool, j.state, j.attempt, j.max_attempts, j.effort, j.run_id, j.requirement_key,
              j.engine
       from jobs j
       where j.ended_at is null and j.cancel_requested_at is null and j.state = any(%(states)s)
         and (%(project)s::int is null or j.project_id = %(project)s) and j.labels @> %(labels)s::jsonb
         and j.id > %(after)s and j.id <= %(last)s
       order by j.id limit %(limit)s for no key update of j""",
)
NOTE_CANCEL = Statement(
    "job-note-cancel",
    "one event for each locked job that is to be cancelled, with its state at that moment",
    """insert into ledger (kind, project_id, job_id, data)
       select 'CancelRequested', project_id, id, jsonb_build_object('state', state, 'by', %(by)s::text)
       from jobs where id = any(%(ids)s) order by id""",
)
CANCEL_QUEUED = Statement(
    "job-cancel-queued",
    "end locked, queued jobs as cancelled, each with its event",
    """with ended as (
         update jobs set state = 'cancelled', ended_at = clock_timestamp(), not_before = null,
                cancel_requested_at = clock_timestamp(), reason = 'cancelled'
         where id = any(%(ids)s) and state = 'queued' returning id, project_id)
       insert into ledger (kind, project_id, job_id) select 'JobCancelled', project_id, id from ended order by id""",
)
REQUEST_CANCEL = Statement(
    "job-request-cancel",
    "ask the holders of locked, running jobs to stop them",
    """update jobs set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
       where id = any(%(ids)s) and state in ('granted', 'running')""",
)
RETRY = Statement(
    "job-retry",
    "queue a locked, ended job again with fresh attempts, standing where the ageing now in force has it",
    f"""update jobs set state = 'queued', ended_at = null, attempt = 0, refunds = 0, handoffs = 0,
              avoided = '{{}}', handed_off = '{{}}', workspace = %(workspace)s::text[], affinity = null,
              effort_now = %(effort)s, requirement_key = %(key)s,
              standing = {STANDING},
              not_before = null, due_at = clock_timestamp(), held_at = null, deadline_at = null,
              cancel_requested_at = null, result = null,
              tell_after = case when task_id is not null then clock_timestamp() end,
              reason = 'retried by hand'
       from (select age_ms from installation) i
       where id = %(id)s and state in ('failed', 'cancelled')""",  # noqa: S608  (made of constants)
)

WORKSPACES = Statement(
    "job-workspaces",
    "what open jobs that name a repository ask, each once with each repository; the index on such jobs serves it",
    """select j.requirement_key as key, p.name as project, j.pool, j.effort_now, j.capabilities, j.excluded, j.avoided,
              j.handed_off, j.pinned, j.workspace, j.payload -> 'repo' as repo
       from jobs j join projects p on p.id = j.project_id
       where j.workspace is not null and j.ended_at is null
       group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11""",
)
SET_WORKSPACES = Statement(
    "job-set-workspaces",
    "write which engines can work in the repositories that open jobs name, and so move the jobs to other groups",
    """with changed as materialized (
         select * from json_to_recordset(%(rows)s::json)
           as r(key bigint, repo jsonb, workspace text[], new_key bigint)),
       held as materialized (
         select j.id, changed.workspace, changed.new_key
         from jobs j
         join changed on changed.key = j.requirement_key and coalesce(changed.repo, 'null') = j.payload -> 'repo'
         where j.workspace is not null and j.ended_at is null
         order by j.id for no key update of j)
       update jobs j set workspace = held.workspace, requirement_key = held.new_key
       from held where held.id = j.id""",
)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job about to be enqueued, validated by the service. Deadline and delay count from the insert."""

    project_id: int
    requirement: Requirement
    asked: Effort
    payload: str
    priority: int
    idempotency_key: str | None
    max_attempts: int
    deadline_seconds: float | None
    delay_seconds: float | None
    session: str | None
    traceparent: str | None
    task_id: str | None = None
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def row(self, place: int, number: int | None) -> dict[str, Any]:
        """The job as one JSON row of the batch; `payload` stays text inside it until the database parses it."""
        requirement = self.requirement
        return {
            "n": place,
            "id": number,
            "project_id": self.project_id,
            "pool": requirement.pool,
            "priority": self.priority,
            "effort": int(self.asked),
            "effort_now": int(requirement.effort),
            "capabilities": sorted(requirement.capabilities),
            "excluded": sorted(requirement.excluded),
            "pinned": sorted(requirement.pinned),
            "workspace": None if requirement.workspace is None else sorted(requirement.workspace),
            "session": self.session,
            "requirement_key": requirement.key,
            "idempotency_key": self.idempotency_key,
            "max_attempts": self.max_attempts,
            "deadline_seconds": self.deadline_seconds,
            "delay_seconds": self.delay_seconds,
            "traceparent": self.traceparent,
            "task_id": self.task_id,
            "title": self.title,
            **({"labels": dict(self.labels)} if self.labels else {}),
        }


@dataclass(frozen=True, slots=True)
class Group:
    """The due jobs of one requirement, and where the first of them stands.

    `reason` is why they were last found waiting, None when they were not.
    `unheld` says that some were never held in this attempt, `held_ms` for how long the longest was, None for none.
    """

    key: int
    requirement: Requirement
    standing: int
    reason: str | None
    unheld: bool
    held_ms: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many jobs of a group could be granted; with a patience, only jobs held at least so many milliseconds."""

    key: int
    count: int
    patience_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """A due job near the front of its group, locked. `affinity` is the engine of its previous attempt, if it counts.

    `standing` is its place in the queue: see `vibey.domain.turn`. `traceparent` is the span that enqueued it.
    """

    job_id: int
    key: int
    attempt: int
    waited_ms: int
    affinity: str | None
    session: str | None
    standing: int
    traceparent: str | None


def insert(
    connection: Connection, batch: Sequence[NewJob], numbers: Sequence[int | None], at: datetime | None
) -> Sequence[Row[Any]]:
    """Insert a batch and return the rows made (`id`, `project_id`, `idempotency_key`), in the order of their numbers.

    `numbers` are the jobs' own, None where the database gives the next one; `at` is when they are enqueued, or None.
    """
    rows = ",".join(
        f'{json.dumps(job.row(place, number))[:-1]},"payload":{job.payload}}}'
        for place, (job, number) in enumerate(zip(batch, numbers, strict=True))
    )
    return INSERT.all(connection, rows=f"[{rows}]", at=at)


def with_keys(connection: Connection, keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """The job ids that already carry these (project, idempotency key) pairs."""
    found = BY_KEYS.all(
        connection, projects=list({project for project, _ in keys}), keys=list({key for _, key in keys})
    )
    return {(row.project_id, row.idempotency_key): row.id for row in found}


def requirement_of(row: Row[Any]) -> Requirement:
    """What the next attempt of a job asks, as all of its group do; `row` has the job's columns, and `project`."""
    return Requirement(
        pool=row.pool,
        project=row.project,
        effort=Effort(row.effort_now),
        capabilities=frozenset(row.capabilities),
        excluded=frozenset(row.excluded),
        avoided=frozenset(row.avoided),
        handed_off=frozenset(row.handed_off),
        pinned=frozenset(row.pinned),
        workspace=None if row.workspace is None else frozenset(row.workspace),
    )


class NotesState(NamedTuple):
    """The number of a pool's notes, and whether they are claimed: see `vibey.store.notes`."""

    number: int
    is_claimed: bool


def groups(connection: Connection, pool: str) -> tuple[list[Group], NotesState]:
    """Every group of due jobs of a pool, with its requirement; and how the pool's notes stood at that instant."""
    rows = GROUPS.all(connection, pool=pool)
    notes = NotesState(rows[0].notes or 0, bool(rows[0].notes_claimed)) if rows else NotesState(0, is_claimed=False)
    found = [
        Group(
            row.requirement_key,
            requirement_of(row),
            row.standing,
            row.group_reason,
            row.unheld,
            row.held_ms,
        )
        for row in rows
    ]
    return found, notes


def heads(connection: Connection, pool: str, wanted: Sequence[Wanted], limit: int) -> tuple[list[Head], int | None]:
    """Lock the first due jobs of each group, as many as wanted, merged in queue order, at most `limit`.

    Returns those that nobody holds, and how many there were, None when all of them are held.
    """
    found = HEADS.all(
        connection,
        pool=pool,
        keys=[each.key for each in wanted],
        limits=[each.count for each in wanted],
        patience_ms=[each.patience_ms for each in wanted],
        limit=limit,
    )
    free = [
        Head(job_id, key, attempt, waited_ms, affinity, session, standing, traceparent)
        for job_id, key, attempt, affinity, session, standing, traceparent, waited_ms, _ in map(tuple, found)
    ]
    return free, found[0].asked if found else None


def hold(
    connection: Connection, pool: str, grounds: Mapping[int, dict[str, Any]], common: dict[str, Any], limit: int
) -> int:
    """Note first holds of at most so many jobs in these groups; returns how many were noted.

    The events have the grounds of their group, and what is common to all groups.
    """
    if not grounds:
        return 0
    rows = json.dumps([{"key": key, "grounds": value} for key, value in grounds.items()])
    return len(HOLD.all(connection, pool=pool, rows=rows, common=json.dumps(common), limit=limit))
