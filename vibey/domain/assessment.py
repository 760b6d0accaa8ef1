"""Assessment: why each engine may serve a requirement, or why not.

An engine is *gone* for a requirement when a reason excludes it, and then it is no candidate. Being *full* is
not a reason: slots are looked at later, by the offer, so a busy or restarting local engine never looks like a
missing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from vibey.domain.engine import EngineFacts, Phase, Tier
from vibey.domain.weight import Factors, factors, median_price

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.requirement import Requirement


class Exclusion(StrEnum):
    """Why an engine is gone, in the order they are looked for; the first that applies is the one given."""

    DISABLED = "disabled"
    NOT_INSTALLED = "not_installed"
    CONFORMANCE_FAILED = "conformance_failed"
    LOGIN_STALE = "login_stale"
    CIRCUIT_OPEN = "circuit_open"
    EXCLUDED_BY_JOB = "excluded_by_job"
    MISSING_CAPABILITY = "missing_capability"
    NO_WEIGHT = "no_weight"


@dataclass(frozen=True, slots=True)
class Assessment:
    """One engine against one requirement: excluded for a reason, or a candidate; `weight` is its effective one."""

    engine: EngineFacts
    factors: Factors
    weight: int
    exclusion: Exclusion | None
    waived: bool = False

    @property
    def is_candidate(self) -> bool:
        """Whether the engine may serve the requirement now, slots aside."""
        return self.exclusion is None


@dataclass(frozen=True, slots=True)
class Survey:
    """Every engine's assessment for one requirement, and each tier's candidates; all in declared order.

    `has_local` says whether any local engine is configured at all, candidate or not; `demoted` names engines whose
    quota is nearly spent.
    """

    assessments: tuple[Assessment, ...]
    local: tuple[Assessment, ...]
    paid: tuple[Assessment, ...]
    has_local: bool
    demoted: frozenset[str] = frozenset()
    _peers: Mapping[Tier, Mapping[str, Assessment]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Name the candidates once: a batch asks for them with every decision."""
        tiers = {Tier.LOCAL: self.local, Tier.PAID: self.paid}
        named = {tier: {each.engine.name: each for each in found} for tier, found in tiers.items()}
        object.__setattr__(self, "_peers", named)

    def peers(self, tier: Tier) -> Mapping[str, Assessment]:
        """A tier's candidates by name."""
        return self._peers[tier]


def survey(requirement: Requirement, engines: Sequence[EngineFacts], *, cost_aware: bool = True) -> Survey:
    """Assess every engine; a tier that loses its last candidates by avoidance keeps them, marked waived."""
    price = median_price(engines) if cost_aware else 0
    assessed = [_assess(engine, requirement, price) for engine in engines]
    for tier in Tier:
        _avoid(assessed, tier, requirement.avoided)
    has_local = any(each.engine.tier is Tier.LOCAL for each in assessed)
    demoted = frozenset(each.engine.name for each in assessed if each.engine.demoted)
    local, paid = _candidates(assessed, Tier.LOCAL), _candidates(assessed, Tier.PAID)
    return Survey(tuple(assessed), local, paid, has_local, demoted)


def _assess(engine: EngineFacts, requirement: Requirement, price: int) -> Assessment:
    layers = factors(engine, requirement, price)
    weight = layers.effective
    return Assessment(engine, layers, weight, _exclusion(engine, requirement, weight))


def _exclusion(engine: EngineFacts, requirement: Requirement, weight: int) -> Exclusion | None:
    rules = (
        (not engine.enabled, Exclusion.DISABLED),
        (not engine.installed, Exclusion.NOT_INSTALLED),
        (not engine.conformant, Exclusion.CONFORMANCE_FAILED),
        (not engine.login_ok, Exclusion.LOGIN_STALE),
        (engine.phase is Phase.OPEN, Exclusion.CIRCUIT_OPEN),
        (engine.name in requirement.excluded, Exclusion.EXCLUDED_BY_JOB),
        (not requirement.capabilities <= engine.capabilities, Exclusion.MISSING_CAPABILITY),
        (weight == 0, Exclusion.NO_WEIGHT),
    )
    return next((reason for applies, reason in rules if applies), None)


def _avoid(assessed: list[Assessment], tier: Tier, avoided: frozenset[str]) -> None:
    live = [i for i, each in enumerate(assessed) if each.engine.tier is tier and each.is_candidate]
    unwanted = [i for i in live if assessed[i].engine.name in avoided]
    waive = len(unwanted) == len(live)
    for index in unwanted:
        exclusion = None if waive else Exclusion.EXCLUDED_BY_JOB
        assessed[index] = replace(assessed[index], exclusion=exclusion, waived=waive)


def _candidates(assessed: list[Assessment], tier: Tier) -> tuple[Assessment, ...]:
    return tuple(each for each in assessed if each.engine.tier is tier and each.is_candidate)
