"""Assessment: why each engine may serve a requirement, or why not.

An engine is *gone* for a requirement when a reason excludes it, and then it is no candidate. Being *full* is
not a reason: slots are looked at later, by the offer, so a busy or restarting local engine never looks like a
missing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from vibey.domain.call import ROUTED_TASKS
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
    NOT_PINNED = "not_pinned"
    NO_WORKSPACE = "no_workspace"
    MISSING_CAPABILITY = "missing_capability"
    NO_WEIGHT = "no_weight"


@dataclass(frozen=True, slots=True)
class Assessment:
    """One engine against one requirement: excluded for a reason, or a candidate; `weight` is its effective one.

    `waived` says that it is a candidate although an earlier attempt of the job had to leave it.
    """

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


def survey(
    requirement: Requirement,
    engines: Sequence[EngineFacts],
    *,
    cost_aware: bool = True,
    may_fall_back: bool = True,
) -> Survey:
    """Assess every engine for a requirement.

    Engines the job was handed off from are excluded unless no other candidate is left in any tier; a tier that then
    loses its last candidates by avoidance keeps them. Both are marked waived. `may_fall_back` is False where the
    project's rules keep paid engines from jobs that no local engine can serve: there they count as no other candidate
    beside configured local ones, because the job would wait for ever.
    """
    price = median_price(engines) if cost_aware else 0
    assessed = [_assess(engine, requirement, price) for engine in engines]
    has_local = any(each.engine.tier is Tier.LOCAL for each in assessed)
    if requirement.handed_off:
        _leave_handed_off(assessed, requirement.handed_off, may_pay=may_fall_back or not has_local)
    for tier in Tier:
        _avoid(assessed, tier, requirement.avoided)
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
    )
    found = next((reason for applies, reason in rules if applies), None)
    found = found or misfit(requirement, engine.name, engine.capabilities, calls_only=engine.calls_only)
    return found or (Exclusion.NO_WEIGHT if weight == 0 else None)


def misfit(requirement: Requirement, name: str, capabilities: frozenset[str], *, calls_only: bool) -> Exclusion | None:
    """Why an engine can never serve a requirement, whatever state it is in; None when it can.

    `calls_only` marks an engine that runs nothing but calls of Celery tasks.
    """
    workspace = requirement.workspace
    rules = (
        (name in requirement.excluded, Exclusion.EXCLUDED_BY_JOB),
        (bool(requirement.pinned) and name not in requirement.pinned, Exclusion.NOT_PINNED),
        (workspace is not None and name not in workspace, Exclusion.NO_WORKSPACE),
        (not requirement.capabilities <= capabilities, Exclusion.MISSING_CAPABILITY),
        (calls_only and ROUTED_TASKS not in requirement.capabilities, Exclusion.MISSING_CAPABILITY),
    )
    return next((reason for applies, reason in rules if applies), None)


def _leave_handed_off(assessed: list[Assessment], handed_off: frozenset[str], *, may_pay: bool) -> None:
    """Exclude the engines the job was handed off from, or waive that when no other candidate is left."""
    live = [i for i, each in enumerate(assessed) if each.is_candidate]
    left = [i for i in live if assessed[i].engine.name in handed_off]
    others = [i for i in live if assessed[i].engine.name not in handed_off]
    waive = not any(may_pay or assessed[i].engine.tier is Tier.LOCAL for i in others)
    for index in left:
        exclusion = None if waive else Exclusion.EXCLUDED_BY_JOB
        assessed[index] = replace(assessed[index], exclusion=exclusion, waived=waive)


def _avoid(assessed: list[Assessment], tier: Tier, avoided: frozenset[str]) -> None:
    live = [i for i, each in enumerate(assessed) if each.engine.tier is tier and each.is_candidate]
    unwanted = [i for i in live if assessed[i].engine.name in avoided]
    waive = len(unwanted) == len(live)
    for index in unwanted:
        exclusion = None if waive else Exclusion.EXCLUDED_BY_JOB
        assessed[index] = replace(assessed[index], exclusion=exclusion, waived=waive)


def _candidates(assessed: list[Assessment], tier: Tier) -> tuple[Assessment, ...]:
    return tuple(each for each in assessed if each.engine.tier is tier and each.is_candidate)
