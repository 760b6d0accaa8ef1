"""Measurements: the demand one is taken from, and the latest one of each project, kept as events on its ledger.

Demand is one row per attempt that wanted a local engine and was first looked at within the window: those that were
granted a run, and those that wait now. Left out are runs refused for want of capacity, whose attempt is given back
and comes again, and runs withdrawn before they started.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vibey.domain.offer import Mode
from vibey.store import ledger
from vibey.store.ledger import Event
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from vibey.domain.measure import Measurement

STANDINGS = Statement(
    "measurement-standings",
    "some projects' policies and latest measurements, with the local engines a measurement is about",
    """select p.id, p.name, p.policy::text as policy, m.id as event, m.at, m.data::text as data,
              (extract(epoch from clock_timestamp() - m.at) * 1000)::bigint as age_ms, local.slots
       from projects p
       cross join (select coalesce(json_object_agg(name, slots order by name), '{}')::text as slots
                   from engines where configured and enabled and tier = 'local') local
       left join lateral (select id, at, data from ledger where kind = 'EngineDispatchMeasured' and project_id = p.id
                          order by id desc limit 1) m on true
       where p.name = any(%(names)s)""",
    prepared=True,
)
LATEST = Statement(
    "measurement-latest",
    "lock some projects and read the number of each one's latest measurement",
    """select p.id, (select l.id from ledger l where l.kind = 'EngineDispatchMeasured' and l.project_id = p.id
                     order by l.id desc limit 1) as event
       from projects p where p.id = any(%(projects)s) order by p.id for no key update""",
)
SINCE = Statement(
    "measurement-since",
    "since when a project's measurements in a row have had the same winner as the latest",
    """select min(at) from ledger
       where kind = 'EngineDispatchMeasured' and project_id = %(project)s and id > coalesce((
         select id from ledger where kind = 'EngineDispatchMeasured' and project_id = %(project)s
           and data->>'winner' is distinct from %(winner)s order by id desc limit 1), 0)""",
)
SET_SINCE = Statement(
    "measurement-set-since",
    "when a project's mode was last set; the index on a project's events serves it",
    """select max(at) from ledger where project_id = %(project)s
         and (kind = 'ProjectCreated' or kind = 'ProjectChanged' and data ? 'mode')""",
)
# An attempt handed off to another engine has more runs than one, and one first look.
RAN = Statement(
    "measurement-ran",
    "attempts that wanted a local engine and were granted a run, newest first; running time is null where it was paid",
    """with attempts as materialized (
         select r.job_id, r.attempt, r.due_at,
                sum(case when r.started_at > coalesce(r.ended_at, clock_timestamp()) then 0
                         else extract(epoch from coalesce(r.ended_at, clock_timestamp()) - r.started_at) end)
                  filter (where e.tier = 'local') as running
         from runs r join engines e on e.name = r.engine
         where r.due_at between clock_timestamp() - make_interval(hours => %(hours)s) and clock_timestamp()
           and (r.started_at is not null or r.ended_at is null)
           and (e.tier = 'local' or r.why in ('overflow', 'fallback'))
           and r.failure_class is distinct from 'capacity'
         group by r.due_at, r.job_id, r.attempt order by r.due_at desc, r.job_id desc limit %(limit)s)
       select a.job_id, a.attempt, p.name as project, j.pool, j.priority, j.capabilities, j.excluded,
              j.pinned, j.workspace, (extract(epoch from j.created_at) * 1000)::bigint as enqueued_ms,
              (extract(epoch from a.due_at) * 1000)::bigint as due_ms, (a.running * 1000)::bigint as running_ms
       from attempts a join jobs j on j.id = a.job_id join projects p on p.id = j.project_id""",
)
WAITING = Statement(
    "measurement-waiting",
    "attempts that are due and wait, newest jobs first",
    """select j.id as job_id, j.attempt + 1 as attempt, p.name as project, j.pool, j.priority, j.capabilities,
              j.excluded, j.pinned, j.workspace, (extract(epoch from j.created_at) * 1000)::bigint as enqueued_ms,
              (extract(epoch from j.due_at) * 1000)::bigint as due_ms, null::bigint as running_ms
       from (select * from jobs where state = 'queued' and ended_at is null and not_before is null
               and due_at between clock_timestamp() - make_interval(hours => %(hours)s) and clock_timestamp()
             order by id desc limit %(limit)s) j join projects p on p.id = j.project_id""",
)
LOCAL = Statement(
    "measurement-local",
    "the local engines a measurement is about, with their capabilities",
    "select name, capabilities from engines where configured and enabled and tier = 'local' order by name",
)
NOW_MS = Statement(
    "measurement-now", "the instant a window ends", "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What later decisions need of a recorded measurement; `evidence` is all of it, as JSON values."""

    winner: Mode
    fingerprint: str
    reason: str
    evidence: dict[str, Any]


@lru_cache(maxsize=1024)
def recorded(data: str) -> Recorded | None:
    """The measurement an event's data hold; None when this version cannot read them."""
    try:
        value = json.loads(data)
        return Recorded(Mode(value["winner"]), _text(value["fingerprint"]), _text(value["reason"]), value)
    except (ValueError, KeyError, TypeError):
        return None


def standings(connection: Connection, names: Sequence[str]) -> Sequence[Row[Any]]:
    """A row per project found: `id`, `name`, `policy`, `slots` of local engines and the latest `data` as JSON text.

    `event`, `at`, `age_ms` and `data` are None where nothing was measured yet.
    """
    return STANDINGS.all(connection, names=list(names))


def demand(connection: Connection, hours: int, limit: int) -> tuple[Sequence[Row[Any]], Sequence[Row[Any]], int]:
    """Attempts first looked at within so many hours: those granted a run, those that wait, and the instant of now.

    Of each at most the newest `limit`; an attempt handed off or given back may be among both. `running_ms` is None
    where the attempt has not run on a local engine; instants and durations are milliseconds.
    """
    ran = RAN.all(connection, hours=hours, limit=limit)
    return ran, WAITING.all(connection, hours=hours, limit=limit), int(NOW_MS.scalar(connection))


def local_engines(connection: Connection) -> dict[str, frozenset[str]]:
    """The local engines a measurement is about, with their capabilities."""
    return {row.name: frozenset(row.capabilities) for row in LOCAL.all(connection)}


def lock_latest(connection: Connection, projects: Sequence[int]) -> dict[int, int | None]:
    """Lock these projects; the number of each one's latest measurement, None where there is none."""
    LATEST.all(connection, projects=list(projects))
    # Read again: what the lock was waited for is seen only by a statement that began after it.
    return {row.id: row.event for row in LATEST.all(connection, projects=list(projects))}


def append(connection: Connection, project: int, measured: Measurement) -> None:
    """Record a measurement on the ledger of a project whose row is locked."""
    ledger.append(connection, Event.ENGINE_DISPATCH_MEASURED, project=project, data=measured.to_json())


def same_since(connection: Connection, project: int, winner: str) -> datetime | None:
    """Since when each of the project's measurements had this winner, which the latest has."""
    since: datetime | None = SINCE.scalar(connection, project=project, winner=winner)
    return since


def set_since(connection: Connection, project: int) -> datetime | None:
    """When the project's mode was last set, or the project made; None for the default project as it came."""
    since: datetime | None = SET_SINCE.scalar(connection, project=project)
    return since


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
