"""Pure decisions: the domain alone, in memory, on a fleet of ten engines."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from vibey.bench.figures import Bar, Figure, Scale, rate, ratios
from vibey.domain.decide import Request, World, decide, decide_all
from vibey.domain.effort import Effort
from vibey.domain.engine import MILLION, EngineFacts, Tier
from vibey.domain.pool import default_pool
from vibey.domain.requirement import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vibey.bench.laboratory import Laboratory

ENGINES = 10
PLENTY = 10**9
BAR = Bar(50_000)


def measure(_: Laboratory, scale: Scale) -> list[Figure]:
    """One decision with its survey at hand, a folded batch, and a bare round robin over the same weights."""
    count = scale.pick(100_000, 2_000)
    world = world_of(ENGINES)
    requirement = Requirement("main", "default", Effort.LOW)
    surveyed = world.survey(requirement)
    requests = [Request(number, 1, requirement) for number in range(count)]
    bare, one, batch = scale.in_turn(
        lambda: rate(count, lambda: _round_robin(count)),
        lambda: rate(count, lambda: _exhaust(decide(request, world, surveyed) for request in requests)),
        lambda: rate(count, lambda: _exhaust(decide_all(requests, world))),
    )
    return [
        Figure("pure", "decide, ten engines", "decisions/s", one, BAR),
        Figure("pure", "decide_all, ten engines", "decisions/s", batch, BAR),
        Figure("pure", "bare smooth weighted round robin", "picks/s", bare),
        Figure("pure", "decide over bare round robin", "x", ratios(one, bare)),
    ]


def world_of(count: int) -> World:
    """A world with so many local engines of weights 1, 2, 3 in turn, and slots for all."""
    engines = tuple(
        EngineFacts(f"e{number}", Tier.LOCAL, number, PLENTY, f"e{number}", weight=_weight(number) * MILLION)
        for number in range(count)
    )
    return World(default_pool("main", engines), engines)


def _weight(number: int) -> int:
    return number % 3 + 1


def _round_robin(count: int) -> None:
    """The least a rotation can do: nginx's loop over whole weights, with no reasons, tiers or slots."""
    weights = [_weight(number) for number in range(ENGINES)]
    total = sum(weights)
    current = [0] * ENGINES
    for _ in range(count):
        for index, weight in enumerate(weights):
            current[index] += weight
        current[current.index(max(current))] -= total


def _exhaust(items: Iterable[object]) -> None:
    deque(items, maxlen=0)
