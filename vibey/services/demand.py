"""Demand: the recorded attempts that wanted a local engine, each with the local engines that may serve it now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.domain.demand import Demand, lower_median
from vibey.domain.effort import Effort
from vibey.domain.requirement import Requirement
from vibey.domain.turn import standing
from vibey.services.pools import Trees
from vibey.services.requirements import can_serve
from vibey.store import fleet, measurements

if TYPE_CHECKING:
    from vibey.store.database import Connection
    from vibey.store.statement import Row

LIMIT = 50_000


class Reach:
    """Which local engines may serve a job: those its pool reaches that could ever serve what it asks for.

    Pauses, circuits and what earlier attempts avoid pass, and a measurement looks past them.
    """

    def __init__(self, connection: Connection) -> None:
        """Read the local engines and pools as configured."""
        self._local = measurements.local_engines(connection)
        self._definitions, _ = fleet.pools(connection)
        self._pools: dict[str, frozenset[str]] = {}
        self._known: dict[tuple[object, ...], frozenset[str]] = {}

    def of(self, row: Row[Any]) -> frozenset[str]:
        """The engines for a row that carries the job's `pool`, and what it asks of engines."""
        asks = (row.capabilities, row.excluded, row.pinned, row.workspace)
        key = (row.pool, *(None if each is None else tuple(each) for each in asks))
        found = self._known.get(key)
        if found is None:
            asked = Requirement(
                row.pool,
                row.project,
                Effort.LOW,
                capabilities=frozenset(row.capabilities),
                excluded=frozenset(row.excluded),
                pinned=frozenset(row.pinned),
                workspace=None if row.workspace is None else frozenset(row.workspace),
            )
            reached = self._pool(row.pool)
            found = frozenset([name for name in reached if can_serve(asked, name, self._local[name])])
            self._known[key] = found
        return found

    def _pool(self, pool: str) -> frozenset[str]:
        if pool not in self._pools:
            names = Trees(pool, self._definitions, {}).engine_names
            self._pools[pool] = frozenset(self._local if names is None else self._local.keys() & set(names))
        return self._pools[pool]


def window(connection: Connection, hours: int, limit: int = LIMIT, *, age_ms: int = 0) -> tuple[list[Demand], int]:
    """The installation's demand of so many hours up to now, and the database's instant, both in milliseconds.

    Of a busier window only the newest attempts count. One that has not run on a local engine counts with the lower
    median of those that have, however many newer ones wait.
    """
    ran, waiting, now_ms = measurements.demand(connection, hours, limit)
    usual_ms = lower_median([row.running_ms for row in ran if row.running_ms is not None])
    known = {(row.job_id, row.attempt, row.due_ms) for row in ran}
    rows = [*ran, *(row for row in waiting if (row.job_id, row.attempt, row.due_ms) not in known)]
    if len(rows) > limit:
        rows = sorted(rows, key=lambda row: (row.due_ms, row.job_id, row.attempt), reverse=True)[:limit]
    reach = Reach(connection)
    return [_demand(row, eligible, usual_ms, age_ms) for row in rows if (eligible := reach.of(row))], now_ms


def _demand(row: Row[Any], eligible: frozenset[str], usual_ms: int, age_ms: int) -> Demand:
    running_ms = usual_ms if row.running_ms is None else row.running_ms
    stands = standing(row.priority, row.enqueued_ms, age_ms)
    return Demand(row.job_id, row.attempt, row.project, stands, row.due_ms, running_ms, eligible)
