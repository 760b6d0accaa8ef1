"""Runs: granting, starting, renewing and ending them. A run holds its slot until its row is ended, and no longer.

Every write of a run carries its token and asks for an unended row, so a holder that lost its lease, or a
second delivery of the same message, changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.domain.offer import Why
from vibey.domain.settlement import Attempted
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from vibey.domain.outcome import Success
    from vibey.domain.selection import SessionKey
    from vibey.store.decisions import Recorded

# A list of rows is joined to a table by `= any(array(...))` as well: the planner takes every such list for a hundred
# rows, for which it would rather read a small table whole, and that of a prepared statement after it has grown.

GRANT = Statement(
    "run-grant",
    "carry out a pass: runs, decisions, events, job states and the rotation, all at once; jobs and engines are locked",
    """with given as materialized (
         select * from rows from (json_to_recordset(%(rows)s::json) as (
           job_id bigint, key bigint, engine text, attempt int, asked int, outcome text, trace json, counted boolean,
           notes json, traceparent text)) with ordinality),
       rows as materialized (
         select r.*, r.ordinality - 1 as n, e.account, e.tier
         from given r left join engines e on e.name = r.engine and e.name = any(array(select engine from given))),
       pass as (
         insert into passes (pool, world, asked, classes)
         values (%(pool)s, %(world)s::jsonb, %(asked)s::jsonb, %(classes)s::jsonb) returning id),
       due as materialized (
         select id, due_at from jobs where id = any(array(select job_id from rows))),
       granted as (
         insert into runs (job_id, engine, account, attempt, why, counted, due_at, traceparent, lease_clock_ms,
                           lease_expires_at)
         select r.job_id, r.engine, r.account, r.attempt, r.outcome, coalesce(r.counted, false), due.due_at,
                r.traceparent, (select lease_clock_ms from installation where id = 1),
                clock_timestamp() + %(lease_ms)s * interval '1 millisecond'
         from rows r join due on due.id = r.job_id order by r.n
         returning id, token, job_id, engine),
       moved as (
         update jobs j set state = 'granted', run_id = g.id, attempt = r.attempt, engine = r.engine, reason = ''
         from granted g join rows r using (job_id)
         where j.id = g.job_id and j.id = any(array(select job_id from granted))
         returning j.id, j.project_id),
       decided as (
         insert into decisions (pass_id, ordinal, job_id, requirement_key, run_id, attempt, asked, outcome, engine,
                                tier, trace)
         select pass.id, r.n, r.job_id, r.key, g.id, r.attempt, r.asked, r.outcome, r.engine, r.tier, r.trace
         from pass, rows r left join granted g using (job_id)
         where g.id is not null or r.job_id is null order by r.n),
       noted as (
         insert into ledger (kind, project_id, job_id, run_id, engine, data)
         select 'RunGranted', m.project_id, r.job_id, g.id, r.engine,
                jsonb_build_object('why', r.outcome, 'attempt', r.attempt)
         from rows r join granted g using (job_id) join moved m on m.id = r.job_id order by r.n),
       excepted as (
         insert into ledger (at, kind, project_id, job_id, run_id, engine, utc_day, data)
         select case when (note ->> 'unit')::boolean then %(at)s::timestamptz else clock_timestamp() end,
                note ->> 'kind', m.project_id, r.job_id, g.id, r.engine,
                case when (note ->> 'unit')::boolean then (%(at)s::timestamptz at time zone 'utc')::date end,
                (note -> 'data')::jsonb
         from rows r join granted g using (job_id) join moved m on m.id = r.job_id
         cross join lateral json_array_elements(r.notes) as note
         where r.notes is not null order by r.n),
       rotated as (
         insert into credits (pool, member, credit)
         select pool, member, credit
         from json_to_recordset(%(credits)s::json) as c(pool text, member text, credit bigint)
         on conflict (pool, member) do update set credit = excluded.credit),
       counted as (
         update engines e set selected_count = e.selected_count + c.picks, expected = e.expected + c.expected,
                overflow_count = e.overflow_count + c.overflows, fallback_count = e.fallback_count + c.fallbacks,
                selected_at = case when c.picks > 0 then clock_timestamp() else e.selected_at end
         from json_to_recordset(%(counts)s::json)
           as c(name text, picks bigint, overflows bigint, fallbacks bigint, expected numeric)
         where e.name = c.name and e.configured),
       remembered as (
         insert into sessions (session, pool, class, member, expires_at)
         select session, pool, class, member, clock_timestamp() + %(session_s)s * interval '1 second'
         from json_to_recordset(%(sessions)s::json) as s(session text, pool text, class text, member text)
         on conflict (session, pool, class) do update set member = excluded.member, expires_at = excluded.expires_at)
       select g.id, g.token, g.job_id, g.engine from granted g order by g.id""",
    prepared=True,
)
START = Statement(
    "run-start",
    "granted to running, by token; asking again with the same holder gives the same answer",
    """with job as materialized (
         select j.* from jobs j where j.id = (select job_id from runs where id = %(run)s and token = %(token)s)
         for no key update),
       started as (
         update runs r set state = 'running', holder = %(holder)s, host = %(host)s, pid = %(pid)s,
                started_at = coalesce(r.started_at, greatest(clock_timestamp(), r.granted_at)),
                renewed_at = clock_timestamp(),
                lease_clock_ms = (select lease_clock_ms from installation where id = 1),
                lease_expires_at = clock_timestamp() + %(lease_ms)s * interval '1 millisecond'
         from job where r.id = %(run)s and r.token = %(token)s and r.ended_at is null and r.job_id = job.id
           and (r.state = 'granted' or r.holder = %(holder)s) and job.cancel_requested_at is null
         returning r.id, r.job_id, r.engine, r.account, r.attempt, r.traceparent),
       moved as (
         update jobs j set state = 'running' from started where j.id = started.job_id and j.state = 'granted'
         returning j.id, j.project_id),
       noted as (
         insert into ledger (kind, project_id, job_id, run_id, engine)
         select 'RunStarted', moved.project_id, moved.id, started.id, started.engine from moved, started)
       select started.*, job.project_id, p.name as project, job.pool, job.payload::text as payload, job.title,
              job.task_id, job.session, job.effort, job.effort_now, job.capabilities, job.excluded, job.pinned,
              job.workspace, job.max_attempts, job.refunds, job.handoffs, job.avoided, job.handed_off, job.affinity,
              extract(epoch from job.deadline_at - clock_timestamp())::float as deadline_seconds,
              (select true from runs lost where lost.job_id = job.id and lost.state = 'lost' limit 1) is not null
                as was_lost,
              (select generation from installation) as generation
       from started, job join projects p on p.id = job.project_id""",
    prepared=True,
)
RENEW = Statement(
    "run-renew",
    "push an unended run's lease out again and learn whether its job is to be cancelled",
    """update runs set renewed_at = clock_timestamp(), output_tail = coalesce(%(tail)s, output_tail),
              lease_clock_ms = (select lease_clock_ms from installation where id = 1),
              lease_expires_at = clock_timestamp() + %(lease_ms)s * interval '1 millisecond'
       where id = %(run)s and token = %(token)s and ended_at is null and state = 'running'
       returning (select cancel_requested_at is not null from jobs where id = job_id) as cancel""",
)
END = Statement(
    "run-end",
    "end runs by token and move their jobs; a stale token ends nothing",
    """with rows as materialized (
         select * from json_to_recordset(%(rows)s::json) as r(
           run_id bigint, token bigint, run_state text, failure_class text, detail text, cost_usd numeric,
           tokens_in bigint, tokens_out bigint, output_tail text, job_state text, attempts int, refunds int,
           handoffs int, avoided text[], handed_off text[], affinity text, effort_now smallint, key bigint,
           delay_ms bigint, reason text, result jsonb, event text, release boolean, told boolean)),
       held as materialized (
         select id from jobs
         where id = any(array(select job_id from runs where id = any(array(select run_id from rows))))
         order by id for no key update),
       ended as (
         update runs r set state = rows.run_state,
                ended_at = greatest(clock_timestamp(), r.granted_at, r.started_at, r.renewed_at),
                failure_class = rows.failure_class, detail = coalesce(rows.detail, ''), cost_usd = rows.cost_usd,
                tokens_in = rows.tokens_in, tokens_out = rows.tokens_out,
                output_tail = coalesce(rows.output_tail, r.output_tail)
         from rows, held where r.id = rows.run_id and r.token = rows.token and r.ended_at is null
           and held.id = r.job_id and r.id = any(array(select run_id from rows))
         returning r.id, r.job_id, r.engine, r.state, r.attempt, r.counted, r.cost_usd),
       moved as (
         update jobs j set state = rows.job_state, run_id = null, attempt = rows.attempts,
                refunds = rows.refunds, handoffs = rows.handoffs, avoided = coalesce(rows.avoided, '{}'),
                handed_off = coalesce(rows.handed_off, '{}'), affinity = rows.affinity,
                effort_now = rows.effort_now, requirement_key = rows.key, reason = rows.reason, result = rows.result,
                not_before = case when rows.job_state = 'queued' and rows.delay_ms > 0
                             then clock_timestamp() + rows.delay_ms * interval '1 millisecond' end,
                due_at = case when rows.attempts < ended.attempt then j.due_at
                         else clock_timestamp() + rows.delay_ms * interval '1 millisecond' end,
                held_at = case when rows.attempts < ended.attempt then j.held_at end,
                ended_at = case when rows.job_state <> 'queued' then clock_timestamp() end,
                tell_after = case when not rows.told then j.tell_after end
         from ended join rows on rows.run_id = ended.id
         where j.id = ended.job_id and j.run_id = ended.id and j.id = any(array(select job_id from ended))
         returning j.id, j.project_id, j.pool),
       noted as (
         insert into ledger (kind, project_id, job_id, run_id, engine, data)
         select rows.event, moved.project_id, moved.id, ended.id, ended.engine,
                jsonb_strip_nulls(jsonb_build_object('run', ended.state, 'reason', nullif(rows.reason, ''),
                  'delay_ms', nullif(rows.delay_ms, 0), 'cost_usd', ended.cost_usd,
                  'cap_unit', case when ended.counted then case when rows.release then 'released' else 'kept' end end))
         from moved join ended on ended.job_id = moved.id join rows on rows.run_id = ended.id),
       released as (
         insert into ledger (kind, project_id, job_id, run_id, engine, utc_day, data)
         select 'EngineOverflowReleased', unit.project_id, unit.job_id, unit.run_id, unit.engine, unit.utc_day,
                jsonb_build_object('reason', rows.reason)
         from ended join rows on rows.run_id = ended.id
         join ledger unit on unit.run_id = ended.id and unit.utc_day is not null
         where rows.release and ended.counted and unit.kind <> 'EngineOverflowReleased'
         on conflict do nothing)
       select ended.id, moved.id as job_id, moved.pool, ended.engine
       from ended join moved on moved.id = ended.job_id""",
)
FINISH = Statement(
    "run-finish",
    "what END does for the one run that succeeded, on an account with nothing against it, by key and without JSON rows",
    """with held as materialized (
         select id from jobs where id = %(job)s and exists (
           select 1 from accounts where name = %(account)s and open_reason is null and failure = 0
             and failures_in_a_row = 0 and ramp is null)
         for no key update),
       ended as (
         update runs r set state = 'succeeded',
                ended_at = greatest(clock_timestamp(), r.granted_at, r.started_at, r.renewed_at),
                cost_usd = %(cost_usd)s, tokens_in = %(tokens_in)s, tokens_out = %(tokens_out)s,
                output_tail = coalesce(%(output_tail)s, r.output_tail)
         from held where r.id = %(run)s and r.token = %(token)s and r.ended_at is null and r.job_id = held.id
         returning r.id, r.job_id, r.engine, r.cost_usd),
       moved as (
         update jobs j set state = 'succeeded', run_id = null, reason = 'succeeded', result = %(result)s::jsonb,
                ended_at = clock_timestamp()
         from ended where j.id = %(job)s and j.id = ended.job_id and j.run_id = ended.id
         returning j.id, j.project_id)
       insert into ledger (kind, project_id, job_id, run_id, engine, data)
       select 'JobSucceeded', moved.project_id, moved.id, ended.id, ended.engine,
              jsonb_strip_nulls(jsonb_build_object('run', 'succeeded', 'reason', 'succeeded',
                'cost_usd', ended.cost_usd))
       from moved, ended returning job_id""",
    prepared=True,
)
LOCK_EXPIRED_JOBS = Statement(
    "run-lock-expired-jobs",
    "lock the jobs of runs whose lease is over by the lease clock; held rows count as live",
    """select j.id from jobs j where j.id in (
         select r.job_id from runs r, installation i
         where r.ended_at is null and r.lease_clock_ms < i.lease_clock_ms - %(judge_ms)s
         order by r.job_id limit %(limit)s)
       order by j.id for no key update skip locked""",
)
LOCK_EXPIRED = Statement(
    "run-lock-expired",
    "lock those runs whose lease is over and whose jobs are locked, and read what settling them needs",
    """select r.id, r.token, r.state, r.engine, r.attempt, j.id as job_id, j.max_attempts, j.effort, j.refunds,
              j.handoffs, j.avoided, j.handed_off, j.affinity, j.cancel_requested_at is not null as cancel, j.pool,
              p.name as project, j.effort_now, j.capabilities, j.excluded, j.pinned, j.workspace, j.session, e.tier
       from runs r join jobs j on j.id = r.job_id join projects p on p.id = j.project_id
       join engines e on e.name = r.engine
       where r.job_id = any(%(jobs)s) and r.ended_at is null
         and r.lease_clock_ms < (select lease_clock_ms from installation where id = 1) - %(judge_ms)s
       order by r.id for no key update of r skip locked""",
)
RESEND = Statement(
    "run-resend",
    "grants not started in time, each waiting twice as long as before, marked as sent again",
    """with late as materialized (
         select id from runs where ended_at is null and state = 'granted'
           and sent_at < clock_timestamp() - %(after_ms)s * interval '1 millisecond' * (1 << least(sends, 10))
         order by id limit 1000 for no key update skip locked)
       update runs r set sent_at = clock_timestamp(), sends = sends + 1 from late where r.id = late.id
       returning r.id, r.token, r.job_id, r.engine, r.attempt,
         (select p.name from jobs j join projects p on p.id = j.project_id where j.id = r.job_id) as project""",
)
TOKENS = Statement("run-tokens", "the tokens of some runs", "select id, token from runs where id = any(%(runs)s)")
LIVE = Statement(
    "run-live",
    "whether some (run, token) pairs are still unended",
    """select r.id, r.token from runs r where r.id = any(%(runs)s) and r.ended_at is null""",
)
HELD = Statement(
    "run-held",
    "which of these (run, process) pairs of one machine are live: the run is not started yet, or by that process",
    """select r.id as run, p.pid from unnest(%(runs)s::bigint[], %(pids)s::int[]) as p (run, pid)
       join runs r on r.id = p.run and r.id = any(%(runs)s)
       where r.ended_at is null and (r.state = 'granted' or (r.host = %(host)s and r.pid = p.pid))""",
)
KEEP_WARM = Statement(
    "session-keep",
    "a run of a session ended well: what is remembered of it holds on from now",
    """update sessions set expires_at = clock_timestamp() + %(ttl_s)s * interval '1 second'
       where session = %(session)s and expires_at > clock_timestamp()""",
)


@dataclass(frozen=True, slots=True)
class Grants:
    """What a pass decided, and the rotation after it.

    `credits`, those that moved, are by (pool, member); they and `expected`, the shares offered to each engine, are in
    units of 10^-12 of a pick. What `expected` says of the names of nested pools means nothing. `picks` are by (engine,
    why). `sessions` are the members to be remembered.
    """

    record: Recorded
    credits: dict[tuple[str, str], int]
    picks: dict[tuple[str, Why], int]
    expected: dict[str, int]
    sessions: dict[SessionKey, str]


@dataclass(frozen=True, slots=True)
class Granted:
    """A run as the build message needs it, with the words Flower shows beside it."""

    run_id: int
    token: int
    job_id: int
    engine: str
    project: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Expired:
    """A locked run whose lease is over, with its job's facts and requirement columns."""

    row: Row[Any]

    @property
    def started(self) -> bool:
        """Whether it had been started; one that had not is withdrawn."""
        return bool(self.row.state == "running")

    def attempted(self) -> Attempted:
        """The job behind it, as settling wants it."""
        return attempted(self.row, self.row.job_id, cancel=self.row.cancel)


