"""Tick: the safety net. Whatever a lost message, a dead worker or an outage left lying is found here.

Leases. Postgres is authoritative: a run is over when its row is ended, and only this ends the row of a holder that is
gone. Whether a lease is over is judged by the *lease clock*, a number in the installation's row that only ticks move.
Each tick moves it by the time since the tick before, by the database's clock, but by no less than 0 and by no more than
a tenth of a lease (`gap_ms`). Whatever gives or renews a lease writes the reading of that clock into the run's row. A
lease is over when the lease clock has gone on by 6/5 of its length since (`judge_ms`).

What follows, with L for the length of a lease; holders renew every L/3, and kill what they started 0.9 L after they
sent the last renewal that was answered:

- A healthy run is not ended for want of time to renew. However long ticks or the database were away, the machine slept,
  or the clock jumped, that counts as L/10. A holder that renewed in time before such a gap has more than L/2 of counted
  time left after it; seven gaps between two renewals, with no time for one in between, still leave it some.
- No slot is given away while its holder may be at work. The lease clock is behind real time, except that it gains up to
  L/10 whenever the database's clock jumps forward; and a renewal writes the reading of the tick before, at most L/10
  ago. Two jumps within one lease leave the holder its 0.9 L.
- A dead run is ended. Every tick counts, however late it is, so nothing stops the lease clock: neither ticks that are
  always late, nor a database that starts again and again, nor a clock that is set back again and again. With ticks d
  apart a dead run is ended at most 6/5 L + d after its last renewal where d is at most L/10, else by the 13th tick
  after it. A beat that was away or an outage puts that off by no more than its own length, and a step of the clock by
  no more than a tick.

A holder may renew a lease that is past but not yet judged; since the slot is freed only by ending the row, that
endangers nothing. A row that someone else holds counts as live and is looked at by the next tick.

A granted run whose lease passes unstarted is withdrawn (attempt refunded, credit kept); a started one is
lost (attempt counted). Grants not started in time are sent again, each time after twice as long.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from vibey.domain import backoff, settlement
from vibey.domain.circuit import LONGEST_PROBE_MS
from vibey.services import adjust
from vibey.services.endings import CLAIM_SECONDS
from vibey.services.requirements import refresh_workspace_sets
from vibey.services.route import route
from vibey.services.settle import expired_row
from vibey.store import adjustments, fleet, instants, jobs, notes, runs
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
    timing = installation.timing
    due = installation.database.statement(
        lambda connection: fleet.TICK.first(
            connection, gap_ms=timing.gap_ms, judge_ms=timing.judge_ms, resend_ms=timing.resend_ms
        )
    )
    if due is None:
        return Ticked()
    if due.set_back is not None:
        log.warning("the clock of the database was set back, by %.0f s or a little more", due.set_back)
    lost, withdrawn = _step((0, 0), lambda: reap(installation), needed=due.expired)
    late = _step(0, lambda: _rows(installation, jobs.PAST_DEADLINE), needed=due.late)
    promoted = _step(0, lambda: _rows(installation, jobs.PROMOTE, limit=PROMOTE_LIMIT), needed=due.backoff)
    resent = _step(0, lambda: resend(installation), needed=due.unsent)
    _step(None, lambda: forget(installation), needed=due.clean)
    _step(None, lambda: bring_back(installation), needed=due.clean)
    _step(None, lambda: adjust.review(installation), needed=due.clean and installation.settings.engines.learn)
    pools = due.pools if lost + withdrawn + promoted == 0 else None
    granted = _step(0, lambda: _route_due(installation, pools), needed=pools is None or bool(pools))
    return Ticked(lost, withdrawn, resent, promoted, late, granted)


def reap(installation: Installation) -> tuple[int, int]:
    """End runs whose lease is over; returns how many were lost and how many withdrawn."""
    return installation.database.run(lambda connection: _reap(connection, installation))


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
    installation.database.run(refresh_workspace_sets)
    forgotten = (fleet.FORGET_WORKERS, fleet.FORGET_SESSIONS, notes.FORGET_GROUPS, adjustments.FORGET)
    for statement in (*forgotten, fleet.CLEANED):
        installation.database.statement(statement.run)


def bring_back(installation: Installation) -> None:
    """Bring back what lies further ahead than anything is written: the clock was set back (see `store.instants`)."""
    timing, engines = installation.timing, installation.settings.engines
    longest = {
        "backoff_ms": backoff.CEILING_MS,
        "probe_ms": LONGEST_PROBE_MS,
        "recheck_ms": timing.recheck_ms,
        "poll_ms": timing.poll_ms,
        "claim_s": CLAIM_SECONDS,
        "session_s": engines.session_ttl_seconds,
        "learned_s": adjust.LEARNED_SECONDS,
    }
    for statement in instants.BOUNDS:
        for _ in range(instants.TIMES):
            if not installation.database.statement(partial(instants.bring_back, statement=statement, longest=longest)):
                break


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
    expired = runs.lock_expired(connection, installation.timing.judge_ms)
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
