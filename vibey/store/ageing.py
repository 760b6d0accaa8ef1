"""Ageing: where jobs stand in the queue, and how that follows from their priority and how long they have waited.

A job's standing (`vibey.domain.turn`) is written when it is enqueued, by the ageing the installation's row names, so
that an index can keep the queue in order. When a configuration with another `priority_age_seconds` is put in force,
the open jobs are reckoned anew in one transaction, during which nobody can queue or move a job.
Ended jobs keep what they had, until one is queued again by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from vibey.store.database import Connection

# `standing` of vibey.domain.turn, in SQL.
STANDING = (
    "case when age_ms = 0 then -priority else (extract(epoch from created_at) * 1000)::bigint - priority * age_ms end"
)

AGE = Statement("age-read", "the ageing that jobs are queued with", "select age_ms from installation", prepared=True)
SET_AGE = Statement(
    "age-set",
    "name the ageing that jobs are queued with, if it is another",
    "update installation set age_ms = %(age_ms)s where age_ms <> %(age_ms)s returning age_ms",
)
# After the installation's row: whoever needs both has locked that one first. Rows are not to be locked either: whoever
# held one, to move it next, would wait for the table, and this transaction for that row.
STOP_QUEUE = Statement(
    "age-stop-queue",
    "let nobody queue, move or hold a job until the end of the transaction",
    "lock table jobs in exclusive mode",
)
# A deep queue takes longer than any other statement may; to break off only stops it once more for the next try.
TAKE_TIME = Statement("age-take-time", "give the reckoning the time it needs", "set local statement_timeout = '15min'")
RESTAND = Statement(
    "age-restand",
    "reckon where every open job stands by the ageing now in force",
    f"""update jobs j set standing = s.standing
       from (select o.id, {STANDING} as standing
             from (select id, priority, created_at from jobs where ended_at is null) o,
                  (select age_ms from installation) i) s
       where s.id = j.id and s.standing <> j.standing""",  # noqa: S608  (made of constants)
)


def change(connection: Connection, age_ms: int) -> bool:
    """Have waiting jobs gain one priority every so many milliseconds, 0 for never; whether that is news."""
    if SET_AGE.first(connection, age_ms=age_ms) is None:
        return False
    TAKE_TIME.run(connection)
    STOP_QUEUE.run(connection)
    RESTAND.run(connection)
    return True
