"""Metrics: one reading of the installation as numbers, from the rows that admit jobs.

What a job at the front of the queue waits for is asked of the domain, as the router would ask it: its survey, its
offer, its prospect. So `vibey_oldest_wait_seconds` cannot disagree with what the router does.

I10, no eligible job beside a free slot, is a matter of time, which one reading cannot show: the slot may have been
freed this very moment. `Stalls` remembers, from reading to reading, since when the same job has stood there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Request, prospect
from vibey.domain.engine import Phase
from vibey.domain.offer import Offer, offer
from vibey.domain.settlement import JobState
from vibey.services import families
from vibey.services.outlook import Outlook
from vibey.services.pools import Trees
from vibey.services.purse import purses
from vibey.store import fleet, metrics, projects, tallies, views
from vibey.store.engines import circuit_of
from vibey.store.jobs import requirement_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from vibey.domain.decide import World
    from vibey.services.families import Family
    from vibey.services.installation import Installation
    from vibey.services.purse import Purse
    from vibey.store.database import Connection
    from vibey.store.statement import Row
    from vibey.store.tallies import Tally

OPEN_STATES = (JobState.QUEUED, JobState.GRANTED, JobState.RUNNING)
CIRCUITS = {Phase.CLOSED: 0, Phase.HALF_OPEN: 1, Phase.OPEN: 2}
NO_TIER = "none"
TIERS = ("local", "paid", NO_TIER)
# A job may stand beside a free slot while a wake-up is lost, until a tick; after so many ticks the router is to blame.
STALL_TICKS = 4
STALL_SECONDS = 10.0

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a family, or its histogram; `labels` are values in the order of the family's names."""

    family: Family
    labels: Labels
    value: float | Tally


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every metric as of one instant. What only grows has grown since `since`, when the installation was made."""

    as_of: datetime
    since: datetime
    samples: tuple[Sample, ...]

    def of(self, family: Family) -> dict[Labels, float | Tally]:
        """The values of one family, by labels."""
        return {each.labels: each.value for each in self.samples if each.family is family}


@dataclass(slots=True)
class Stalls:
    """Since when, by this process's monotonic clock, the same jobs have been seen beside a free slot."""

    since: dict[int, float] = field(default_factory=dict)

    def ages(self, jobs: Iterable[int], now: float) -> list[float]:
        """For how long each of these has stood there; all others are forgotten."""
        self.since = {job: self.since.get(job, now) for job in jobs}
        return [now - since for since in self.since.values()]


@dataclass(frozen=True, slots=True)
class _Front:
    """A job at the front of its group and priority: the tier it waits for, if it could go, how overdue its hold is."""

    job: int
    tier: str
    due_seconds: float
    could_go: bool
    overdue_seconds: float


def snapshot(installation: Installation, stalls: Stalls | None = None) -> Snapshot:
    """Read everything now. With `stalls` of earlier readings, also how long jobs have stood beside a free slot."""
    installation.database.run(tallies.fold)
    remembered = Stalls() if stalls is None else stalls
    return installation.database.run(lambda connection: _read(connection, installation, remembered))


def _read(connection: Connection, installation: Installation, stalls: Stalls) -> Snapshot:
    now: datetime = views.NOW.scalar(connection)
    owned = purses(connection, installation, [each.name for each in projects.every(connection)])
    fronts = _fronts(connection, installation, owned)
    ages = metrics.AGES.all(connection)[0]
    found = [
        Sample(families.AS_OF, (), now.timestamp()),
        *_engines(connection, installation),
        *_queue(connection, fronts),
        *(Sample(families.CAP, (name,), purse.limit) for name, purse in owned.items()),
        *(Sample(families.CAP_REMAINING, (name,), purse.remaining) for name, purse in owned.items()),
        *_durations(connection),
        Sample(families.TICK, (), ages.tick_age),
        *(Sample(families.SILENT, (row.name,), row.seen_seconds) for row in fleet.workers(connection)),
        *_audit(connection),
        *_stalled(installation, fronts, stalls),
    ]
    return Snapshot(now, ages.created_at, tuple(found))


