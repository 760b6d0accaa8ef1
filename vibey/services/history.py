"""History: an installation's past as a trace that can be played again, and what really came of it.

A job runs for as long in the trace as its successful run took; on engines it did not run on, for the lower median of
those engines' runs in the same span. Pauses become `down` and `up`, circuits that opened `fail` and `up`. Left out are
jobs of other pools than main, jobs that were cancelled or that no engine may run, and what is about engines and
capabilities that are configured no more; retries for a job's own faults are not repeated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vibey.domain.demand import lower_median
from vibey.domain.effort import Effort
from vibey.domain.workspace import Roots, engines_for
from vibey.services.fleet import folders_of
from vibey.services.prune import record_begins
from vibey.store import history
from vibey.store.views import NOW

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from vibey.services.installation import Installation
    from vibey.settings import EngineSettings, Settings
    from vibey.store.database import Connection
    from vibey.store.statement import Row

FAILURES = {
    "engine_failures": "engine",
    "window_exhausted": "window",
    "credits_exhausted": "credits",
    "login_failed": "login",
}


@dataclass(frozen=True, slots=True)
class Happened:
    """What really came of the jobs: how long each run's attempt waited, how many runs were paid for which reason."""

    waits_ms: tuple[int, ...]
    overflows: int
    fallbacks: int
    paid: int
    never_run: int


@dataclass(frozen=True, slots=True)
class History:
    """A span of the past: its trace, line by line, what came of it, and how many jobs were left out.

    Jobs that ended before `begins` are removed, and so missing; None where the span holds none of those.
    """

    lines: tuple[str, ...]
    happened: Happened
    left_out: int
    begins: datetime | None = None


def history_of(installation: Installation, seconds: float, settings: Settings | None = None) -> History:
    """The last so many seconds, told for a fleet of these settings; default: the installation's own."""
    arrivals, mishaps, outcomes, begins = installation.database.run(
        lambda connection: (*history.read(connection, seconds), _begins(connection, seconds))
    )
    told_for = settings or installation.settings
    engines, capabilities = told_for.engine, told_for.capabilities
    roots = [Roots(name, each.kind, tuple(folders_of(each.workspace_roots))) for name, each in engines.items()]
    excluded = {row.id: _excluded(row, engines.keys(), roots) for row in arrivals}
    kept = [
        row
        for row in arrivals
        if row.pool == "main"
        and row.state != "cancelled"
        and capabilities.issuperset(row.capabilities)
        and excluded[row.id] != engines.keys()
    ]
    lines = [*_arrivals(kept, engines, excluded), *_mishaps(mishaps, engines)]
    lines.sort(key=lambda line: line["at"])
    text = tuple(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    ids = {row.id for row in kept}
    happened = _happened([row for row in outcomes if row.id in ids])
    return History(text, happened, len(arrivals) - len(kept), begins)


def _begins(connection: Connection, seconds: float) -> datetime | None:
    begins, now = record_begins(connection), NOW.scalar(connection)
    return begins if begins is not None and begins > now - timedelta(seconds=seconds) else None


def _excluded(row: Row[Any], engines: AbstractSet[str], roots: Sequence[Roots]) -> set[str]:
    """The engines that may not run a job: it excludes them, names others, or they cannot work in its repository."""
    barred = set(row.excluded) & engines
    if row.pinned:
        barred |= engines - set(row.pinned)
    if row.in_workspace:
        barred |= engines - engines_for(row.repo, roots)
    return barred


def _arrivals(
    rows: Sequence[Row[Any]], engines: Collection[str], excluded: Mapping[int, set[str]]
) -> Iterator[dict[str, Any]]:
    ran: dict[str, list[int]] = {}
    for row in rows:
        if row.engine in engines:
            ran.setdefault(row.engine, []).append(row.running_ms)
    usual = {engine: lower_median(times) for engine, times in sorted(ran.items())}
    everywhere = lower_median(time for times in ran.values() for time in times)
    for row in rows:
        times = usual | {row.engine: row.running_ms} if row.engine in engines else usual
        taken = {engine: time / 1000 for engine, time in times.items()} | {"*": everywhere / 1000}
        line = {
            "at": row.at_ms / 1000,
            "job": str(row.id),
            "project": row.project,
            "priority": row.priority,
            "effort": Effort(row.effort).label,
            "requires": sorted(row.capabilities),
            "exclude": sorted(excluded[row.id]),
            "session": row.session,
            "seconds": taken if ran else None,
        }
        yield {key: value for key, value in line.items() if value or key == "at"}


def _mishaps(rows: Sequence[Row[Any]], engines: Mapping[str, EngineSettings]) -> Iterator[dict[str, Any]]:
    """Pauses of an engine, and what a circuit says of all engines of its account, when that is news."""
    failing: set[str] = set()
    for row in rows:
        at = row.at_ms / 1000
        if "paused" in row.data and row.engine in engines:
            yield {"at": at, "engine": row.engine, "event": "down" if row.data["paused"] else "up"}
        if row.kind != "CircuitChanged":
            continue
        account = row.data.get("account") or row.account
        reason = FAILURES.get(row.data.get("open") or "")
        if (reason is None) == (account not in failing):
            continue
        failing.symmetric_difference_update({account})
        for name in [name for name, each in engines.items() if each.account == account]:
            line = {"at": at, "engine": name}
            yield line | ({"event": "up"} if reason is None else _failure(reason, row))


def _failure(reason: str, row: Row[Any]) -> dict[str, Any]:
    resets_at_ms = row.data.get("resets_at_ms") or row.data.get("probe_at_ms")
    resets = {"resets_in": max(0, resets_at_ms - row.epoch_ms) / 1000} if resets_at_ms and reason == "window" else {}
    return {"event": "fail", "value": reason} | resets


def _happened(rows: Sequence[Row[Any]]) -> Happened:
    ran = [row for row in rows if row.waited_ms is not None]
    return Happened(
        waits_ms=tuple(sorted(max(0, row.waited_ms) for row in ran)),
        overflows=sum(row.why == "overflow" for row in ran),
        fallbacks=sum(row.why == "fallback" for row in ran),
        paid=sum(row.tier == "paid" for row in ran),
        never_run=sum(row.waited_ms is None for row in rows),
    )
