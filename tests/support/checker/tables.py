"""Rules a query can tell, each under the invariant it belongs to. Whatever a query returns breaks its rule.

`{runs}` stands for the table with the true instants of runs.
"""

from __future__ import annotations

RULES: dict[str, tuple[tuple[str, str], ...]] = {
    "I2": (
        (
            "a job and its live run do not agree",
            """select j.id, j.state, j.run_id, r.id, r.state from jobs j
               full join (select * from runs where ended_at is null) r on r.job_id = j.id
               where j.id is null or j.run_id is distinct from r.id or (r.id is not null and r.state <> j.state)""",
        ),
        (
            "two runs of a job were live at once",
            """select a.job_id, a.id, a.ended_at, b.id, b.granted_at from {runs} a
               join {runs} b on b.job_id = a.job_id and b.id > a.id
               where b.granted_at < coalesce(a.ended_at, 'infinity')""",
        ),
    ),
    "I3": (
        (
            "a job is neither ended nor queued with a reason",
            """select j.id, j.state, j.attempt from jobs j
               left join group_states g on g.pool = j.pool and g.requirement_key = j.requirement_key
               where j.state not in ('succeeded', 'failed', 'cancelled')
                 and not (j.state = 'queued' and (j.reason <> '' or g.reason is not null))""",
        ),
        (
            "a job used more attempts than it has",
            "select id, attempt, max_attempts from jobs where attempt > max_attempts",
        ),
        (
            "a job's attempts are not those of its runs",
            """select j.id, j.attempt, count(r.id) from jobs j left join runs r on r.job_id = j.id
                 and r.state <> 'withdrawn'
                 and coalesce(r.failure_class, '') not in ('capacity', 'handoff', 'misconfigured')
               where not exists (select 1 from ledger l where l.job_id = j.id and l.kind = 'JobRetried')
               group by j.id
               having j.state in ('succeeded', 'failed') and j.attempt <> count(r.id) and j.attempt > 0""",
        ),
        (
            "a job failed though nothing allowed it to",
            """select j.id, j.reason from jobs j
               where j.state = 'failed' and j.attempt < j.max_attempts and j.deadline_at is null
                 -- a task's own exception is its last word
                 and j.task_id is null
                 and not exists (select 1 from runs r where r.job_id = j.id and r.state = 'lost')
                 and j.handoffs < 3""",
        ),
    ),
    "I4": (
        (
            "a day's paid units were above the cap",
            """select * from (
                 select l.id, l.run_id, l.utc_day, (l.data ->> 'paid_daily_cap')::int as cap, l.kind,
                        sum(case l.kind when 'EngineOverflowReleased' then -1 else 1 end) over (
                          partition by l.utc_day, case when l.data ->> 'paid_daily_cap_scope' = 'installation'
                            then 0 else l.project_id end order by l.id) as taken
                 from ledger l where l.utc_day is not null) units
               where kind <> 'EngineOverflowReleased' and taken > coalesce(cap, 0)""",
        ),
        (
            "a run has not exactly the unit it should",
            """select r.id, r.why, r.counted, count(l.id) from runs r
               left join ledger l on l.run_id = r.id and l.utc_day is not null
                 and l.kind in ('EngineOverflowSelected', 'PaidFallbackSelected', 'PaidAssignmentSelected')
               group by r.id
               having count(l.id) <> r.counted::int or (r.why = 'overflow' and not r.counted)""",
        ),
        (
            "paid work of a counting project took no unit",
            """select r.id, r.why from runs r join jobs j on j.id = r.job_id
               join projects p on p.id = j.project_id
               where r.why = 'fallback' and not r.counted and p.policy ->> 'paid_fallback' = 'count'""",
        ),
        (
            "paid work took no unit of a cap that covers all of it",
            """select r.id, r.engine, r.why from runs r join jobs j on j.id = r.job_id
               join projects p on p.id = j.project_id join engines e on e.name = r.engine
               where e.tier = 'paid' and not r.counted and p.policy ->> 'paid_daily_cap_covers' = 'all'""",
        ),
        (
            "a unit was given back by a run that may have worked, or twice",
            """select l.run_id, r.state, count(*) from ledger l join runs r on r.id = l.run_id
               where l.kind = 'EngineOverflowReleased'
               group by l.run_id, r.state, r.tokens_in, r.tokens_out, r.cost_usd
               having count(*) > 1 or r.state not in ('withdrawn', 'failed', 'cancelled')
                 or r.tokens_in > 0 or r.tokens_out > 0 or r.cost_usd > 0""",
        ),
    ),
    "I6": (
        (
            "a run's instants are out of order",
            """select id, granted_at, started_at, renewed_at, ended_at from runs
               where started_at < granted_at or ended_at < coalesce(started_at, granted_at)
                 or renewed_at > ended_at""",
        ),
        (
            "a job succeeded more or less than once",
            """select j.id, count(r.id) from jobs j left join runs r on r.job_id = j.id and r.state = 'succeeded'
               group by j.id having (j.state = 'succeeded') <> (count(r.id) = 1)""",
        ),
        (
            "a run's end was overwritten",
            """select r.id, r.state, l.data ->> 'run' from runs r join ledger l on l.run_id = r.id
                 and l.kind in ('JobRequeued', 'JobSucceeded', 'JobFailed', 'JobCancelled')
               where l.data ->> 'run' is distinct from r.state""",
        ),
        (
            "a token did not grow, or is another's",
            """select a.id, a.token, b.id, b.token from runs a join runs b on b.id <> a.id
                 and (b.token = a.token or (b.job_id = a.job_id and b.id > a.id and b.token <= a.token))""",
        ),
    ),
    "I7": (
        (
            "the credits of a pool do not sum to zero",
            "select pool, sum(credit) from credits group by pool having sum(credit) <> 0",
        ),
        (
            "an engine's count of picks is not its number of runs",
            """select e.name, e.selected_count, count(r.id) from engines e left join runs r on r.engine = e.name
               group by e.name having e.selected_count <> count(r.id)""",
        ),
    ),
    "I9": (
        (
            "a run has no decision, or several",
            """select r.id, count(d.id) from runs r left join decisions d on d.run_id = r.id
               group by r.id having count(d.id) <> 1""",
        ),
        (
            "a decision does not say what its run is",
            """select d.id from decisions d join runs r on r.id = d.run_id
               where (d.job_id, d.engine, d.attempt, d.outcome)
                 is distinct from (r.job_id, r.engine, r.attempt, r.why)""",
        ),
        (
            "a grant has no run",
            """select d.id, d.run_id from decisions d left join runs r on r.id = d.run_id
               where d.run_id is not null and r.id is null""",
        ),
    ),
    "I12": (
        (
            "a unit is counted for another day than its own",
            """select l.id, l.at, l.utc_day, l.data ->> 'utc_day' from ledger l
               where l.utc_day is not null and l.kind <> 'EngineOverflowReleased'
                 and ((l.data ->> 'utc_day')::date is distinct from l.utc_day
                   or l.utc_day not in ((l.at at time zone 'utc')::date,
                                        ((l.at - interval '1 minute') at time zone 'utc')::date))""",
        ),
        (
            "a unit was given back to another day than it was taken from",
            """select b.run_id, b.utc_day, u.utc_day from ledger b
               left join ledger u on u.run_id = b.run_id and u.utc_day is not null
                 and u.kind in ('EngineOverflowSelected', 'PaidFallbackSelected', 'PaidAssignmentSelected')
               where b.kind = 'EngineOverflowReleased'
                 and (b.utc_day, b.project_id) is distinct from (u.utc_day, u.project_id)""",
        ),
    ),
}
