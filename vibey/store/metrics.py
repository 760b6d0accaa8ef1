"""Metrics: what a scrape reads beside the views. Each statement's cost is bounded, whatever the depth of the queue.

How many jobs are queued, and held, is what has to be counted (`views.COUNTS` and `views.HELD`, by index).
"""

from __future__ import annotations

from vibey.store.statement import Statement

# So many fronts are looked at: groups of due jobs, each priority of a group by itself; with ageing, where hardly two
# jobs stand alike, and none can be left behind, only the head of a group.
FRONTS_LIMIT = 10_000
SELECTED = Statement(
    "metric-selected",
    "how often each engine ever configured was picked, by what the pick was granted on",
    """select e.name, e.tier, c.why, c.n from engines e
       cross join lateral (values ('assign', e.selected_count - e.overflow_count - e.fallback_count),
         ('overflow', e.overflow_count), ('fallback', e.fallback_count)) c(why, n)
       where e.configured or e.selected_count > 0 order by e.ordinal, e.name, c.why""",
)
FRONTS = Statement(
    "metric-fronts",
    "the first due job of each group and priority, and the longest hold of the group; a skip scan of the index on due "
    "jobs, a hold by the index on held ones",
    """with recursive fronts as (
         (select pool, requirement_key, standing, id from jobs where state = 'queued' and not_before is null
          order by pool, requirement_key, standing, id limit 1)
         union all
         select next.* from fronts f cross join lateral (
           (select pool, requirement_key, standing, id from jobs
            where state = 'queued' and not_before is null and pool = f.pool and requirement_key = f.requirement_key
              and standing > f.standing and (select age_ms from installation where id = 1) = 0
            order by pool, requirement_key, standing, id limit 1)
           union all
           (select pool, requirement_key, standing, id from jobs
            where state = 'queued' and not_before is null and pool = f.pool and requirement_key > f.requirement_key
            order by pool, requirement_key, standing, id limit 1)
           union all
           (select pool, requirement_key, standing, id from jobs
            where state = 'queued' and not_before is null and pool > f.pool
            order by pool, requirement_key, standing, id limit 1)
           limit 1) next)
       select f.pool, f.requirement_key as key, j.id, p.name as project, j.effort_now, j.capabilities, j.excluded,
              j.avoided, j.handed_off, j.pinned, j.workspace,
              greatest(extract(epoch from clock_timestamp() - j.due_at), 0)::float as due_seconds,
              (select case when min(held_at) > clock_timestamp() then 0
                           else extract(epoch from clock_timestamp() - min(held_at)) end::float from jobs
               where pool = f.pool and requirement_key = f.requirement_key and state = 'queued'
                 and not_before is null) as held_seconds
       from (select * from fronts limit %(limit)s) f
       cross join lateral (select * from jobs where id = f.id limit 1) j
       join projects p on p.id = j.project_id""",
)
AGES = Statement(
    "metric-ages",
    "when the installation was made, and seconds since the last tick, or since then if there was none",
    """select created_at, greatest(extract(epoch from clock_timestamp() - coalesce(last_tick_at, created_at)), 0)::float
                as tick_age
       from installation where id = 1""",
)
AUDIT = Statement(
    "metric-audit",
    "what the last audit by itself found; the primary key serves it",
    "select as_of, took_ms, found from audits order by id desc limit 1",
)
KEEP_AUDIT = Statement(
    "audit-keep",
    "keep what an audit found, and drop what older ones did, all but the last hundred",
    """with kept as (
         insert into audits (as_of, took_ms, found) values (%(as_of)s, %(took_ms)s, %(found)s::jsonb) returning id)
       delete from audits where id <= (select id from kept) - 100""",
)
AUDIT_AGE = Statement(
    "audit-age",
    "milliseconds since the last audit by itself, and how long it took; the primary key serves it",
    """select (extract(epoch from clock_timestamp() - as_of) * 1000)::bigint as age_ms, took_ms
       from audits order by id desc limit 1""",
)
