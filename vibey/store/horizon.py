"""Horizon: how old jobs leave the record, and what stays of them so that everything told of the rest stays true.

Who is authoritative: the horizon's one row. It is locked by whoever prunes; who finds it locked leaves the work to the
other. Each statement here is a transaction of its own that leaves the record whole, so a death between any two costs
nothing, and the next one goes on from what is there.

What leaves, in this order. *Folded*: passes in the order of their numbers, none left out, are added up: what they
moved of each credit goes into its opening balance, and the horizon's `pass_id` stands at the last of them. From then on
the identity of credits and their chain are reckoned from the openings and the later passes. *Removed*: a job that ended
long ago, with its runs, if all passes about it are folded and no account points to one of its runs as its last probe;
what its runs spent goes into the sums of their days. *Swept*: a folded pass, with all of its decisions, unless one of
them is about a job still there, or is the latest about a group that waits. A pass stays whole or goes whole, since its
decisions are replayed on one another; so each run that is there has its decision, and each decision that is there
replays.

What stays. The ledger: the database lets nobody remove from it. With it every unit of the cap, every measurement, and
the counts of picks. `jobs` and `runs` count what was removed: what the ledger tells of and is neither there nor
counted has been lost, and an audit says so.

Foreign readers. A job is removed only while nobody holds its row, and only if it has ended long ago even in its latest
version: who retries it at that moment comes first or finds it gone. Readers of one instant still see all of it; readers
of several must take a row that is gone for one that never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row


def moves(within: str) -> str:
    """The query `moves`: what each step of the decisions of some passes gave, and took from, each credit.

    `within` is the condition on a pass's number, written `{id}`. Each pass's classes are taken apart once: one of many
    members is dear to look into for every member anew.
    """
    return f"""offered as materialized (
         select p.id as pass_id, drawn.place - 1 as place, drawn.class ->> 0 as pool, m.n, m.member, m.share::bigint
         from passes p
         cross join lateral jsonb_array_elements(p.classes) with ordinality drawn(class, place)
         cross join lateral rows from (
           jsonb_array_elements_text(drawn.class -> 3), jsonb_array_elements_text(drawn.class -> 4)
         ) with ordinality m(member, share, n)
         where {within.format(id="p.id")}),
       moves as (
         select d.id, o.pool, o.member, o.share, b.before::bigint, o.member = step ->> 2 as chosen
         from decisions d
         cross join lateral jsonb_array_elements(d.trace -> 'steps') step
         cross join lateral jsonb_array_elements_text(step -> 1) with ordinality b(before, n)
         join offered o on o.pass_id = d.pass_id and o.place = (step ->> 0)::int and o.n = b.n
         where {within.format(id="d.pass_id")})"""  # noqa: S608  constant


LOCK = Statement(
    "horizon-lock",
    "hold the horizon, or find that someone else prunes",
    "select pass_id from horizon where id = 1 for no key update skip locked",
)
READ = Statement("horizon-read", "how far the record was pruned", "select job_id, jobs, runs, before from horizon")
CUTOFF = Statement(
    "horizon-cutoff", "the instant so many hours ago", "select clock_timestamp() - make_interval(hours => %(hours)s)"
)
FOLD = Statement(
    "horizon-fold",
    "add up what the next passes moved, as far as they are old; the primary key serves it",
    f"""with page as materialized (
         select id, at from passes where id > %(folded)s order by id limit %(limit)s),
       reach as materialized (
         select max(id) as last from page
         where id < coalesce((select min(id) from page where at >= %(cutoff)s), 9223372036854775807)),
       {moves("{id} > %(folded)s and {id} <= (select last from reach)")},
       carried as (
         insert into openings (pool, member, credit)
         select pool, member, sum(share - case when chosen then %(unit)s else 0 end) from moves group by pool, member
         order by pool, member
         on conflict (pool, member) do update set credit = openings.credit + excluded.credit)
       update horizon set pass_id = last from reach where id = 1 and last is not null
       returning (select count(*) from page where id <= last) as passes""",  # noqa: S608  constant
)
REMOVE = Statement(
    "horizon-remove",
    "remove those of the next jobs that ended long ago, with their runs, and keep what those spent; by primary key, as "
    "job numbers grow with their instants",
    """with page as materialized (
         select id, created_at, ended_at from jobs where id > %(after)s order by id limit %(limit)s),
       old as materialized (
         select j.id, j.project_id, j.labels from jobs j
         where j.id = any(array(select id from page where ended_at < %(cutoff)s)) and j.ended_at < %(cutoff)s
           and not exists (select 1 from decisions d where d.job_id = j.id and d.pass_id > %(folded)s)
           and not exists (select 1 from runs r join accounts a on a.probe_run_id = r.id where r.job_id = j.id)
         order by j.id for update skip locked),
       ran as (
         delete from runs r using old where r.job_id = old.id
         returning r.engine, r.granted_at, r.started_at, r.tokens_in, r.tokens_out, r.cost_usd, old.project_id),
       spent as (
         insert into spendings (day, project_id, engine, runs, tokens_in, tokens_out, cost_usd)
         select (granted_at at time zone 'utc')::date, project_id, engine, count(*), coalesce(sum(tokens_in), 0),
                coalesce(sum(tokens_out), 0), coalesce(sum(cost_usd), 0)
         from ran where started_at is not null group by 1, 2, 3 order by 1, 2, 3
         on conflict (day, project_id, engine) do update set runs = spendings.runs + excluded.runs,
           tokens_in = spendings.tokens_in + excluded.tokens_in,
           tokens_out = spendings.tokens_out + excluded.tokens_out, cost_usd = spendings.cost_usd + excluded.cost_usd),
       unlabelled as (
         delete from job_labels n using old cross join lateral jsonb_each_text(old.labels) l
         where n.key = l.key and n.value = l.value and n.job_id = old.id),
       gone as (delete from jobs j using old where j.id = old.id returning j.id),
       noted as (
         update horizon h set jobs = h.jobs + g.jobs, runs = h.runs + (select count(*) from ran),
                job_id = greatest(h.job_id, g.last), before = greatest(h.before, %(cutoff)s)
         from (select count(*) as jobs, max(id) as last from gone) g where h.id = 1 and g.jobs > 0)
       select max(id) as reached, bool_or(created_at < %(cutoff)s) as aged, (select count(*) from gone) as jobs,
              (select count(*) from ran) as runs
       from page""",
)
SWEEP = Statement(
    "horizon-sweep",
    "remove those of the next folded passes that are about nothing there is, with their decisions",
    """with page as materialized (
         select id from passes where id > %(after)s and id <= %(folded)s order by id limit %(limit)s),
       loose as materialized (
         select id from page p
         where not exists (select 1 from decisions d join jobs j on j.id = d.job_id where d.pass_id = p.id)
           and not exists (
             select 1 from decisions d join group_states g on g.requirement_key = d.requirement_key
             where d.pass_id = p.id
               and d.id = (select max(l.id) from decisions l where l.requirement_key = d.requirement_key))),
       undecided as (delete from decisions d using loose where d.pass_id = loose.id),
       gone as (delete from passes p using loose where p.id = loose.id returning p.id)
       select max(id) as reached, (select count(*) from gone) as passes from page""",
)
SIZE = Statement("horizon-size", "bytes on disk of the database", "select pg_database_size(current_database())")
TOLD = Statement(
    "horizon-told",
    "whether the ledger tells of a job",
    "select exists (select 1 from ledger where job_id = %(job)s)",
)


def fold(connection: Connection, cutoff: datetime, unit: int, limit: int) -> int | None:
    """Fold the next passes older than the cutoff; how many, 0 at the end, None when someone else prunes."""
    folded = LOCK.scalar(connection)
    if folded is None:
        return None
    row = FOLD.first(connection, folded=folded, cutoff=cutoff, unit=unit, limit=limit)
    return 0 if row is None else row.passes


def remove(connection: Connection, cutoff: datetime, after: int, limit: int) -> Row[Any] | None:
    """Look at the next jobs and remove the old ones: `reached` (None at the end), `aged`, and how many `jobs`, `runs`.

    `aged` says that some were enqueued before the cutoff, so that later ones may be too. None when someone else prunes.
    """
    folded = LOCK.scalar(connection)
    if folded is None:
        return None
    return REMOVE.first(connection, folded=folded, cutoff=cutoff, after=after, limit=limit)


def sweep(connection: Connection, after: int, limit: int) -> Row[Any] | None:
    """Look at the next folded passes and remove the loose ones: `reached` (None at the end), and how many `passes`."""
    folded = LOCK.scalar(connection)
    if folded is None:
        return None
    return SWEEP.first(connection, folded=folded, after=after, limit=limit)
