"""Notes: why groups of queued jobs wait, and who may write that for a pool.

A pass writes a few reasons in its own transaction. More than that is written after it, in several transactions that
lock no engine, by whoever has *claimed* the pool's notes: each of them holds the pool's row, and writes only while the
claim stands. Whatever else writes reasons of the pool takes the row, which ends the claim. So no reason is ever
overwritten by one that was found earlier.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

CLAIM = Statement(
    "notes-claim",
    "claim a pool's notes; ends any other claim on them, after the transaction that writes under it",
    """insert into notings (pool, number, claimed) values (%(pool)s, 1, true)
       on conflict (pool) do update set number = notings.number + 1, claimed = true returning number""",
)
TAKE = Statement(
    "notes-take",
    "end any claim on a pool's notes, and keep others from claiming them until this transaction ends; with an expected "
    "number only if nobody has taken or claimed them since that was read",
    """insert into notings (pool, number, claimed) values (%(pool)s, 1, false)
       on conflict (pool) do update set number = notings.number + 1, claimed = false
       where %(expected)s::bigint is null or notings.number = %(expected)s
       returning number""",
)
LOCK = Statement(
    "notes-lock",
    "hold a pool's claimed notes while some are written",
    "select 1 from notings where pool = %(pool)s and number = %(number)s and claimed for no key update",
)
RELEASE = Statement(
    "notes-release",
    "end a claim that has served",
    "update notings set claimed = false where pool = %(pool)s and number = %(number)s and claimed",
)
SET_GROUPS = Statement(
    "group-set",
    "note why some groups wait",
    """insert into group_states (pool, requirement_key, reason)
       select %(pool)s, key, reason from json_to_recordset(%(rows)s::json) as r(key bigint, reason text) order by key
       on conflict (pool, requirement_key) do update set reason = excluded.reason, since = clock_timestamp()""",
)
CLEAR_GROUPS = Statement(
    "group-clear",
    "forget why some groups waited",
    """delete from group_states g using (
         select ctid from group_states where pool = %(pool)s and requirement_key = any(%(keys)s)
         order by requirement_key for update) held
       where g.ctid = held.ctid""",
)
FORGET_GROUPS = Statement(
    "group-forget",
    "drop reasons of groups that have no due job any more, skipping any that are being written",
    """delete from group_states g using (
         select ctid from group_states s where not exists (
           select 1 from jobs j where j.pool = s.pool and j.requirement_key = s.requirement_key
             and j.state = 'queued' and j.not_before is null)
         for update skip locked) held
       where g.ctid = held.ctid""",
)


def claim(connection: Connection, pool: str) -> int:
    """Claim a pool's notes; the number of the claim."""
    return int(CLAIM.scalar(connection, pool=pool))


def take(connection: Connection, pool: str, expected: int | None = None) -> bool:
    """End any claim on a pool's notes; False when `expected` is given and is not the number in force."""
    return TAKE.scalar(connection, pool=pool, expected=expected) is not None


def lock(connection: Connection, pool: str, number: int) -> bool:
    """Hold a pool's notes under a claim; False when the claim has ended."""
    return LOCK.first(connection, pool=pool, number=number) is not None


def release(connection: Connection, pool: str, number: int) -> None:
    """End a claim."""
    RELEASE.run(connection, pool=pool, number=number)


def write(connection: Connection, pool: str, reasons: Mapping[int, str], cleared: Sequence[int]) -> None:
    """Write why groups wait, and forget it for those that do not any more. The caller has taken or locked the notes."""
    if reasons:
        rows = [{"key": key, "reason": reason} for key, reason in reasons.items()]
        SET_GROUPS.run(connection, pool=pool, rows=json.dumps(rows))
    if cleared:
        CLEAR_GROUPS.run(connection, pool=pool, keys=list(cleared))
