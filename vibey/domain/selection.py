"""Selection: walk a pool tree down to one engine.

Every mode compiles to a best-first list of classes, each with shares that sum to one; then one algorithm: take
the first class that has an open member, draw inside it, and go down. Only pools on the chosen path spend credit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.engine import MILLION
from vibey.domain.rotation import draw, shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.domain.pool import Member, Pool

CreditKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in one pool on the way: the class taken, its members' shares, credits before and after."""

    pool: str
    skipped: tuple[str, ...]
    members: tuple[str, ...]
    shares: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    chosen: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The engine a walk arrived at, and every step of it."""

    engine: str
    steps: tuple[Step, ...]


def select(pool: Pool, open_weights: Mapping[str, int], credits: Mapping[CreditKey, int]) -> Selection | None:
    """Draw one engine among the open ones (name → effective weight, positive); None when the pool has none."""
    steps: list[Step] = []
    node: Pool | None = pool
    while node is not None:
        step = _step(node, open_weights, credits)
        if step is None:
            return None
        steps.append(step)
        node = node.below(step.chosen)
    return Selection(steps[-1].chosen, tuple(steps))


def _step(pool: Pool, open_weights: Mapping[str, int], credits: Mapping[CreditKey, int]) -> Step | None:
    skipped: list[str] = []
    for members in pool.classes:
        live = {
            member.key: weight
            for member in members
            if (
                weight := open_weights.get(member.key, 0)
                if member.weight is None and member.pool is None
                else _weight(member, open_weights)
            )
        }
        if not live:
            skipped.extend(member.key for member in members)
            continue
        keys = tuple(live)
        gains = shares(tuple(live.values()))
        before = tuple([credits.get((pool.key, key), 0) for key in keys])
        winner, after = draw(before, gains)
        return Step(pool.key, tuple(skipped), keys, gains, before, after, keys[winner])
    return None


def _weight(member: Member, open_weights: Mapping[str, int]) -> int:
    """A member's weight in its class: its own times the engine's effective one; 0 when nothing in it is open."""
    if member.pool is not None:
        own = MILLION if member.weight is None else member.weight
        return 0 if open_weights.keys().isdisjoint(member.pool.engines()) else own
    weight = open_weights.get(member.key, 0)
    if member.weight is None:
        return weight
    product = member.weight * weight
    return max(1, product // MILLION) if product > 0 else 0