def attempted(row: Row[Any], job_id: int, *, cancel: bool = False) -> Attempted:
    """The job behind a run, from a row that carries the job's columns and the run's engine and attempt.

    Jobs that were handed off before `handed_off` was kept apart have those engines in `avoided`.
    """
    handed_off, avoided = frozenset(row.handed_off), frozenset(row.avoided)
    if row.handoffs and not handed_off:
        handed_off, avoided = avoided, frozenset[str]()
    return Attempted(
        job_id=job_id,
        engine=row.engine,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        effort=Effort(row.effort),
        refunds=row.refunds,
        handoffs=row.handoffs,
        avoided=avoided,
        handed_off=handed_off,
        affinity=row.affinity,
        cancel_requested=cancel,
    )


def grant(
    connection: Connection, grants: Grants, lease_ms: int, session_s: int, at: datetime | None
) -> Sequence[Row[Any]]:
    """Carry out a pass's assignments, record it; returns `id`, `token`, `job_id`, `engine` of each run made.

    `session_s` is how long sessions are remembered, `at` the instant, in UTC, at which the units among them are taken.
    """
    credits = [{"pool": pool, "member": member, "credit": value} for (pool, member), value in grants.credits.items()]
    counts = [_count(grants.picks, name, share) for name, share in grants.expected.items()]
    record = grants.record
    return GRANT.all(
        connection,
        pool=record.pool,
        world=record.world,
        asked=record.asked,
        classes=record.classes,
        rows=record.rows,
        credits=json.dumps(credits),
        counts=json.dumps(counts),
        sessions=json.dumps(
            [
                {"pool": pool, "class": label, "session": session, "member": member}
                for (pool, label, session), member in sorted(grants.sessions.items())
            ]
        ),
        lease_ms=lease_ms,
        session_s=session_s,
        at=at,
    )


