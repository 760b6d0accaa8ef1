"""Adjustments: factors on members' weights, laid by a person or learned from runs, each with its end.

There is one of a kind for each member: laying it anew takes the place of the one before. Routing reads those in force
with the pool trees (`vibey.store.fleet.pools`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vibey.domain.layer import LayerKind
from vibey.domain.learning import History
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

# So many of the newest runs are looked at, so that a review costs the same however long the history is.
NEWEST = 10_000
LAY = Statement(
    "adjustment-lay",
    "lay a person's factor on a member for a while",
    """insert into adjustments (member, kind, factor, note, expires_at)
       values (%(member)s, %(kind)s, %(factor)s, %(note)s,
               clock_timestamp() + %(seconds)s * interval '1 second')
       on conflict (member, kind) do update set factor = excluded.factor, note = excluded.note, at = excluded.at,
         expires_at = excluded.expires_at
       returning expires_at""",
)
IN_FORCE = Statement(
    "adjustment-in-force",
    "lock a member's factor of one kind, if it has one that is in force",
    """select factor, note, expires_at from adjustments
       where member = %(member)s and kind = %(kind)s and expires_at > statement_timestamp() for update""",
)
LIFT = Statement(
    "adjustment-lift",
    "take a member's factor of one kind away",
    "delete from adjustments where member = %(member)s and kind = %(kind)s",
)
FORGET = Statement(
    "adjustment-forget",
    "drop factors that are over",
    "delete from adjustments where expires_at < statement_timestamp()",
)
HISTORY = Statement(
    "adjustment-history",
    "of each configured engine, how many of the newest runs ended of late by its doing, and how many failed by it",
    """select r.engine, count(*) as runs, count(*) filter (where r.failure_class is not null) as failed
       from (select engine, state, failure_class, ended_at from runs order by id desc limit %(newest)s) r
       join engines e on e.name = r.engine and e.configured
       where r.ended_at > clock_timestamp() - %(window_s)s * interval '1 second'
         and (r.state = 'succeeded' or r.failure_class = 'engine')
       group by r.engine order by r.engine""",
)
LEARN = Statement(
    "adjustment-learn",
    "lay learned factors, each in place of the one before, and note those that are new or other",
    """with found as materialized (
         select * from json_to_recordset(%(rows)s::json) as r(member text, factor bigint, note text)),
       known as (
         select a.member, a.factor from adjustments a join found using (member)
         where a.kind = %(kind)s and a.expires_at > statement_timestamp()),
       laid as (
         insert into adjustments (member, kind, factor, note, expires_at)
         select member, %(kind)s, factor, note, clock_timestamp() + %(seconds)s * interval '1 second'
         from found order by member
         on conflict (member, kind) do update set factor = excluded.factor, note = excluded.note, at = excluded.at,
           expires_at = excluded.expires_at
         returning member, expires_at)
       insert into ledger (kind, engine, data)
       select 'EngineChanged', found.member,
              jsonb_build_object('layer', %(kind)s::text, 'member', found.member, 'factor', found.factor / 1e6::float,
                'until', to_char(laid.expires_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'note', found.note)
       from found join laid using (member) left join known using (member)
       where known.factor is distinct from found.factor order by found.member""",
)


def prefer(connection: Connection, member: str, factor: int, note: str, seconds: float) -> datetime:
    """Lay a person's factor, in millionths, on a member; returns when it ends."""
    kind = LayerKind.PREFERENCE.value
    until: datetime = LAY.scalar(connection, member=member, kind=kind, factor=factor, note=note, seconds=seconds)
    return until


def preference(connection: Connection, member: str) -> Row[Any] | None:
    """A person's factor on a member (`factor`, `note`, `expires_at`), locked; None where none is in force."""
    return IN_FORCE.first(connection, member=member, kind=LayerKind.PREFERENCE.value)


def clear(connection: Connection, member: str) -> None:
    """Take a person's factor on a member away, if there is one."""
    LIFT.run(connection, member=member, kind=LayerKind.PREFERENCE.value)


def histories(connection: Connection, window_s: float) -> list[History]:
    """What the runs ended within the window, of the newest, say about each engine they were on."""
    rows = HISTORY.all(connection, newest=NEWEST, window_s=window_s)
    return [History(row.engine, row.runs, row.failed) for row in rows]


def learn(connection: Connection, found: Sequence[tuple[str, int, str]], seconds: float) -> None:
    """Lay learned factors: (engine, millionths, note)."""
    rows = [{"member": member, "factor": factor, "note": note} for member, factor, note in found]
    LEARN.run(connection, rows=json.dumps(rows), kind=LayerKind.LEARNED.value, seconds=seconds)
