"""Tick: the safety net. Whatever a lost message, a dead worker or an outage left lying is found here.

Leases. Postgres is authoritative: a run is over when its row is ended, and only this ends the row of a
holder that is gone. A lease is judged by the database's clock, and not at all until a full lease length has
passed since the last start of the database, or since ticks were further apart than a third of a lease:
after an outage, or when a laptop wakes, every healthy holder has had time to renew first. A holder may
renew a lease that is past but not yet judged; since the slot is freed only by ending the row, that
endangers nothing. A row that someone else holds counts as live and is looked at by the next tick.

A clock that is set back leaves instants that are further ahead than the protocol ever writes. Each is bounded by the
next tick: a lease ends, and leases are judged again, at most a lease length from now. So a run whose holder died is
ended at most two lease lengths and a tick after that step, however far the clock went. The holder counts its lease by
its own monotonic clock, which no step moves, so a lease that is shortened never ends before its holder stops.

A granted run whose lease passes unstarted is withdrawn (attempt refunded, credit kept); a started one is
lost (attempt counted). Grants not started in time are sent again, each time after twice as long.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vibey.domain import settlement
from vibey.services import adjust
from vibey.services.requirements import refresh_workspace_sets
from vibey.services.route import route
from vibey.services.settle import expired_row
from vibey.store import adjustments, fleet, jobs, runs
from vibey.store.runs import Expired, Granted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vibey.domain.settlement import Settlement
    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.statement import Statement

T = TypeVar("T")
log = logging.getLogger("vibey.tick")

PROMOTE_LIMIT = 10_000


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
    """Note the time, look what there is to do in one statement, and do each of it; a step that fails stops no other."""
    installation = installation.current()
    lease_ms, resend_ms = installation.timing.lease_ms, installation.timing.resend_ms
    due = installation.database.statement(
        lambda connection: fleet.TICK.first(connection, lease_ms=lease_ms, resend_ms=resend_ms)
    )
    if due is None:
        return Ticked()
    _step(None, lambda: _shorten_leases(installation), needed=due.ahead)
    lost, withdrawn = _step((0, 0), lambda: reap(installation), needed=due.expired)
    late = _step(0, lambda: _rows(installation, jobs.PAST_DEADLINE), needed=due.late)
    promoted = _step(0, lambda: _rows(installation, jobs.PROMOTE, limit=PROMOTE_LIMIT), needed=due.backoff)
    resent = _step(0, lambda: resend(installation), needed=due.unsent)
    _step(None, lambda: forget(installation), needed=due.clean)
    _step(None, lambda: adjust.review(installation), needed=due.clean and installation.settings.engines.learn)
    pools = due.pools if lost + withdrawn + promoted == 0 else None
    granted = _step(0, lambda: _route_due(installation, pools), needed=pools is None or bool(pools))
    return Ticked(lost, withdrawn, resent, promoted, late, granted)


def reap(installation: Installation) -> tuple[int, int]:
    """End runs whose lease is over; returns how many were lost and how many withdrawn."""
    return installation.database.run(lambda connection: _reap(connection, installation))


def _shorten_leases(installation: Installation) -> None:
    lease_ms = installation.timing.lease_ms
    installation.database.statement(lambda connection: runs.SHORTEN_LEASES.run(connection, lease_ms=lease_ms))


def resend(installation: Installation) -> int:
    """Send grants again that nobody started in time."""
    rows = installation.database.statement(
        lambda connection: runs.RESEND.all(connection, after_ms=installation.timing.resend_ms)
    )
    installation.send([Granted(row.id, row.token, row.job_id, row.engine, row.project, row.attempt) for row in rows])
    return len(rows)


def forget(installation: Installation) -> None:
    """Drop what nobody will look at again: cold sessions, adjustments that are over, workers and groups long gone.

    Also brings in line jobs that were enqueued just while the configuration changed.
    """
    for statement in (fleet.FORGET_WORKERS, fleet.FORGET_SESSIONS, fleet.FORGET_GROUPS, adjustments.FORGET):
        installation.database.statement(statement.run)
    installation.database.run(refresh_workspace_sets)


def _step(otherwise: T, work: Callable[[], T], *, needed: bool) -> T:
    if not needed:
        return otherwise
    try:
        return work()
    except Exception:
        log.exception("a step of the tick failed; the others go on")
        return otherwise


def _rows(installation: Installation, statement: Statement, **values: object) -> int:
    return len(installation.database.statement(lambda connection: statement.all(connection, **values)))


def _route_due(installation: Installation, pools: Sequence[str] | None) -> int:
    """Route these pools, or for None all that have a due job by now."""
    if pools is None:
        pools = [row.pool for row in installation.database.statement(jobs.POOLS_DUE.all)]
    return sum(route(installation, pool) for pool in pools)


def _reap(connection: Connection, installation: Installation) -> tuple[int, int]:
    expired = runs.lock_expired(connection, installation.timing.lease_ms)
    rows = [expired_row(each, _settlement(installation, each)) for each in expired]
    if rows:
        runs.end(connection, rows)
    lost = sum(each.started for each in expired)
    return lost, len(expired) - lost


def _settlement(installation: Installation, expired: Expired) -> Settlement:
    job = expired.attempted()
    if not expired.started:
        return settlement.withdrawn(job, "withdrawn: no worker started it in time")
    engines = installation.settings.engines
    rerun = expired.row.tier == "local" or engines.paid_rerun_after_loss
    return settlement.lost(job, backoff_ms=installation.timing.backoff_ms, rerun=rerun)
