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
# So many of the latest decisions an audit replays; `vibey replay` does all of them.
REPLAYED = 100_000
SNAPSHOT = Statement(
    "audit-snapshot", "see one instant, and write nothing", "set transaction isolation level repeatable read, read only"
)
# The tables are read whole, which neither indexes nor the usual limits are made for.
SETTINGS = Statement(
    "audit-settings",
    "be planned and timed as a reader of whole tables",
    "set local enable_seqscan = on; set local max_parallel_workers_per_gather = 2; "
    "set local work_mem = '64MB'; set local statement_timeout = '15min'",
)
COUNTS = Statement(
    "audit-counts",
    "how much the audit looked at",
    """select (select count(*) from jobs)::bigint as jobs, (select count(*) from runs)::bigint as runs,
              (select count(*) from passes)::bigint as passes, (select count(*) from decisions)::bigint as decisions,
              (select jobs from horizon) as removed_jobs, (select runs from horizon) as removed_runs,
              count(*)::bigint as events,
              count(*) filter (where utc_day is not null and kind <> 'EngineOverflowReleased')::bigint as units,
              count(*) filter (where kind = 'EngineOverflowSelected')::bigint as overflows,
              count(*) filter (where kind = 'PaidFallbackSelected')::bigint as fallbacks,
              count(*) filter (where kind = 'PaidAssignmentSelected')::bigint as counted_assignments
       from ledger""",
)

REPLAYED_PASSES = Statement(
    "audit-replayed-passes",
    "the passes of the latest decisions, and of all ages those that gave a job to a paid engine though a local one was "
    "configured, or where the cap covers all paid runs",
    """select pass_id from (select pass_id from decisions order by id desc limit %(latest)s) recent
       union
       select d.pass_id from decisions d join passes p on p.id = d.pass_id
       where d.tier = 'paid' and (d.outcome <> 'assign' or p.world -> 'engines' @> '[{"tier": "local"}]'
                                  or p.world @? '$.policies.*.covers')
       order by 1""",
)
PAID_EVENTS = Statement(
    "audit-paid-events",
    "what the events of some jobs' paid runs say of local slots, and whether they are units of the cap",
    """select run_id, data -> 'local_slots' as local_slots, utc_day is not null as is_unit from ledger
       where job_id = any(%(jobs)s)
         and kind in ('EngineOverflowSelected', 'PaidFallbackSelected', 'PaidAssignmentSelected')""",
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


def replayed_passes(connection: Connection) -> list[int]:
    """The passes to replay, oldest first."""
    return [row.pass_id for row in REPLAYED_PASSES.all(connection, latest=REPLAYED)]


def paid_events(connection: Connection, jobs: Sequence[int]) -> dict[int, Row[Any]]:
    """By run, the event that justifies it: its `local_slots`, and whether it `is_unit`."""
    return {row.run_id: row for row in PAID_EVENTS.all(connection, jobs=list(jobs))} if jobs else {}
