"""What a plain simulation keeps books of: engines, jobs, runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, Failure, FailureClass

if TYPE_CHECKING:
    from vibey.domain.effort import Effort
    from vibey.domain.engine import EngineFacts
    from vibey.domain.offer import Why
    from vibey.simulate.trace import Arrival, FleetEvent


@dataclass
class Engine:
    """An engine's books."""

    facts: EngineFacts
    slots: int
    up: bool
    demoted: bool = False
    busy_until: int = 0
    ill: Failure | None = None


@dataclass
class Job:
    """A job's books. `told` is the last hold or wait written for it."""

    number: int
    arrival: Arrival
    effort: Effort
    due: int
    attempts: int = 0
    refunds: int = 0
    handoffs: int = 0
    avoided: frozenset[str] = frozenset()
    handed_off: frozenset[str] = frozenset()
    affinity: str | None = None
    held_at: int | None = None
    told: tuple[str, str] | None = None
    looked_at: int = 0
    is_queued: bool = True


@dataclass
class Run:
    """A run's books. `verdict` is how it ends, if not well; `unit` the purse and day of its unit."""

    number: int
    job: Job
    attempt: int
    engine: Engine
    why: Why
    begun: int
    looked_at: int
    ends: int
    unit: tuple[str, int] | None
    is_probe: bool
    verdict: Failure | None = None
    ended: int | None = None


def failure_of(event: FleetEvent) -> Failure:
    """How every run ends on an engine that fails like this."""
    if event.failure == "engine":
        return Failure(FailureClass.ENGINE, "engine")
    kind = CapacityKind(event.failure)
    resets = event.resets_ms if kind is CapacityKind.WINDOW else None
    return Failure(FailureClass.CAPACITY, event.failure, kind, resets_in_ms=resets)
