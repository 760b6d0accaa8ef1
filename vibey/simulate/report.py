"""Report: what a simulation came to, in numbers."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vibey.domain.engine import NOT_NEEDED, Tier
from vibey.domain.rotation import UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.domain.decide import Assign
    from vibey.simulate.fleet import Fleet
    from vibey.simulate.queue import Queue
    from vibey.simulate.rules import Rules


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood from an instant on: slots in use by engine, jobs queued, how many held, units by purse."""

    at_ms: int
    in_use: dict[str, int]
    queued: int
    held: int
    units: dict[str, int]


@dataclass(slots=True)
class Report:
    """Sums over a simulation. Durations are milliseconds; `expected` is in units of 10^-12 of a pick.

    `outside_cap` counts the paid runs that took no unit, but for those that were refused before they did any work.
    """

    fleet: Fleet
    rules: Rules
    picks: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
    busy_ms: Counter[str] = field(default_factory=Counter)
    offered_ms: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    # An array, as it holds a number for each grant of what may be millions.
    waits_ms: array[int] = field(default_factory=lambda: array("q"))
    moments: list[Moment] = field(default_factory=list)
    decisions: int = 0
    outside_cap: int = 0
    begun_ms: int | None = None
    last_ms: int = 0
    now_ms: int = 0
    counted_ms: int = 0
    keeps_moments: bool = False

    def until(self, now_ms: int, queue: Queue) -> None:
        """Let time pass; the first instant is where counting begins."""
        if self.begun_ms is None:
            self.begun_ms = self.last_ms = self.now_ms = self.counted_ms = now_ms
        if self.keeps_moments and now_ms > self.now_ms:
            units = self.rules.units(self.now_ms)
            self.moments.append(Moment(self.now_ms, self.fleet.in_use(), queue.length, queue.held, units))
        self.now_ms = now_ms

    def changing(self) -> None:
        """The fleet is about to change: count the slots there were up to now."""
        passed, self.counted_ms = self.now_ms - self.counted_ms, self.now_ms
        for name, slots in self.fleet.slots().items():
            self.offered_ms[name] += slots * passed

    def granted(self, decision: Assign, waited_ms: int) -> None:
        """Count a grant."""
        self.picks[decision.engine.name] += 1
        self.outcomes[decision.outcome] += 1
        self.outside_cap += decision.engine.tier is Tier.PAID and not decision.counted
        self.waits_ms.append(waited_ms)
        for step in decision.selection.steps:
            for member, share in zip(step.members, step.shares, strict=True):
                self.expected[member] += share

    def ended(self, engine: str, running_ms: int) -> None:
        """Count the end of a run."""
        self.busy_ms[engine] += running_ms
        self.last_ms = self.now_ms

    def finished(self, state: str) -> None:
        """Count the end of a job."""
        self.states[state] += 1

    def decided(self, lines: int) -> None:
        """Count decisions."""
        self.decisions += lines

    def close(self, now_ms: int, queue: Queue) -> None:
        """Count what is left."""
        self.until(now_ms, queue)
        for job in queue.jobs():
            self.left[job.told[1] if job.told else "not looked at"] += 1
        self.changing()

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values: durations in seconds, shares and fractions of 1."""
        waits = sorted(self.waits_ms)
        days = self._days()
        return {
            "jobs": {
                "succeeded": self.states["succeeded"],
                "failed": self.states["failed"],
                "queued": sum(self.left.values()),
                "reasons": dict(sorted(self.left.items())),
            },
            "decisions": self.decisions,
            "engines": self._engines(),
            "waits": {
                "p50": quantile(waits, 50) / 1000,
                "p95": quantile(waits, 95) / 1000,
                "max": (waits[-1] if waits else 0) / 1000,
                "mean": round(sum(waits) / len(waits) / 1000, 3) if waits else 0.0,
            },
            "overflows": self.outcomes["overflow"],
            "fallbacks": self.outcomes["fallback"],
            "cap": {
                "limit": self.rules.cap,
                "used": sum(day["used"] for day in days),
                "outside": self.outside_cap,
                "days": days,
            },
            "makespan": (self.last_ms - (self.begun_ms or 0)) / 1000,
        }

    def _engines(self) -> list[dict[str, Any]]:
        picks = sum(self.picks.values())
        names = list(self.fleet.slots())
        expected = sum(self.expected[name] for name in names)
        found = []
        for name in names:
            offered, mine = self.offered_ms[name], self.expected[name]
            found.append(
                {
                    "name": name,
                    "picks": self.picks[name],
                    "share": round(self.picks[name] / picks, 6) if picks else 0.0,
                    "expected_share": round(mine * 1_000_000 // expected / 1_000_000, 6) if expected else 0.0,
                    # Slots that were taken away under a run at work are not there to count it against.
                    "busy": min(1.0, round(self.busy_ms[name] / offered, 6)) if offered else 0.0,
                    "remark": NOT_NEEDED if not mine and picks else "",
                    "owed": round((mine - self.picks[name] * UNIT) / UNIT, 6),
                }
            )
        return found

    def _days(self) -> list[dict[str, Any]]:
        return [
            {"day": day, "purse": purse, "used": used}
            for (purse, day), used in sorted(self.rules.used.items(), key=lambda item: (item[0][1], item[0][0]))
            if used
        ]


def quantile(ordered: Sequence[int], percent: int) -> int:
    """The nearest-rank quantile; 0 of nothing."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0