def _count(picks: dict[tuple[str, Why], int], name: str, share: int) -> dict[str, Any]:
    """What a pass adds to an engine's counts."""
    by = {why: picks.get((name, why), 0) for why in Why}
    own = {"overflows": by[Why.OVERFLOW], "fallbacks": by[Why.FALLBACK]}
    return {"name": name, "picks": sum(by.values()), "expected": share, **own}


def finish(
    connection: Connection, run: tuple[int, int], job: int, account: str, outcome: Success, tail: str | None
) -> bool:
    """End one run (id, token) as succeeded; False when its token is stale or its account has something against it."""
    done = FINISH.first(
        connection,
        run=run[0],
        token=run[1],
        job=job,
        account=account,
        result=None if outcome.result is None else json.dumps(outcome.result),
        cost_usd=outcome.cost_usd,
        tokens_in=outcome.tokens_in,
        tokens_out=outcome.tokens_out,
        output_tail=tail,
    )
    return done is not None


def end(connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[Row[Any]]:
    """End runs; returns a row (`id`, `job_id`, `pool`, `engine`) for each that really was ended by this."""
    return END.all(connection, rows=json.dumps(rows))


def lock_expired(connection: Connection, judge_ms: int, limit: int = 500) -> list[Expired]:
    """Lock jobs, then runs, of leases the lease clock has left so far behind; whatever someone holds is left out."""
    jobs = [row.id for row in LOCK_EXPIRED_JOBS.all(connection, judge_ms=judge_ms, limit=limit)]
    if not jobs:
        return []
    return [Expired(row) for row in LOCK_EXPIRED.all(connection, jobs=jobs, judge_ms=judge_ms)]
