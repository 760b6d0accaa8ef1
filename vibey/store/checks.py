"""Checks: the questions an audit puts to the tables, each a statement over whole tables about one invariant.

Who is authoritative: the rows themselves. A check never asks the code that wrote them; it compares what was recorded
twice by the same transaction (a run and its events, a credit and the picks that made it), or what two transactions
that ought to have excluded one another have left. What came first is read off the numbers of their events, not off
instants, for the database's clock may be set: where one transaction waits for another, its events get higher numbers.
Instants are compared within one run, whose end is written as not before its beginning. Of jobs that were removed
(`vibey.store.horizon`) only the ledger tells: what lacks its row must have ended below the horizon, and as much must
lack one as was counted when removed.

Every row a check returns is a breach; the check's words make it a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from vibey.store.fleet import STRAY_SESSION
from vibey.store.horizon import moves
from vibey.store.statement import Statement

# Whether a job the ledger or a decision names was removed.
_IS_REMOVED = """{job} <= (select job_id from horizon) and not exists (select 1 from jobs gone where gone.id = {job})"""

# When runs were granted and ended, in numbers of events. A grant's transaction counts the live runs of its engines
# under their locks: whatever had ended by then had its event before. One without the event of its end counts as live.
_STEPS = """select r.id, r.engine, r.job_id, coalesce(l.granted, 0) as granted,
                   case when r.ended_at is not null then l.ended end as ended
            from runs r left join (
              select run_id, min(id) filter (where kind = 'RunGranted') as granted,
                     min(id) filter (
                       where kind in ('JobRequeued', 'JobSucceeded', 'JobFailed', 'JobCancelled')) as ended
              from ledger where run_id is not null group by run_id) l on l.run_id = r.id"""

# The slots an engine had when a run was granted are those of the world its pass recorded: they may have changed since.
SLOTS = Statement(
    "audit-slots",
    "grants at which an engine held more runs than it had slots",
    f"""with recorded as (
         select p.id as pass_id, e ->> 'name' as engine, (e ->> 'slots')::int as slots
         from passes p cross join lateral jsonb_array_elements(p.world -> 'engines') e),
       placed as materialized ({_STEPS}),
       steps as (
         select engine, id, granted as place, 1 as step from placed
         union all
         select engine, id, ended, -1 from placed where ended is not null),
       swept as (
         select *, sum(step) over (partition by engine order by place, step, id rows unbounded preceding) as held
         from steps)
       select s.engine, s.id as run, s.held, coalesce(r.slots, e.slots, 0) as slots
       from swept s
       left join decisions d on d.run_id = s.id
       left join recorded r on r.pass_id = d.pass_id and r.engine = s.engine
       left join engines e on e.name = s.engine
       where s.step = 1 and s.held > coalesce(r.slots, e.slots, 0)
       order by s.id limit %(limit)s""",  # noqa: S608  constant
)
OVERLAPS = Statement(
    "audit-overlaps",
    "runs granted while an earlier run of their job was live",
    f"""select job_id as job, id as run, earlier
       from (select job_id, id, granted, lag(id) over by_job as earlier,
                    max(coalesce(ended, 9223372036854775807)) over (
                      by_job rows between unbounded preceding and 1 preceding) as last_end
             from ({_STEPS}) placed window by_job as (partition by job_id order by id)) runs
       where last_end > granted order by id limit %(limit)s""",  # noqa: S608  constant
)
HELD_JOBS = Statement(
    "audit-held-jobs",
    "jobs and live runs that do not belong to one another",
    """select coalesce(j.id, r.job_id) as job, coalesce(j.state, 'not open') as state, j.run_id as told, r.id as run,
              r.state as run_state
       from (select id, state, run_id from jobs where ended_at is null or run_id is not null) j
       full join (select id, job_id, state from runs where ended_at is null) r on r.job_id = j.id
       where j.id is null or j.run_id is distinct from r.id or (r.id is not null and r.state <> j.state)
       order by 1 limit %(limit)s""",
)
# A group is without a reason while its jobs are granted in turn; after a tick it is so only if some really were. Ticks
# that came late, or a clock that was set, say nothing of how long a job has been due.
UNEXPLAINED = Statement(
    "audit-unexplained",
    "groups of due jobs that a tick has passed over without a reason and without a grant",
    """with recent as (
         select distinct j.pool, j.requirement_key from installation i
         join runs r on r.granted_at > i.last_tick_at - %(grace)s * interval '1 second'
         join jobs j on j.id = r.job_id)
       select j.pool, count(*) as jobs, min(j.id) as job
       from installation i
       join jobs j on i.steady_since < i.last_tick_at - %(grace)s * interval '1 second'
         and j.state = 'queued' and j.not_before is null and j.reason = ''
         and j.due_at < i.last_tick_at - %(grace)s * interval '1 second'
       where not exists (select 1 from group_states g where g.pool = j.pool and g.requirement_key = j.requirement_key)
         and not exists (select 1 from recent r where r.pool = j.pool and r.requirement_key = j.requirement_key)
       group by j.pool, j.requirement_key order by 3 limit %(limit)s""",
)
REFERENCES = Statement(
    "audit-references",
    "rows that point to another row which is not there, or of which they cannot be",
    f"""select what, name, whom from (
         select 'account' as what, a.name, 'the probe run ' || a.probe_run_id as whom
         from accounts a left join runs r on r.id = a.probe_run_id and r.account = a.name
         where a.probe_run_id is not null and r.id is null
         union all
         select 'run', r.id::text, 'job ' || r.job_id from runs r left join jobs j on j.id = r.job_id where j.id is null
         union all
         select 'run', r.id::text, 'engine ' || r.engine || ' with account ' || r.account
         from runs r left join engines e on e.name = r.engine left join accounts a on a.name = r.account
         where e.name is null or a.name is null
         union all
         select 'label', n.key || '=' || n.value, 'job ' || n.job_id
         from job_labels n left join jobs j on j.id = n.job_id where j.id is null
         union all
         select 'decision', d.id::text, 'pass ' || d.pass_id
         from decisions d left join passes p on p.id = d.pass_id where p.id is null
         union all
         select 'session', s.session, s.member || ' in pool ' || s.pool from sessions s
         where s.expires_at > clock_timestamp() and {STRAY_SESSION}) stray
       order by 1, 2, 3 limit %(limit)s""",  # noqa: S608  constant
)
# A clean-up drops such groups; between two of them a group may be left by its last job, and that job is told by its
# grant, its end, or a generation.
GROUPS = Statement(
    "audit-groups",
    "reasons of groups without a due job, as they were at the latest clean-up",
    """with cleaned as (
         select last_clean_at - %(grace)s * interval '1 second' as at from installation
         where last_clean_at > clock_timestamp() - interval '15 minutes'),
       left_since as (
         select j.pool from jobs j, cleaned c where j.ended_at > c.at
         union
         select j.pool from jobs j join runs r on r.job_id = j.id, cleaned c where r.granted_at > c.at)
       select g.pool, g.requirement_key as key, g.reason from group_states g join cleaned c on g.since < c.at
       where not exists (select 1 from jobs j where j.pool = g.pool and j.requirement_key = g.requirement_key
                           and j.state = 'queued' and j.not_before is null)
         and g.pool not in (select pool from left_since)
         and not exists (select 1 from generations n where n.at > c.at)
       order by 1, 2 limit %(limit)s""",
)
CAP = Statement(
    "audit-cap",
    "units taken when their day had none left, by the cap that their own event names",
    """with counted as (
         select l.*, l.data ->> 'paid_daily_cap_scope' = 'installation' as shared,
                sum(case l.kind when 'EngineOverflowReleased' then -1 else 1 end)
                  over (partition by l.utc_day, l.project_id order by l.id rows unbounded preceding) as by_project,
                sum(case l.kind when 'EngineOverflowReleased' then -1 else 1 end)
                  over (partition by l.utc_day order by l.id rows unbounded preceding) as by_all
         from ledger l where l.utc_day is not null)
       select c.id as event, c.run_id as run, c.utc_day as day, (c.data ->> 'paid_daily_cap')::int as cap,
              case when c.shared then 'the installation' else 'project ' || coalesce(p.name, '?') end as purse,
              case when c.shared then c.by_all else c.by_project end as taken
       from counted c left join projects p on p.id = c.project_id
       where c.kind <> 'EngineOverflowReleased'
         and case when c.shared then c.by_all else c.by_project end > coalesce((c.data ->> 'paid_daily_cap')::int, 0)
       order by c.id limit %(limit)s""",
)
SUMS = Statement(
    "audit-cap-sums",
    "units whose own numbers do not add up",
    """select id as event, data ->> 'paid_today' as taken, data ->> 'cap_remaining_after' as remaining,
              data ->> 'paid_daily_cap' as cap
       from ledger
       where utc_day is not null and kind <> 'EngineOverflowReleased'
         and coalesce((data ->> 'cap_remaining_after')::int < 0
           or (data ->> 'paid_today')::int + 1 + (data ->> 'cap_remaining_after')::int
              <> (data ->> 'paid_daily_cap')::int, true)
       order by id limit %(limit)s""",
)
UNITS = Statement(
    "audit-units",
    "runs that have not exactly the unit they should, or a return without its unit",
    f"""with told as (
         select run_id, min(job_id) as job_id, count(*) filter (where kind <> 'EngineOverflowReleased') as units,
                count(*) filter (where kind = 'EngineOverflowReleased') as releases,
                min(id) filter (where kind <> 'EngineOverflowReleased') as taken,
                min(id) filter (where kind = 'EngineOverflowReleased') as released,
                count(distinct (utc_day, project_id)) as purses
         from ledger where utc_day is not null group by run_id)
       select coalesce(r.id, t.run_id) as run, coalesce(t.units, 0) as units, coalesce(t.releases, 0) as releases,
              case when r.counted then 'counted' when r.id is null then 'missing' else 'not counted' end as stands
       from (select id, counted from runs where counted or why = 'overflow') r
       full join told t on t.run_id = r.id
       where coalesce(t.units, 0) <> 1 or t.releases > 1 or t.released < t.taken or t.purses > 1
         or not coalesce(r.counted, r.id is null and {_IS_REMOVED.format(job="t.job_id")})
       order by 1 limit %(limit)s""",  # noqa: S608  constant
)
RETURNS = Statement(
    "audit-returns",
    "units given back for runs that may have done work",
    """select r.id as run, r.state, coalesce(r.tokens_in, 0) + coalesce(r.tokens_out, 0) as tokens,
              coalesce(r.cost_usd, 0) as dollars
       from ledger l join runs r on r.id = l.run_id
       where l.kind = 'EngineOverflowReleased'
         and (r.ended_at is null or r.state in ('succeeded', 'lost') or r.tokens_in > 0 or r.tokens_out > 0
              or r.cost_usd > 0)
       order by r.id limit %(limit)s""",
)
EXCEPTIONS = Statement(
    "audit-exceptions",
    "paid exceptions and counted assignments without their one event, or the decision that could be replayed",
    """select r.id as run, r.why, count(distinct l.id) as events, count(distinct d.id) as decisions
       from runs r
       left join ledger l on l.job_id = r.job_id and l.run_id = r.id
         and l.kind = case r.why when 'overflow' then 'EngineOverflowSelected'
                                 when 'fallback' then 'PaidFallbackSelected' else 'PaidAssignmentSelected' end
       left join decisions d on d.run_id = r.id and d.outcome = r.why and d.engine = r.engine
       where r.why <> 'assign' or r.counted group by r.id having count(distinct l.id) <> 1 or count(distinct d.id) <> 1
       order by r.id limit %(limit)s""",
)
ENDS = Statement(
    "audit-ends",
    "runs whose events do not tell of one grant, a start if it started, and one end if it ended, in its own state",
    """with told as (
         select run_id, count(*) filter (where kind = 'RunGranted') as grants,
                count(*) filter (where kind = 'RunStarted') as starts,
                count(*) filter (where kind in ('JobRequeued', 'JobSucceeded', 'JobFailed', 'JobCancelled')) as ends,
                min(data ->> 'run') filter (
                  where kind in ('JobRequeued', 'JobSucceeded', 'JobFailed', 'JobCancelled')) as ended
         from ledger where run_id is not null group by run_id)
       select r.id as run, r.state, coalesce(t.grants, 0) as grants, coalesce(t.starts, 0) as starts,
              coalesce(t.ends, 0) as ends, coalesce(t.ended, 'no end') as ended
       from runs r left join told t on t.run_id = r.id
       where coalesce(t.grants, 0) <> 1 or coalesce(t.starts, 0) <> (r.started_at is not null)::int
         or coalesce(t.ends, 0) <> (r.ended_at is not null)::int
         or (r.ended_at is not null and t.ended is distinct from r.state)
       order by r.id limit %(limit)s""",
)
TOKENS = Statement(
    "audit-tokens",
    "runs whose token is not newer than every earlier one of their job, or is another run's too",
    """select id as run, token, coalesce(earlier, token) as other
       from (select id, token, max(token) over (
               partition by job_id order by id rows between unbounded preceding and 1 preceding) as earlier,
               count(*) over (partition by token) as holders
             from runs) runs
       where earlier >= token or holders > 1 order by id limit %(limit)s""",
)
LATE = Statement(
    "audit-late",
    "runs that were started or renewed after their end, or started before their grant",
    """select id as run, state from runs
       where started_at < granted_at or ended_at < granted_at or ended_at < started_at or ended_at < renewed_at
       order by id limit %(limit)s""",
)
SUCCESSES = Statement(
    "audit-successes",
    "jobs that succeeded without one successful run, or have one without having succeeded",
    """select coalesce(j.id, r.job_id) as job, coalesce(j.state, 'not succeeded') as state, coalesce(r.n, 0) as runs
       from (select id, state from jobs where state = 'succeeded') j
       full join (select job_id, count(*) as n from runs where state = 'succeeded' group by job_id) r
         on r.job_id = j.id
       where j.id is null or coalesce(r.n, 0) <> 1 order by 1 limit %(limit)s""",
)
ZERO = Statement(
    "audit-zero",
    "pools whose credits do not sum to zero",
    "select pool, sum(credit) as total from credits group by pool having sum(credit) <> 0 order by 1 limit %(limit)s",
)
# What is older is in the openings.
_MOVES = f"with {moves('{id} > (select pass_id from horizon)')}"  # noqa: S608  constant
CREDITS = Statement(
    "audit-credits",
    "credits that are not the shares ever offered less the picks",
    f"""{_MOVES},
       owed as (
         select pool, member, sum(credit) as credit
         from (select pool, member, share - case when chosen then %(unit)s else 0 end as credit from moves
               union all select pool, member, credit from openings) moved
         group by pool, member)
       select coalesce(c.pool, o.pool) as pool, coalesce(c.member, o.member) as member,
              coalesce(c.credit, 0) as stored, coalesce(o.credit, 0) as owed
       from credits c full join owed o on o.pool = c.pool and o.member = c.member
       where coalesce(c.credit, 0) <> coalesce(o.credit, 0) order by 1, 2 limit %(limit)s""",  # noqa: S608  constant
)
CHAIN = Statement(
    "audit-chain",
    "decisions that began from other credits than the ones before them had left",
    f"""{_MOVES},
       chained as (
         select moves.*, coalesce(o.credit, 0)
                + coalesce(sum(share - case when chosen then %(unit)s else 0 end) over before_it, 0) as left_over
         from moves left join openings o using (pool, member) window before_it as (
           partition by pool, member order by id rows between unbounded preceding and 1 preceding))
       select id as decision, pool, member, before, left_over from chained
       where before <> left_over order by id limit %(limit)s""",  # noqa: S608  constant
)
PICKS = Statement(
    "audit-picks",
    "engines whose counts of picks, by what they were granted on, are not the grants the ledger tells of",
    """select e.name as engine, c.why, c.picks, coalesce(r.n, 0) as runs
       from engines e
       cross join lateral (values ('assign', e.selected_count - e.overflow_count - e.fallback_count),
         ('overflow', e.overflow_count), ('fallback', e.fallback_count)) c(why, picks)
       left join (select engine, data ->> 'why' as why, count(*) as n from ledger where kind = 'RunGranted'
                  group by 1, 2) r
         on r.engine = e.name and r.why = c.why
       where c.picks <> coalesce(r.n, 0) order by 1, 2 limit %(limit)s""",
)
DECIDED = Statement(
    "audit-decided",
    "runs without the one decision that made them, and grants without their run",
    f"""with made as (
         select run_id, count(*) as n, min(job_id) as job_id, min(attempt) as attempt, min(engine) as engine,
                min(outcome) as outcome, max(pass_id) as pass_id
         from decisions where job_id is not null group by run_id)
       select coalesce(r.id, d.run_id) as run, coalesce(d.n, 0) as decisions, r.engine, r.why, d.engine as decided,
              d.outcome
       from runs r full join made d on d.run_id = r.id
       where (d.n, d.job_id, d.attempt, d.engine, d.outcome)
             is distinct from (1, r.job_id, r.attempt, r.engine, r.why)
         and not (r.id is null and d.pass_id <= (select pass_id from horizon)
                  and {_IS_REMOVED.format(job="d.job_id")})
       order by 1 limit %(limit)s""",  # noqa: S608  constant
)
# A trigger's type is a set of bits: 8 delete, 16 update, 32 truncate.
GUARD = Statement(
    "audit-guard",
    "one row if nothing keeps the ledger from being changed",
    """select current_database() as database where not exists (
         select 1 from pg_trigger t join pg_proc p on p.oid = t.tgfoid
         where t.tgrelid = 'ledger'::regclass and t.tgenabled in ('O', 'A') and t.tgtype & 56 = 56
           and p.proname = 'vibey_ledger_is_append_only' and position('raise exception' in p.prosrc) > 0)
       limit %(limit)s""",
)
_TOLD = """with told as (
         select l.id, l.job_id, l.kind, moves.state,
                lag(moves.state) over (partition by l.job_id order by l.id) as before,
                lead(l.id) over (partition by l.job_id order by l.id) is null as last
         from ledger l join (values
           ('JobEnqueued', 'queued'), ('RunGranted', 'granted'), ('RunStarted', 'running'), ('JobRequeued', 'queued'),
           ('JobRetried', 'queued'), ('JobSucceeded', 'succeeded'), ('JobFailed', 'failed'),
           ('JobCancelled', 'cancelled')) moves(kind, state) using (kind)
         where l.job_id is not null)"""
MOVES = Statement(
    "audit-moves",
    "events that move a job from a state it cannot be moved from so",
    f"""{_TOLD}
       select id as event, job_id as job, kind, coalesce(before, 'nothing') as before from told
       where (coalesce(before, ''), kind) not in (
         ('', 'JobEnqueued'), ('queued', 'RunGranted'), ('queued', 'JobFailed'), ('queued', 'JobCancelled'),
         ('granted', 'RunStarted'), ('granted', 'JobRequeued'), ('granted', 'JobCancelled'),
         ('running', 'JobRequeued'), ('running', 'JobSucceeded'), ('running', 'JobFailed'), ('running', 'JobCancelled'),
         ('failed', 'JobRetried'), ('cancelled', 'JobRetried'))
       order by id limit %(limit)s""",  # noqa: S608  constant
)
LEADS = Statement(
    "audit-leads",
    "jobs that are not where their events lead",
    f"""{_TOLD}
       select coalesce(j.id, t.job_id) as job, coalesce(j.state, 'missing') as state,
              coalesce(t.state, 'nowhere') as led
       from jobs j full join (select job_id, state from told where last) t on t.job_id = j.id
       where j.state is distinct from t.state
         and not (j.id is null and t.state in ('succeeded', 'failed', 'cancelled')
                  and {_IS_REMOVED.format(job="t.job_id")})
       order by 1 limit %(limit)s""",  # noqa: S608  constant
)
GONE = Statement(
    "audit-gone",
    "how many jobs and runs the ledger tells of that are not there, where it is not how many were removed",
    """select c.what, c.told - c.there as gone, c.removed
       from horizon h
       cross join (select count(*) filter (where kind = 'JobEnqueued') as jobs,
                          count(*) filter (where kind = 'RunGranted') as runs from ledger) told
       cross join lateral (values
         ('jobs', told.jobs, (select count(*) from jobs), h.jobs),
         ('runs', told.runs, (select count(*) from runs), h.runs)) c(what, told, there, removed)
       where c.told - c.there <> c.removed order by 1 limit %(limit)s""",
)
# The day is taken within the transaction and before the event: one of a minute may have crossed midnight.
DAYS = Statement(
    "audit-days",
    "units of another day than their instant, and returns of another day than their unit",
    """select l.id as event, l.utc_day as day, l.at
       from ledger l
       left join ledger unit on l.kind = 'EngineOverflowReleased' and unit.run_id = l.run_id
         and unit.utc_day is not null and unit.kind <> 'EngineOverflowReleased'
       where l.utc_day is not null and (case
         when l.kind = 'EngineOverflowReleased' then l.utc_day is distinct from unit.utc_day
         else l.utc_day not in ((l.at at time zone 'utc')::date,
                                ((l.at - interval '1 minute') at time zone 'utc')::date)
           or l.data ->> 'utc_day' is distinct from l.utc_day::text end)
       order by l.id limit %(limit)s""",
)


@dataclass(frozen=True, slots=True)
class Check:
    """A question about one invariant; `words` turn a row it returns into a sentence."""

    invariant: str
    statement: Statement
    words: str


CHECKS = (
    Check("I1", SLOTS, "run {run} was granted as number {held} on {engine}, which had {slots} slots"),
    Check("I2", OVERLAPS, "run {run} of job {job} was granted while its run {earlier} was live"),
    Check("I3", HELD_JOBS, "job {job} is {state} and names run {told}, its live run is {run} ({run_state})"),
    Check("I3", UNEXPLAINED, "{jobs} queued jobs of pool {pool} wait without a reason, job {job} first"),
    Check("I3", REFERENCES, "{what} {name} points to {whom}, which is not there"),
    Check("I3", GROUPS, "group {key} of pool {pool} has a reason to wait ({reason}) and no due job"),
    Check("I4", CAP, "event {event} (run {run}) is unit {taken} of {purse} on {day}, whose cap was {cap}"),
    Check("I4", SUMS, "event {event} says {taken} taken before and {remaining} left after, of a cap of {cap}"),
    Check("I4", UNITS, "run {run} ({stands}) has {units} units and {releases} returns, or they do not match"),
    Check("I4", RETURNS, "run {run} gave its unit back but is {state}, with {tokens} tokens and {dollars} dollars"),
    Check("I5", EXCEPTIONS, "run {run} ({why}) has {events} events and {decisions} decisions that say so"),
    Check("I6", ENDS, "run {run} is {state}; told of it: {grants} grants, {starts} starts, {ends} ends ({ended})"),
    Check("I6", TOKENS, "run {run} has token {token}, which is not newer than {other} or is not its own"),
    Check("I6", LATE, "run {run} ({state}) was written to after its end, or before its grant"),
    Check("I6", SUCCESSES, "job {job} is {state} with {runs} successful runs"),
    Check("I7", ZERO, "the credits of pool {pool} sum to {total}"),
    Check("I7", CREDITS, "the credit of {member} in pool {pool} is {stored}; shares less picks are {owed}"),
    Check("I7", CHAIN, "decision {decision} began with {before} for {member} in pool {pool}, {left_over} were left"),
    Check("I7", PICKS, "engine {engine} counts {picks} picks and was granted {runs} runs of kind {why}"),
    Check("I8", GUARD, "nothing keeps the ledger of database {database} from being changed"),
    Check("I8", MOVES, "event {event} moves job {job} by {kind} from {before}"),
    Check("I8", LEADS, "job {job} is {state}, but its events lead to {led}"),
    Check("I8", GONE, "of the {what} the ledger tells of {gone} are not there, and {removed} were removed"),
    Check("I9", DECIDED, "run {run} ({why} on {engine}) has {decisions} decisions ({outcome} on {decided})"),
    Check("I12", DAYS, "event {event} of {at} is counted for {day}"),
)
