"""Audit: reading the whole record as of one instant, to find out whether the invariants held.

Everything is read in one REPEATABLE READ transaction that cannot write, so an audit of a busy installation sees one
instant of it and disturbs nobody. What is asked is in `vibey.store.checks`; what cannot be asked in SQL, whether a paid
pick was made beside a free local slot, is replayed from the passes read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.domain.rotation import UNIT
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from vibey.store.checks import Check

LIMIT = 50
GRACE_SECONDS = 30
SNAPSHOT = Statement(
    "audit-snapshot", "see one instant, and write nothing", "set transaction isolation level repeatable read, read only"
)
# The tables are read whole, which neither indexes nor the usual limits are made for.
SETTINGS = Statement(
    "audit-settings",
    "be planned and timed as a reader of whole tables",
    "set local enable_seqscan = on; set local work_mem = '64MB'; set local statement_timeout = '15min'",
)
COUNTS = Statement(
    "audit-counts",
    "how much the audit looked at",
    """select (select count(*) from jobs)::bigint as jobs, (select count(*) from runs)::bigint as runs,
              (select count(*) from passes)::bigint as passes, (select count(*) from decisions)::bigint as decisions,
              count(*)::bigint as events,
              count(*) filter (where utc_day is not null and kind <> 'EngineOverflowReleased')::bigint as units,
              count(*) filter (where kind = 'EngineOverflowSelected')::bigint as overflows,
              count(*) filter (where kind = 'PaidFallbackSelected')::bigint as fallbacks
       from ledger""",
)

PAID_PASSES = Statement(
    "audit-paid-passes",
    "passes that gave a job to a paid engine though a local one was configured",
    """select distinct d.pass_id from decisions d join passes p on p.id = d.pass_id
       where d.tier = 'paid' and (d.outcome <> 'assign' or p.world -> 'engines' @> '[{"tier": "local"}]')
       order by 1""",
)
WORLDS = Statement(
    "audit-worlds", "the worlds some passes began with", "select id, world from passes where id = any(%(passes)s)"
)
DECISIONS = Statement(
    "audit-decisions",
    "every decision of some passes in order, with what the event of a paid exception says of local slots",
    """select d.pass_id, d.run_id, d.outcome, d.engine, d.requirement, l.data -> 'local_slots' as local_slots
       from decisions d
       left join ledger l on d.outcome <> 'assign' and l.job_id = d.job_id and l.run_id = d.run_id
         and l.kind in ('EngineOverflowSelected', 'PaidFallbackSelected')
       where d.pass_id = any(%(passes)s) order by d.pass_id, d.ordinal""",
)


def begin(connection: Connection) -> None:
    """Fix the instant this transaction sees; must come before anything is read."""
    SNAPSHOT.run(connection)
    SETTINGS.run(connection)


def counts(connection: Connection) -> dict[str, int]:
    """How much there is of each kind of row."""
    return dict(COUNTS.all(connection)[0]._mapping)  # noqa: SLF001  the public name of a row as a mapping


def breaches(connection: Connection, check: Check) -> list[str]:
    """What breaks the invariant, as sentences; at most `LIMIT`."""
    values = {"limit": LIMIT, "grace": GRACE_SECONDS, "unit": UNIT}
    return [check.words.format(**row._mapping) for row in check.statement.all(connection, **values)]  # noqa: SLF001


def paid_passes(connection: Connection) -> list[int]:
    """The passes to replay, oldest first."""
    return [row.pass_id for row in PAID_PASSES.all(connection)]


def passes(connection: Connection, ids: Sequence[int]) -> list[tuple[Any, list[Row[Any]]]]:
    """Of some passes the world each began with, and its decisions in order."""
    wanted = list(ids)
    decisions: dict[int, list[Row[Any]]] = {each: [] for each in wanted}
    for row in DECISIONS.all(connection, passes=wanted):
        decisions[row.pass_id].append(row)
    return [(row.world, decisions[row.id]) for row in WORLDS.all(connection, passes=wanted)]
