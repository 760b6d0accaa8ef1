"""Views: what people and programs look at. Read-only; every statement here leaves the rows it reads unlocked."""

from __future__ import annotations

from vibey.store.engines import OFFERED
from vibey.store.fleet import ALIVE
from vibey.store.statement import Statement

NOW = Statement("view-now", "the instant a view is as of", "select clock_timestamp()")
COUNTS = Statement(
    "view-counts",
    "jobs not yet ended, by state; the partial index on open jobs serves it",
    "select state, count(*)::bigint as n from jobs where ended_at is null group by state",
)
# What no index serves is looked for in so many jobs at most: those before are another page's.
LOOKED_THROUGH = 50_000
_BEFORE = "(%(before)s::bigint is null or {id} < %(before)s) and (%(since_id)s::bigint is null or {id} >= %(since_id)s)"
_NEWEST = f"""from jobs
             where (%(project)s::int is null or project_id = %(project)s)
               and (not %(open)s or ended_at is null and state = %(state)s)
               and {_BEFORE.format(id="id")}
             order by id desc"""
# In the order of the label's own key, and so without sorting all the jobs of a label that many have.
_NEWEST_LABELLED = f"""from job_labels
             where key = %(key)s and value = %(value)s and {_BEFORE.format(id="job_id")}
             order by job_id desc"""


def _listing(name: str, purpose: str, newest: str) -> Statement:
    """A list of those of `newest`, rows of jobs with their number as `place`, newest first, that fit a filter."""
    return Statement(
        name,
        purpose,
        f"""select j.id, p.name as project, j.pool, j.state, j.priority, j.attempt, j.max_attempts, j.engine, j.reason,
              j.title, j.labels, j.not_before, j.held_at, j.created_at, j.ended_at, j.cancel_requested_at, j.effort_now,
              j.capabilities, j.excluded, j.avoided, j.handed_off, j.pinned, j.workspace,
              array(select pin from unnest(j.pinned) as pin
                    where not exists (select 1 from engines e where e.name = pin and e.configured)) as unknown_pins,
              g.reason as group_reason,
              (select last_tick_at > j.due_at from installation where id = 1) as looked_at,
              extract(epoch from clock_timestamp() - r.renewed_at)::float as silent_seconds,
              extract(epoch from r.lease_expires_at - r.renewed_at)::float as lease_length_seconds,
              extract(epoch from coalesce(j.ended_at, clock_timestamp()) - j.created_at)::float as age_seconds
       from (select * from ({newest}) newest
             where (%(project)s::int is null or project_id = %(project)s)
               and (%(state)s::text is null or state = %(state)s)
               and (%(engine)s::text is null or engine = %(engine)s)
               and (%(since)s::timestamptz is null or created_at >= %(since)s)
               and (%(search)s::text is null or strpos(lower(title), lower(%(search)s)) > 0)
               and labels @> %(labels)s::jsonb
             order by place desc limit %(limit)s) j
       join projects p on p.id = j.project_id
       left join runs r on r.id = j.run_id
       left join group_states g on j.state = 'queued' and g.pool = j.pool and g.requirement_key = j.requirement_key
       order by j.id desc""",  # noqa: S608  made of constants
    )


