"""Effective weight, in integers: base × health × fidelity × cost × affinity, all in millionths.

No float takes part, so equal products are equal whatever the order of their factors, and a weight is rounded
to zero only when one of its factors is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.effort import Effort, achieved
from vibey.domain.engine import MILLION, EngineFacts, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vibey.domain.requirement import Requirement

HALF_OPEN_HEALTH = 250_000
FIDELITY = (MILLION, 700_000, 500_000)
COST_BOUNDS = (500_000, 1_500_000)
AFFINITY = 2 * MILLION


@dataclass(frozen=True, slots=True)
class Factors:
    """The layers of one engine's weight for one requirement, each in millionths."""

    base: int
    health: int
    fidelity: int
    cost: int
    affinity: int

    @property
    def effective(self) -> int:
        """The product in millionths: positive while every factor is, 0 as soon as one is 0."""
        return self.on(self.base)

    def on(self, base: int) -> int:
        """The product with another base, such as a pool gives the engine, in place of its own."""
        product = base * self.health * self.fidelity * self.cost * self.affinity
        return max(1, product // MILLION**4) if product > 0 else 0


def factors(engine: EngineFacts, requirement: Requirement, median_price: int) -> Factors:
    """All factors of an engine for a requirement. `median_price` 0 turns the cost factor off."""
    return Factors(
        base=engine.weight,
        health=health(engine.phase, engine.failure),
        fidelity=fidelity(requirement.effort, engine.efforts),
        cost=cost(engine.price, median_price),
        affinity=AFFINITY if requirement.affinity == engine.name else MILLION,
    )


def health(phase: Phase, failure: int) -> int:
    """Open 0, half-open a quarter, closed 1 − failure average."""
    if phase is Phase.OPEN:
        return 0
    if phase is Phase.HALF_OPEN:
        return HALF_OPEN_HEALTH
    return max(0, MILLION - failure)


def fidelity(requested: Effort, offered: tuple[Effort, ...]) -> int:
    """1, 0.7 or 0.5 by how many levels the engine falls short of the request."""
    shortfall = max(0, requested - achieved(requested, offered))
    return FIDELITY[min(shortfall, len(FIDELITY) - 1)]


def cost(price: int, median_price: int) -> int:
    """Median price over this engine's, within 0.5 to 1.5; 1 when either is unknown or free."""
    if price <= 0 or median_price <= 0:
        return MILLION
    low, high = COST_BOUNDS
    return min(high, max(low, median_price * MILLION // price))


def median_price(engines: Iterable[EngineFacts]) -> int:
    """The lower median of the known prices, micro-dollars; 0 when none is known."""
    prices = sorted(engine.price for engine in engines if engine.price > 0)
    return prices[(len(prices) - 1) // 2] if prices else 0


def decayed(failure: int, elapsed_ms: int, half_life_ms: int) -> int:
    """A failure average after time has passed: halved every half-life, linear between the halvings.

    Integer arithmetic keeps it exact and monotone; the linear piece is within 6.2 % of the exponential.
    """
    if failure <= 0 or elapsed_ms <= 0:
        return max(0, failure)
    halvings, rest = divmod(elapsed_ms, half_life_ms)
    if halvings >= failure.bit_length():
        return 0
    return (failure * (2 * half_life_ms - rest)) // (2 * half_life_ms << halvings)
