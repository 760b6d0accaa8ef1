"""The cap: how many units of paid work a UTC day still allows, counted from the ledger and nothing else.

Who is authoritative: the ledger. A unit is an event that carries a `utc_day`: an overflow, a fallback where
the policy counts them, or, where the cap covers all paid runs, a plain assignment. It belongs to one run, and
is given back by one `EngineOverflowReleased` of the same run and day, only when that run provably did no
work. The count of a day is the units of that day less those given back; no counter exists that could drift
from it.

Exactness. Units are taken only by routing, which holds the project's row (for scope `installation` the
installation's row) from before it counts until it commits, so two routers cannot both take the last one,
with or without their Redis lock. Releases need no lock: they only lower the count. The instant at which units are
taken is read once per pass, and is that of their events; a unit belongs to the UTC day it was taken in, whatever
the hour of its run's end. A clock that is set back over midnight returns to the former day and its count.

What each failure does. A router that dies before its commit has taken nothing. A worker that dies after its
run started leaves the unit counted: the cap errs toward local. A unique index refuses a second unit, and a
second release, for one run.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from vibey.store.database import Connection
    from vibey.store.statement import Row

TODAY = Statement(
    "cap-today", "the UTC day by the database's clock", "select (clock_timestamp() at time zone 'utc')::date"
)
LOCK_INSTALLATION = Statement(
    "cap-lock-installation",
    "hold the installation's row, before any engine, where the cap is the installation's",
    "select id from installation where id = 1 for no key update",
)
LOCK_PROJECTS = Statement(
    "cap-lock-projects",
    "hold the rows of projects that may take a unit",
    """select id, clock_timestamp() as at from projects where name = any(%(names)s)
       order by id for no key update""",
)
USED = Statement(
    "cap-used",
    "units taken on a day and not given back, by project",
    """select p.name, count(*) filter (where l.kind <> 'EngineOverflowReleased')
              - count(*) filter (where l.kind = 'EngineOverflowReleased') as used
       from ledger l join projects p on p.id = l.project_id
       where l.utc_day = %(day)s and (%(names)s::text[] is null or p.name = any(%(names)s))
       group by p.name""",
)
UNITS = Statement(
    "cap-units",
    "the units taken on a day, newest first, each with the event that gave it back, if one did",
    """select l.id, l.at, l.kind, p.name as project, l.job_id, l.run_id, l.engine, l.data, j.state as job_state,
              r.state as run_state, r.cost_usd, back.id as released_id, back.at as released_at, back.data as released
       from ledger l join projects p on p.id = l.project_id
       left join jobs j on j.id = l.job_id left join runs r on r.id = l.run_id
       left join ledger back on back.run_id = l.run_id and back.utc_day is not null
         and (back.kind = 'EngineOverflowReleased') = true
       where l.utc_day = %(day)s and l.kind <> 'EngineOverflowReleased'
         and (%(names)s::text[] is null or p.name = any(%(names)s))
         and (%(before)s::bigint is null or l.id < %(before)s)
       order by l.id desc limit %(limit)s""",
)
# What is left out are the runs that would have given a unit back: see `Failure.did_no_work`.
OUTSIDE = Statement(
    "cap-outside",
    "paid runs granted on a day that took no unit, by project; those that provably did no work are left out",
    """select p.name, count(*) as runs
       from decisions d join runs r on r.id = d.run_id
       join jobs j on j.id = r.job_id join projects p on p.id = j.project_id
       where d.tier = 'paid' and not r.counted
         and d.pass_id >= (select id from passes where at >= (%(day)s::date)::timestamp at time zone 'utc'
                           order by at limit 1)
         and r.state <> 'withdrawn'
         and not coalesce(r.failure_class = 'capacity' and coalesce(r.tokens_in, 0) = 0
                          and coalesce(r.tokens_out, 0) = 0 and coalesce(r.cost_usd, 0) = 0, false)
         and (%(names)s::text[] is null or p.name = any(%(names)s))
       group by p.name""",
)


def today(connection: Connection) -> date:
    """The UTC day of this instant: the one answer for cap, command line, pages and metrics."""
    day: date = TODAY.scalar(connection)
    return day


def lock_installation(connection: Connection) -> None:
    """Hold the installation's row; must come before any other lock."""
    LOCK_INSTALLATION.all(connection)


def lock_projects(connection: Connection, names: Sequence[str]) -> datetime:
    """Hold these projects' rows, after engines, accounts and credits, before jobs.

    Returns the instant at which units are taken, in UTC: it decides the day they are counted for, and is their event's.
    """
    at: datetime = LOCK_PROJECTS.all(connection, names=list(names))[-1].at
    return at.astimezone(UTC)


def used(connection: Connection, day: date, names: Sequence[str] | None = None) -> dict[str, int]:
    """Units used on a day by project, those with none left out; of some projects, or of all."""
    rows = USED.all(connection, day=day, names=None if names is None else list(names))
    return {row.name: row.used for row in rows}


def outside(connection: Connection, day: date, names: Sequence[str] | None = None) -> dict[str, int]:
    """Paid runs of a day that took no unit of the cap, by project, those with none left out; of some, or of all."""
    rows = OUTSIDE.all(connection, day=day, names=None if names is None else list(names))
    return {row.name: row.runs for row in rows}


def units(
    connection: Connection, day: date, names: Sequence[str] | None, *, before: int | None, limit: int
) -> Sequence[Row[Any]]:
    """The units taken on a day, of some projects or of all, newest first; `before` pages on from an event's number."""
    listed = None if names is None else list(names)
    return UNITS.all(connection, day=day, names=listed, before=before, limit=limit)
