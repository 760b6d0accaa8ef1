"""Decide: the one function that says where a job runs, or why not yet.

    survey   every engine against the requirement, with reasons     (assessment)
    offer    the candidates this mode allows                         (offer)
    select   rotation among those with a free slot                   (selection, rotation)

`decide()` answers for one job and changes nothing. `decide_all()` folds it over a batch: each answer is made
on the world the one before left behind, so a batch decides exactly as if its jobs had come one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibey.domain.assessment import Assessment, Survey, survey
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.offer import Offer, WaitReason, Why, offer
from vibey.domain.selection import CreditKey, Selection, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vibey.domain.pool import Pool
    from vibey.domain.requirement import Requirement


@dataclass(frozen=True, slots=True)
class Request:
    """One queued job as the router sees it; `attempt` is the number its next run will carry."""

    job_id: int
    attempt: int
    requirement: Requirement


@dataclass(frozen=True, slots=True)
class World:
    """Everything a decision may depend on: the fleet, how full it is, and the rotation's state."""

    pool: Pool
    engines: tuple[EngineFacts, ...]
    usage: Usage = field(default_factory=Usage)
    credits: Mapping[CreditKey, int] = field(default_factory=dict)
    cost_aware: bool = True

    def survey(self, requirement: Requirement) -> Survey:
        """Assess the fleet for a requirement; stays valid while only usage and credits move."""
        return survey(requirement, self.engines, cost_aware=self.cost_aware)

    def after(self, decision: Decision) -> World:
        """The world once this decision has been carried out; a wait changes nothing."""
        if not isinstance(decision, Assign):
            return self
        credits = dict(self.credits)
        for step in decision.selection.steps:
            for key, value in zip(step.members, step.after, strict=True):
                credits[step.pool, key] = value
        usage = self.usage.with_run(decision.engine)
        return World(self.pool, self.engines, usage, credits, self.cost_aware)


@dataclass(frozen=True, slots=True)
class Assign:
    """A run is granted on `engine`."""

    request: Request
    engine: EngineFacts
    why: Why
    waived: bool
    selection: Selection

    @property
    def outcome(self) -> str:
        """The outcome's name on decisions and in traces."""
        return self.why.value

    @property
    def is_probe(self) -> bool:
        """Whether this run is the one trial of a half-open circuit."""
        return self.engine.phase is Phase.HALF_OPEN


@dataclass(frozen=True, slots=True)
class Wait:
    """The job stays queued because nothing can take it now."""

    request: Request
    reason: WaitReason

    outcome = "wait"


Decision = Assign | Wait


def decide(request: Request, world: World, surveyed: Survey | None = None) -> Decision:
    """Where this job runs, or why it waits. `surveyed` is the requirement's survey, when it is at hand."""
    assessed = surveyed or world.survey(request.requirement)
    offered = offer(assessed)
    free = _with_free_slot(offered, world.usage)
    if not free:
        return Wait(request, _wait_reason(offered))
    weights = {each.engine.name: each.weight for each in free}
    selection = select(world.pool, weights, world.credits)
    if selection is None:
        return Wait(request, WaitReason.NO_ELIGIBLE_ENGINE)
    chosen = next(each for each in free if each.engine.name == selection.engine)
    return Assign(request, chosen.engine, offered.why, chosen.waived, selection)


def decide_all(requests: Iterable[Request], world: World) -> Iterator[Decision]:
    """Decide a batch in order, each on the world the previous decision left behind."""
    surveys: dict[Requirement, Survey] = {}
    for request in requests:
        surveyed = surveys.get(request.requirement)
        if surveyed is None:
            surveyed = surveys[request.requirement] = world.survey(request.requirement)
        decision = decide(request, world, surveyed)
        world = world.after(decision)
        yield decision


def takers(surveyed: Survey, usage: Usage) -> tuple[EngineFacts, ...]:
    """The engines that would take a job of this survey's requirement right now; empty when it could only wait."""
    return tuple(each.engine for each in _with_free_slot(offer(surveyed), usage))


def wait_reason(surveyed: Survey, usage: Usage) -> WaitReason:  # noqa: ARG001  asked like `takers`
    """Why a job of this requirement waits, given that nothing takes it."""
    return _wait_reason(offer(surveyed))


def _with_free_slot(offered: Offer, usage: Usage) -> tuple[Assessment, ...]:
    return tuple([each for each in offered.candidates if usage.free_slots(each.engine) > 0])


def _wait_reason(offered: Offer) -> WaitReason:
    if not offered.candidates:
        return WaitReason.NO_ELIGIBLE_ENGINE
    if not any(each.engine.staffed for each in offered.candidates):
        return WaitReason.NO_WORKER
    return WaitReason.SLOTS_FULL


def tier_of(decision: Decision) -> Tier | None:
    """The tier a decision chose; None for a wait."""
    return decision.engine.tier if isinstance(decision, Assign) else None
