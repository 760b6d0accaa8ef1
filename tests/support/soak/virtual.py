"""Virtual hours: a busy fleet simulated for hours of its own time, and what the simulation keeps of each decision.

Memory is counted exactly, by the allocations that are alive (`tracemalloc`), at even distances of virtual time, each
time after a full collection. The trace is there before. What a simulation must keep by definition, the wait of every
grant, of which the report's quantiles are made, lies in the report's own module and is told apart by that. All else is
flat.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.soak.flat import Bounds, Finding, judged
from tests.support.soak.series import MEMORY, Series
from vibey.settings import Source, settings_of
from vibey.simulate import report as kept
from vibey.simulate.run import simulate
from vibey.simulate.trace import Arrival, FleetEvent, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.settings import Settings

HOUR = 3600
RATE = 8
LOOKS = 40
WARM_PART = 0.25
SESSION_SECONDS = 300
EVENT_SECONDS = 120
# Of all but the waits: how many jobs wait, and how many conversations go on, is never twice the same.
MEMORY_BYTES = 200_000
DECISION_BYTES = 2.0
# A wait is eight bytes in an array, which has room for an eighth more.
WAIT_BYTES = 10.0
SLOTS = {"near": 12, "side": 6, "far": 6, "outer": 4}
PAID = frozenset({"far", "outer"})
STORIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("near", "fail", {"failure": "engine"}),
    ("near", "up", {}),
    ("far", "fail", {"failure": "window", "resets_ms": 60_000}),
    ("far", "up", {}),
    ("side", "down", {}),
    ("side", "up", {}),
    ("side", "fail", {"failure": "busy"}),
    ("side", "up", {}),
    ("near", "slots", {"slots": 9}),
    ("near", "slots", {"slots": 12}),
    ("outer", "demote", {}),
    ("outer", "restore", {}),
)


@dataclass(slots=True)
class Hours:
    """What became of some virtual hours. `where` are the modules that grew most, in bytes."""

    hours: float
    jobs: int
    decisions: int = 0
    findings: list[Finding] = field(default_factory=list)
    where: list[tuple[str, int]] = field(default_factory=list)


def lived(hours: float, seed: int = 1) -> Hours:
    """Simulate so many hours, measured on the way."""
    settings = _settings()
    trace = Trace(tuple(_happenings(random.Random(seed), round(hours * HOUR))))
    meter = _Meter(max(1, trace.jobs // LOOKS))
    gc.collect()
    tracemalloc.start()
    try:
        told = simulate(settings, trace, meter.hear, meter.passed)
    finally:
        tracemalloc.stop()
    found = Hours(hours, trace.jobs, told.decisions, where=meter.where())
    bounds = Bounds(WARM_PART * hours * HOUR, 0, MEMORY_BYTES, DECISION_BYTES)
    by_definition = Bounds(bounds.warm, 0, WAIT_BYTES * trace.jobs, WAIT_BYTES)
    judged_jobs = round(trace.jobs * (1 - WARM_PART))
    found.findings = [judged(meter.own, bounds, judged_jobs), judged(meter.waits, by_definition, judged_jobs)]
    return found


class _Meter:
    """Looks at the memory now and then; the clock is the arrivals', of which there are `RATE` a second."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._by_module: list[dict[str, int]] = []
        self.own = Series("simulation", MEMORY)
        self.waits = Series("simulation, waits it reports", MEMORY)

    def hear(self, _: str) -> None:
        """Take a decision's line."""

    def passed(self, jobs: int) -> None:
        """So many jobs have arrived."""
        if jobs % self._every:
            return
        gc.collect()
        found = {each.traceback[0].filename: each.size for each in tracemalloc.take_snapshot().statistics("filename")}
        mine = {name: size for name, size in found.items() if name not in {__file__, tracemalloc.__file__}}
        waits = mine.pop(kept.__file__, 0)
        self.own.add(1, jobs / RATE, sum(mine.values()))
        self.waits.add(1, jobs / RATE, waits)
        self._by_module.append(mine)

    def where(self) -> list[tuple[str, int]]:
        """By how much each module's allocations grew in the second half, most first."""
        middle, last = self._by_module[len(self._by_module) // 2], self._by_module[-1]
        grown = ((Path(name).name, size - middle.get(name, 0)) for name, size in last.items())
        return sorted(grown, key=lambda each: -each[1])[:5]


def _settings() -> Settings:
    engines = {
        "mode": "hybrid",
        "slots": SLOTS,
        "overflow_after_seconds": 5,
        "paid_daily_cap": 1_000_000,
        "slot_poll_seconds": 2,
        "session_ttl_seconds": SESSION_SECONDS,
        "priority_age_seconds": 30,
    }
    engine = {name: {"kind": "noop", "tier": "paid" if name in PAID else "local"} for name in SLOTS}
    return settings_of(Source(None, Path(), {"engines": engines, "engine": engine}), {})


def _happenings(chance: random.Random, seconds: int) -> Iterator[Arrival | FleetEvent]:
    """`RATE` jobs a second, some two seconds long, a new conversation every few jobs; an event every two minutes."""
    number = 0
    for at in range(seconds):
        if at % EVENT_SECONDS == 0:
            engine, event, more = STORIES[at // EVENT_SECONDS % len(STORIES)]
            yield FleetEvent(at * 1000, engine, event, **more)
        for _ in range(RATE):
            number += 1
            yield Arrival(
                at * 1000,
                f"job-{number}",
                project=chance.choice(("web", "web", "lab")),
                priority=chance.choice((0, 0, 0, 1, 5)),
                exclude=frozenset({"side"}) if chance.random() < 0.05 else frozenset(),
                session=f"talk-{number // 6}" if chance.random() < 0.3 else None,
                running_ms={"*": chance.randint(500, 4000), "near": chance.randint(500, 3000)},
            )
