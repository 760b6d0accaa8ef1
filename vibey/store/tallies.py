"""Tallies: histograms of durations, folded from the rows that already tell them.

A pass's row says when it began and when it was written; the ledger says when a run ended and when the next one started.
So nothing is counted where jobs are routed and run. Whoever shows the histograms first folds in what has come since: a
few thousand rows by primary key, and one row of this table written, however many processes route.

Who is authoritative: the tally's row. It is locked while it is folded, and who finds it locked leaves the work to the
other, so that however many fold, each row counts once. `cursor` is the last row folded in. Numbers are given out in
order but committed out of order, so the youngest rows are left for later: a transaction that had not ended `LAG_MS`
after its row was written would be missed, and its observation lost. A tally begins at the rows of its making, and one
that was not folded for so long that more than `PAGE` rows wait leaves out the older ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Upper bounds in microseconds.
BOUNDS = (
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000
)  # fmt: skip
DECISION, HANDOVER = "decision", "handover"
LAG_MS = 10_000
PAGE = 50_000
# Rows that a transaction may still be before. What lies in the future was written before the clock was set back.
_RECENTLY = (
    "statement_timestamp() - %(lag_ms)s * interval '1 millisecond' and statement_timestamp() + interval '1 second'"
)
# So many events before the first new one are looked at, to find the end that a start followed.
CONTEXT = 5_000

_BEGUN = "(select coalesce(max(id), 0) from {table})"
BEGIN = Statement(
    "tally-begin",
    "begin the tallies at the rows there are now",
    f"""insert into tallies (name, cursor, counts)
        select name, cursor, array_fill(0::bigint, array[%(buckets)s]) from (values
          ('{DECISION}', {_BEGUN.format(table="passes")}), ('{HANDOVER}', {_BEGUN.format(table="ledger")})
        ) t(name, cursor)
        on conflict do nothing""",  # noqa: S608  constant
)
READ = Statement("tally-read", "the tallies", "select name, counts, total, micros from tallies")
_ADD = """
       told as (
         select count(micros) as n, coalesce(sum(micros), 0)::bigint as micros,
                (select array_agg((select count(*) from seen where micros <= le) order by le)
                 from unnest(%(bounds)s::bigint[]) le) as counts
         from seen)
       update tallies t set cursor = reach.last, total = t.total + told.n, micros = t.micros + told.micros,
              counts = (select array_agg(old + new order by place)
                        from unnest(t.counts, told.counts) with ordinality as u(old, new, place))
       from mine, reach, told where t.name = mine.name and reach.last > mine.cursor"""
FOLD_DECISIONS = Statement(
    "tally-fold-decisions",
    "fold in how long new passes took, from their transaction's begin to the writing of what they decided, of one kept "
    "in parts the last; the primary key serves it",
    f"""with mine as materialized (
         select name, cursor from tallies where name = '{DECISION}' for no key update skip locked),
       page as materialized (
         select p.id, p.pool, p.at, p.began_at from mine cross join lateral (
           select id, pool, at, began_at from passes
           where id > greatest(mine.cursor, (select max(id) from passes) - %(page)s) order by id) p),
       reach as (
         select coalesce((select min(id) from page
                            where at between {_RECENTLY}) - 1,
                         (select max(id) from page)) as last),
       seen as materialized (
         select greatest(extract(epoch from max(at) - began_at) * 1000000, 0)::bigint as micros
         from page, reach where id <= last group by pool, began_at),
       {_ADD}""",  # noqa: S608  constant
)
# Slots carry no number, but levels do: a grant that takes the last free slot of an engine follows the end that freed
# it. The level after each event is the number of runs live now, less what the later events changed.
FOLD_HANDOVERS = Statement(
    "tally-fold-handovers",
    "fold in, for new starts, the time since the successful end that freed the slot, where the engine was full and the "
    "job was due by then; the primary keys serve it",
    f"""with mine as materialized (
         select name, cursor from tallies where name = '{HANDOVER}' for no key update skip locked),
       page as materialized (
         select l.id, l.at, l.kind, l.engine, l.run_id,
                case when l.kind = 'RunGranted' then 1 when l.kind = 'RunStarted' then 0 else -1 end as step
         from mine cross join lateral (
           select id, at, kind, engine, run_id from ledger
           where id > greatest(mine.cursor, (select max(id) from ledger) - %(page)s) - %(context)s
             and (select max(id) from ledger) > mine.cursor order by id) l
         where l.run_id is not null and l.kind in
           ('RunGranted', 'RunStarted', 'JobSucceeded', 'JobFailed', 'JobRequeued', 'JobCancelled')),
       reach as (
         select coalesce((select min(id) from page, mine where id > cursor
                            and at between {_RECENTLY}) - 1,
                         (select max(id) from page)) as last),
       levels as (
         select p.*, coalesce(live.n, 0) - coalesce(sum(step) over later, 0) as level
         from page p
         left join (select engine, count(*) as n from runs where ended_at is null group by engine) live using (engine)
         where p.step <> 0
         window later as (partition by p.engine order by p.id desc rows between unbounded preceding and 1 preceding)),
       edges as (
         select l.run_id, l.kind, lag(l.kind) over edge as freed_by, lag(l.at) over edge as freed_at
         from levels l join engines e on e.name = l.engine
         where case when l.step = 1 then l.level else l.level + 1 end = e.slots
         window edge as (partition by l.engine order by l.id)),
       seen as materialized (
         select greatest(extract(epoch from s.at - e.freed_at) * 1000000, 0)::bigint as micros
         from mine, reach, page s join edges e on e.run_id = s.run_id join runs r on r.id = s.run_id
         where s.kind = 'RunStarted' and s.id > cursor and s.id <= last and e.kind = 'RunGranted'
           and e.freed_by = 'JobSucceeded' and r.due_at <= e.freed_at and r.why <> 'overflow'),
       {_ADD}""",  # noqa: S608  constant
)


@dataclass(frozen=True, slots=True)
class Tally:
    """A histogram: how many were at most each of `BOUNDS`, how many in all, and their sum in microseconds."""

    counts: tuple[int, ...] = (0,) * len(BOUNDS)
    total: int = 0
    micros: int = 0


def fold(connection: Connection, lag_ms: int = LAG_MS) -> None:
    """Fold in what has come, up to so many milliseconds ago; begins the tallies where there are none."""
    bounds = list(BOUNDS)
    if len(READ.all(connection)) < len((DECISION, HANDOVER)):
        BEGIN.run(connection, buckets=len(bounds))
    FOLD_DECISIONS.run(connection, bounds=bounds, lag_ms=lag_ms, page=PAGE)
    FOLD_HANDOVERS.run(connection, bounds=bounds, lag_ms=lag_ms, page=PAGE, context=CONTEXT)


def read(connection: Connection) -> dict[str, Tally]:
    """The tallies by name; both, empty where none was begun."""
    found = {row.name: Tally(tuple(row.counts), row.total, row.micros) for row in READ.all(connection)}
    return {name: found.get(name, Tally()) for name in (DECISION, HANDOVER)}
