"""Tick: the safety net. Whatever a lost message, a dead worker or an outage left lying is found here.

Leases. Postgres is authoritative: a run is over when its row is ended, and only this ends the row of a
holder that is gone. A lease is judged by the database's clock, and not at all until a full lease length has
passed since the last start of the database, or since ticks were further apart than a third of a lease:
after an outage, or when a laptop wakes, every healthy holder has had time to renew first. A holder may
renew a lease that is past but not yet judged; since the slot is freed only by ending the row, that
endangers nothing. A row that someone else holds counts as live and is looked at by the next tick.

A granted run whose lease passes unstarted is withdrawn (attempt refunded, credit kept); a started one is
lost (attempt counted). Grants not started in time are sent again, each time after twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain import settlement
from vibey.domain.requirement import Requirement
from vibey.services.route import route
from vibey.services.settle import end_row
from vibey.store import fleet, jobs, runs
from vibey.store.runs import Expired, Granted

if TYPE_CHECKING:
    from vibey.domain.settlement import Settlement
    from vibey.services.installation import Installation
    from vibey.store.database import Connection

PROMOTE_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick found to do."""

    lost: int = 0
    withdrawn: int = 0
    resent: int = 0
    promoted: int = 0
    late: int = 0
    granted: int = 0


def tick(installation: Installation) -> Ticked:
    """Note the time, reap, send again what was not started, and route every pool that has a due job."""
    database = installation.database
    lease_ms = installation.timing.lease_ms
    database.statement(lambda connection: fleet.TICK.scalar(connection, lease_ms=lease_ms))
    lost, withdrawn = reap(installation)
    late = database.statement(jobs.PAST_DEADLINE.all)
    promoted = database.statement(lambda connection: jobs.PROMOTE.all(connection, limit=PROMOTE_LIMIT))
    resent = resend(installation)
    due = [row.pool for row in database.statement(jobs.POOLS_DUE.all)]
    granted = sum(route(installation, pool) for pool in due)
    return Ticked(lost, withdrawn, resent, len(promoted), len(late), granted)


def reap(installation: Installation) -> tuple[int, int]:
    """End runs whose lease is over; returns how many were lost and how many withdrawn."""
    if not installation.database.statement(runs.HAS_EXPIRED.scalar):
        return 0, 0
    return installation.database.run(lambda connection: _reap(connection, installation))


def resend(installation: Installation) -> int:
    """Send grants again that nobody started in time."""
    rows = installation.database.statement(
        lambda connection: runs.RESEND.all(connection, after_ms=installation.timing.resend_ms)
    )
    installation.send(Granted(row.id, row.token, row.job_id, row.engine, row.project, row.attempt) for row in rows)
    return len(rows)


def _reap(connection: Connection, installation: Installation) -> tuple[int, int]:
    expired = runs.lock_expired(connection, installation.timing.lease_ms)
    rows = [_end_row(installation, each) for each in expired]
    if rows:
        runs.end(connection, rows)
    lost = sum(each.started for each in expired)
    return lost, len(expired) - lost


def _end_row(installation: Installation, expired: Expired) -> dict[str, Any]:
    row = expired.row
    settled = _settlement(installation, expired)
    key = Requirement(
        pool=row.pool,
        project=row.project,
        effort=settled.effort,
        capabilities=frozenset(row.capabilities),
        excluded=frozenset(row.excluded),
        avoided=settled.avoided,
        affinity=settled.affinity,
        session=row.session,
    ).key
    return end_row((row.id, row.token), settled, key)


def _settlement(installation: Installation, expired: Expired) -> Settlement:
    job = expired.attempted()
    if not expired.started:
        return settlement.withdrawn(job, "withdrawn: no worker started it in time")
    engines = installation.settings.engines
    rerun = expired.row.tier == "local" or engines.paid_rerun_after_loss
    return settlement.lost(job, backoff_ms=installation.timing.backoff_ms, rerun=rerun)