def _engines(connection: Connection, installation: Installation) -> list[Sample]:
    found = [
        Sample(families.SELECTED, (row.name, row.tier, row.why), row.n) for row in metrics.SELECTED.all(connection)
    ]
    phases: dict[str, Phase] = {}
    for row in views.ENGINES.all(connection, presence_ms=installation.timing.presence_ms):
        phases[row.account] = circuit_of(row, row.account).phase(row.now_ms)
        found += [
            Sample(families.SLOTS, (row.name,), row.slots),
            Sample(families.IN_USE, (row.name,), row.in_use),
            Sample(families.STAFFED, (row.name,), int(row.offered is not None)),
        ]
    return found + [Sample(families.CIRCUIT, (name,), CIRCUITS[phase]) for name, phase in phases.items()]


def _queue(connection: Connection, fronts: Sequence[_Front]) -> list[Sample]:
    counts = {row.state: row.n for row in views.COUNTS.all(connection)}
    waits = {tier: max((each.due_seconds for each in fronts if each.tier == tier), default=0.0) for tier in TIERS}
    return [
        *(Sample(families.JOBS, (state.value,), counts.get(state, 0)) for state in OPEN_STATES),
        Sample(families.HELD, (), views.HELD.scalar(connection)),
        *(Sample(families.WAIT, (tier,), max(0.0, wait)) for tier, wait in waits.items()),
        Sample(families.OVERDUE, (), max((each.overdue_seconds for each in fronts), default=0.0)),
    ]


def _durations(connection: Connection) -> list[Sample]:
    found = tallies.read(connection)
    return [
        Sample(families.DECISION, (), found[tallies.DECISION]),
        Sample(families.HANDOVER, (), found[tallies.HANDOVER]),
    ]


def _audit(connection: Connection) -> list[Sample]:
    last = metrics.AUDIT.first(connection)
    if last is None:
        return []
    counts = dict.fromkeys(last.found["checked"]["invariants"], 0)
    for each in last.found["violations"]:
        counts[each["invariant"]] += 1
    told = [Sample(families.VIOLATIONS, (invariant,), count) for invariant, count in counts.items()]
    return [*told, Sample(families.AUDITED, (), last.as_of.timestamp())]


def _stalled(installation: Installation, fronts: Sequence[_Front], stalls: Stalls) -> list[Sample]:
    ages = stalls.ages([each.job for each in fronts if each.could_go], time.monotonic())
    patience = max(STALL_SECONDS, STALL_TICKS * installation.timing.tick_ms / 1000)
    return [
        Sample(families.STALLED, (), max(ages, default=0.0)),
        Sample(families.VIOLATIONS, ("I10",), sum(age > patience for age in ages)),
    ]


def _fronts(connection: Connection, installation: Installation, owned: Mapping[str, Purse]) -> list[_Front]:
    by_pool: dict[str, list[Row[Any]]] = {}
    for row in metrics.FRONTS.all(connection, limit=metrics.FRONTS_LIMIT):
        by_pool.setdefault(row.pool, []).append(row)
    found = []
    for pool, rows in by_pool.items():
        world = Outlook.glance(connection, installation, Trees.load(connection, pool), owned).world
        found += [_front(row, world) for row in rows]
    return found


def _front(row: Row[Any], world: World) -> _Front:
    requirement = requirement_of(row)
    request, policy = Request(row.id, 1, requirement), world.policy(row.project)
    surveyed = world.survey(requirement)
    hoped = offer(surveyed, policy, replace(world.load(request, surveyed), full=frozenset()))
    tier = hoped.candidates[0].engine.tier.value if isinstance(hoped, Offer) and hoped.candidates else NO_TIER
    seen = prospect(surveyed, world, request)
    held = 0.0 if row.held_seconds is None else row.held_seconds
    overdue = held - policy.overflow_after_ms / 1000 if seen.held_first else 0.0
    could_go = seen.room > 0 and (overdue > 0 if seen.held_first else True)
    return _Front(row.id, tier, row.due_seconds, could_go, max(0.0, overdue))