JOBS = _listing(
    "view-jobs",
    "the newest jobs that fit a filter, looked for in a bounded number of jobs; the primary key, or the index on a "
    "project's or on open jobs (`open`), serves it",
    f"select id as place, * {_NEWEST} limit {LOOKED_THROUGH}",
)
LABELLED_JOBS = _listing(
    "view-labelled-jobs",
    "the newest jobs that have a label and fit a filter, looked for in a bounded number of jobs with that label",
    f"""select n.place, j.* from (select job_id as place {_NEWEST_LABELLED} limit {LOOKED_THROUGH}) n
             cross join lateral (select * from jobs where id = n.place offset 0) j""",  # noqa: S608  made of constants
)
LOOKED_AT = Statement(
    "view-jobs-looked-at",
    "the oldest job that a listing has looked at, if there were as many as it looks through at most",
    f"select id {_NEWEST} offset {LOOKED_THROUGH - 1} limit 1",
)
LABELLED_LOOKED_AT = Statement(
    "view-labelled-jobs-looked-at",
    "the oldest job with a label that a listing has looked at, if there were as many as it looks through at most",
    f"select job_id {_NEWEST_LABELLED} offset {LOOKED_THROUGH - 1} limit 1",
)
SINCE = Statement(
    "view-jobs-since",
    "a number below those of the jobs enqueued since an instant, halving what is left by the primary key, as job "
    "numbers grow with their instants; a minute earlier, for transactions that were at work side by side",
    """with recursive halved as (
         select 1::bigint as low, coalesce((select max(id) from jobs), 0) + 1 as high
         union all
         select case when j.earlier then j.id + 1 else low end, case when j.earlier then high else middle end
         from halved
         cross join lateral (select (low + high) / 2 as middle) m
         left join lateral (
           select id, created_at < %(since)s::timestamptz - interval '1 minute' as earlier
           from jobs where id >= middle order by id limit 1) j on true
         where low < high)
       select max(low) from halved""",
)
JOB = Statement(
    "view-job",
    "one job with everything it carries",
    """select j.id, p.name as project, j.pool, j.state, j.priority, j.effort, j.effort_now, j.capabilities, j.excluded,
              j.avoided, j.handed_off, j.pinned, j.workspace,
              array(select pin from unnest(j.pinned) as pin
                    where not exists (select 1 from engines e where e.name = pin and e.configured)) as unknown_pins,
              j.session, j.payload, j.idempotency_key, j.attempt, j.max_attempts, j.refunds, j.handoffs,
              j.not_before, j.held_at, j.deadline_at, j.cancel_requested_at, j.run_id, j.engine, j.reason, j.result,
              j.created_at, j.ended_at, j.requirement_key, j.affinity, j.traceparent, j.task_id, j.title, j.labels,
              g.reason as group_reason,
              g.since as group_since, clock_timestamp() as now,
              (select last_tick_at > j.due_at from installation where id = 1) as looked_at,
              extract(epoch from clock_timestamp() - r.renewed_at)::float as silent_seconds,
              extract(epoch from r.lease_expires_at - r.renewed_at)::float as lease_length_seconds
       from jobs j join projects p on p.id = j.project_id left join runs r on r.id = j.run_id
       left join group_states g on j.state = 'queued' and g.pool = j.pool and g.requirement_key = j.requirement_key
       where j.id = %(id)s""",
)
RUNS = Statement(
    "view-runs",
    "the runs of one job, oldest first",
    """select id, engine, account, attempt, why, state, granted_at, started_at, renewed_at, lease_expires_at, ended_at,
              host, pid, failure_class, detail, cost_usd, tokens_in, tokens_out, traceparent
       from runs where job_id = %(job)s order by id""",
)
PROGRESS = Statement(
    "view-progress",
    "how many of some jobs are in each state",
    "select state, count(*)::bigint as n from jobs where id = any(%(ids)s) group by state",
)
OUTPUT = Statement(
    "view-output",
    "one run of a job, the newest when none is named, its engine's kind, its cost, and the end of its output as stored",
    """select r.id, r.engine, r.state, r.host, r.started_at, r.ended_at, r.output_tail, r.tokens_in, r.tokens_out,
              r.cost_usd, coalesce(e.kind, '') as kind
       from runs r left join engines e on e.name = r.engine
       where r.job_id = %(job)s and (%(run)s::bigint is null or r.id = %(run)s) order by r.id desc limit 1""",
)
RUN_ENDED = Statement("view-run-ended", "whether a run has ended", "select ended_at from runs where id = %(run)s")
ENGINES = Statement(
    "view-engines",
    "every engine that is configured or has live runs: how it is, how full, what it was picked for, and when last",
    f"""select e.name, e.configured, e.account, e.kind, e.tier, case when e.configured then e.slots else 0 end as slots,
              e.weight, e.enabled, e.paused, e.installed, e.conformant,
              e.detail, e.selected_count, e.expected, a.login_ok, a.open_reason, a.probe_at, a.resets_at, a.probes,
              a.failures_in_a_row, a.failure, a.ramp, coalesce(e.busy_until > clock_timestamp(), false) as busy,
              e.demoted_until, coalesce(e.demoted_until > clock_timestamp(), false) as demoted, e.selected_at,
              (select extract(epoch from clock_timestamp() - coalesce(e.selected_at, i.created_at))::float / 86400
               from installation i where i.id = 1) as idle_days,
              (extract(epoch from a.probe_at) * 1000)::bigint as probe_at_ms,
              (extract(epoch from a.resets_at) * 1000)::bigint as resets_at_ms,
              (extract(epoch from a.failure_at) * 1000)::bigint as failure_at_ms,
              (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
              coalesce(live.n, 0) as in_use,
              {OFFERED} as offered,
              (select min(w.name) from workers w where e.name = any(w.engines)
                 and {ALIVE}) as server,
              (select string_agg('worker ' || w.name || ': ' || (w.problems->>e.name), '; ' order by w.name)
               from workers w where w.problems ? e.name
                 and {ALIVE}) as problems
       from engines e join accounts a on a.name = e.account
       left join (select engine, count(*)::int as n from runs where ended_at is null group by engine) live
         on live.engine = e.name
       where e.configured or live.n > 0 order by e.configured desc, e.ordinal, e.name""",  # noqa: S608  (made of constants)
)
HAS_ENGINE = Statement(
    "view-has-engine",
    "whether an engine of this name is known, configured or not",
    "select exists (select 1 from engines where name = %(name)s)",
)
HOLDERS = Statement(
    "view-holders",
    "every live run: it holds a slot",
    """select r.id, r.engine, r.job_id, p.name as project, r.state, r.holder, r.host, r.pid, r.attempt, r.granted_at,
              r.started_at, r.renewed_at, r.lease_expires_at,
              extract(epoch from clock_timestamp() - r.granted_at)::float as age_seconds,
              extract(epoch from clock_timestamp() - r.renewed_at)::float as renewed_seconds,
              extract(epoch from r.lease_expires_at - clock_timestamp())::float as lease_seconds
       from runs r join jobs j on j.id = r.job_id join projects p on p.id = j.project_id
       where r.ended_at is null order by r.engine, r.id""",
)
HELD = Statement(
    "view-held",
    "jobs held because overflow could follow; the index on held jobs serves it",
    """select coalesce(sum((select count(*) from jobs j
                            where j.pool = g.pool and j.requirement_key = g.requirement_key and j.state = 'queued'
                              and j.not_before is null and j.held_at is not null)), 0)::bigint as n
       from group_states g where g.reason = 'held'""",
)
LEDGER = Statement(
    "view-ledger",
    "the newest events that fit a filter, newest first, without some kinds",
    """select l.id, l.at, l.kind, p.name as project, l.job_id, l.run_id, l.engine, l.data
       from ledger l left join projects p on p.id = l.project_id
       where (%(project)s::int is null or l.project_id = %(project)s)
         and (%(job)s::bigint is null or l.job_id = %(job)s)
         and (%(kind)s::text is null or l.kind = %(kind)s)
         and (%(engine)s::text is null or l.engine = %(engine)s)
         and (%(before)s::bigint is null or l.id < %(before)s)
         and not (l.kind = any(%(hidden)s))
       order by l.id desc limit %(limit)s""",
)
WORKERS = Statement(
    "view-workers",
    "workers seen within the hour, and whether they count as alive",
    f"""select name, host, pid, engines, slots, generation, version, problems, concurrency, started_at, seen_at,
              canary_at, {ALIVE} as alive
       from workers w
       where seen_at between clock_timestamp() - interval '1 hour' and clock_timestamp() + interval '1 minute'
       order by name""",  # noqa: S608  constant
)
TICKED = Statement(
    "view-ticked",
    "how long ago the last tick was, in seconds; null before the first",
    """select case when last_tick_at > clock_timestamp() then 0
                   else extract(epoch from clock_timestamp() - last_tick_at) end::float
       from installation where id = 1""",
)
SERVER_VERSION = Statement(
    "view-server-version",
    "the server's version",
    "select split_part(current_setting('server_version'), ' ', 1)",
)
