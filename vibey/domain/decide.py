"""Decide: the one function that says where a job runs, or why not yet.

    survey   every engine against the requirement, with reasons     (assessment)
    offer    the candidates this mode allows                         (offer)
    select   rotation among those with a free slot                   (selection, rotation)

`decide()` answers for one job and changes nothing. `decide_all()` folds it over a batch: each answer is made
on the world the one before left behind, so a batch decides exactly as if its jobs had come one by one. Where projects
share the slots, `vibey.domain.fairness` chooses whose job is decided next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vibey.domain.assessment import Survey, survey
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.offer import Barred, Fallback, Held, Load, Offer, Policy, WaitReason, Why, free, offer
from vibey.domain.selection import CreditKey, Field, Selection, Session, SessionKey, Step, Turn, select, within_reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vibey.domain.pool import Pool
    from vibey.domain.requirement import Requirement
    from vibey.domain.turn import Lot


SHARED_PURSE = "(installation)"
"""The name of the cap that all projects draw on, where they share one; no project can have it."""

UNKNOWN: frozenset[str] = frozenset({""})
"""Stands for engines' fullness that is yet to be found; no engine has an empty name."""


@dataclass(frozen=True, slots=True)
class Request:
    """One queued job as the router sees it; `attempt` is the number its next run will carry.

    `waited_ms` counts from this attempt's first hold; 0 if it was never held. `session` names the caller's
    conversation, unique among all projects. `lots` are what was drawn to find that it is its project's turn; none
    where projects take no turns, or nobody else had a job.
    """

    job_id: int
    attempt: int
    requirement: Requirement
    waited_ms: int = 0
    session: str | None = None
    lots: tuple[Lot, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """Everything a decision may depend on: the fleet, how full it is, the rotation's state, each project's rules.

    `full`, the engines without a free slot, follows from the rest. `caps` says how many units are left of the cap a
    project draws on; projects that share a cap are given the same name in `purses`. `sessions` says which member each
    session was given last in a class of a pool. `pool_missing`: the pool is configured no more, and its jobs wait.
    """

    pool: Pool
    engines: tuple[EngineFacts, ...]
    usage: Usage = field(default_factory=Usage)
    credits: Mapping[CreditKey, int] = field(default_factory=dict)
    cost_aware: bool = True
    policies: Mapping[str, Policy] = field(default_factory=dict)
    purses: Mapping[str, str] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    sessions: Mapping[SessionKey, str] = field(default_factory=dict)
    full: frozenset[str] = field(default=UNKNOWN, compare=False)
    pool_missing: bool = False

    def __post_init__(self) -> None:
        """Find the engines without a free slot, unless the world this one came from has told."""
        if self.full is UNKNOWN:
            full = frozenset([each.name for each in self.engines if self.usage.free_slots(each) <= 0])
            object.__setattr__(self, "full", full)

    def policy(self, project: str) -> Policy:
        """The rules a project's jobs are decided by."""
        return self.policies.get(project, DEFAULT_POLICY)

    def purse(self, project: str) -> str:
        """The name of the cap a project draws on."""
        return self.purses.get(project, project)

    def load(self, request: Request, surveyed: Survey) -> Load:
        """How things stand for one job. Paid engines kept from it by a pool that waits for a full one count as full."""
        left = self.caps.get(self.purse(request.requirement.project), 0) if self.caps else 0
        full = self.full | self.beyond_reach(Tier.PAID, surveyed) if self.pool.patient else self.full
        return Load(full, request.waited_ms, left)

    def beyond_reach(self, tier: Tier, surveyed: Survey) -> frozenset[str]:
        """Those of a tier's candidates that are free, yet kept from every job by a pool that waits for a full one."""
        seen = Field(surveyed.peers(tier), self.full, surveyed.demoted)
        reached = set(within_reach(self.pool, seen))
        return frozenset(name for name in seen.offered if name not in self.full and name not in reached)

    def survey(self, requirement: Requirement) -> Survey:
        """Assess the fleet for a requirement; stays valid while only usage and credits move."""
        may_fall_back = self.policy(requirement.project).fallback is not Fallback.NEVER
        return survey(requirement, self.engines, cost_aware=self.cost_aware, may_fall_back=may_fall_back)

    def surveyed(self, requirement: Requirement, known: dict[tuple[object, ...], Survey]) -> Survey:
        """The same as `survey`, made once for all requirements that ask alike; `known` keeps those made before."""
        never = bool(requirement.handed_off) and self.policy(requirement.project).fallback is Fallback.NEVER
        alike = requirement.needs, never
        found = known.get(alike)
        if found is None:
            found = known[alike] = self.survey(requirement)
        return found

    def after(self, decision: Decision) -> World:
        """The world once this decision has been carried out; a wait changes nothing."""
        if not isinstance(decision, Assign):
            return self
        credits = dict(self.credits)
        for step in decision.steps:
            if step.after is not step.before:
                for key, value in zip(step.members, step.after, strict=True):
                    credits[step.pool, key] = value
        caps = self.caps
        if decision.counted:
            purse = self.purse(decision.request.requirement.project)
            caps = {**caps, purse: caps[purse] - 1}
        usage = self.usage.with_run(decision.engine)
        return World(
            self.pool,
            self.engines,
            usage,
            credits,
            self.cost_aware,
            self.policies,
            self.purses,
            caps,
            self._remembering(decision),
            self._full_after(decision.engine, usage),
        )

    def _remembering(self, decision: Assign) -> Mapping[SessionKey, str]:
        found = decision.memories()
        return {**self.sessions, **found} if found else self.sessions

    def _full_after(self, engine: EngineFacts, usage: Usage) -> frozenset[str]:
        if engine.phase is Phase.HALF_OPEN:
            return UNKNOWN
        return self.full if usage.free_slots(engine) > 0 else self.full | {engine.name}


@dataclass(frozen=True, slots=True)
class Assign:
    """A run is granted on `engine`; `counted` takes a unit of the cap.

    `grounds` are given for every paid exception and every run that takes a unit. `turn` says how the job's project was
    drawn, where several shared the slots.
    """

    request: Request
    engine: EngineFacts
    why: Why
    waived: bool
    selection: Selection
    counted: bool = False
    grounds: Grounds | None = None
    turn: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Everything that was drawn."""
        return (*self.turn, *self.selection.steps)

    @property
    def outcome(self) -> str:
        """The outcome's name on decisions and in traces."""
        return self.why.value

    def memories(self) -> dict[SessionKey, str]:
        """What the session is to be remembered by: its member in every class that leaves a choice."""
        session = self.request.session
        if session is None:
            return {}
        return {
            (step.pool, step.label, session): step.chosen
            for step in self.selection.steps
            if step.remembers and step.turn is not Turn.YIELDED
        }

    @property
    def is_probe(self) -> bool:
        """Whether this run is the one trial of a half-open circuit."""
        return self.engine.phase is Phase.HALF_OPEN


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why paid work was justified: every local engine's slots (name, in use, slots), the wait, the cap's rest."""

    local: tuple[tuple[str, int, int], ...]
    waited_ms: int
    cap_left: int


@dataclass(frozen=True, slots=True)
class Hold:
    """The job stays queued because overflow could follow; look again after `retry_ms`."""

    request: Request
    retry_ms: int

    outcome = "hold"


@dataclass(frozen=True, slots=True)
class Wait:
    """The job stays queued because nothing can take it now."""

    request: Request
    reason: WaitReason

    outcome = "wait"


@dataclass(frozen=True, slots=True)
class Prospect:
    """How many of a group's jobs could be granted now; if none, `reason` says why they wait.

    `held_first`: only those held for the threshold, and the others are to be held; `counted`: each takes a unit.
    """

    room: int
    held_first: bool = False
    counted: bool = False
    reason: WaitReason | None = None

    @property
    def waiting(self) -> str | None:
        """The word for why jobs of the group stay queued; None when they are granted in turn."""
        if self.held_first:
            return "held"
        return None if self.reason is None else self.reason.value


Decision = Assign | Hold | Wait

DEFAULT_POLICY = Policy()


def decide(request: Request, world: World, surveyed: Survey | None = None) -> Decision:
    """Where this job runs, or why it waits. `surveyed` is the requirement's survey, when it is at hand."""
    if world.pool_missing:
        return Wait(request, WaitReason.NO_SUCH_POOL)
    assessed = surveyed or world.survey(request.requirement)
    load = world.load(request, assessed)
    offered = offer(assessed, world.policy(request.requirement.project), load)
    if isinstance(offered, Held):
        return Hold(request, offered.retry_ms)
    if isinstance(offered, Barred):
        return Wait(request, offered.reason)
    candidates = free(offered.candidates, load.full)
    if not candidates:
        return Wait(request, _wait_reason(offered, world))
    seen = _field(world, request, assessed, candidates[0].engine.tier)
    selection = select(world.pool, seen, world.credits)
    if selection is None:
        return Wait(request, _nowhere(world))
    chosen = seen.offered[selection.engine]
    is_exception = offered.counted or offered.why is not Why.ASSIGN
    grounds = _grounds(assessed, world, load) if is_exception else None
    drawn = tuple([lot.drawn(world.credits) for lot in request.lots])
    return Assign(request, chosen.engine, offered.why, chosen.waived, selection, offered.counted, grounds, drawn)


def decide_all(requests: Iterable[Request], world: World) -> Iterator[Decision]:
    """Decide a batch in order, each on the world the previous decision left behind."""
    return (decision for decision, _ in evolve(requests, world))


def evolve(requests: Iterable[Request], world: World) -> Iterator[tuple[Decision, World]]:
    """Decide a batch in order, and tell with each decision the world it left behind."""
    surveys: dict[tuple[object, ...], Survey] = {}
    for request in requests:
        decision = decide(request, world, world.surveyed(request.requirement, surveys))
        world = world.after(decision)
        yield decision, world


def prospect(surveyed: Survey, world: World, request: Request) -> Prospect:
    """What a group's jobs can look forward to now, judged by one of them that waited long enough to overflow.

    Tells the router how many of the group's jobs to fetch and lock, and what to note for the others.
    """
    if world.pool_missing:
        return Prospect(0, reason=WaitReason.NO_SUCH_POOL)
    policy = world.policy(request.requirement.project)
    load = replace(world.load(request, surveyed), waited_ms=policy.overflow_after_ms)
    offered = offer(surveyed, policy, load)
    if isinstance(offered, Barred):
        return Prospect(0, reason=offered.reason)
    if isinstance(offered, Held):
        return Prospect(0)
    candidates = free(offered.candidates, load.full)
    if not candidates:
        return Prospect(0, reason=_wait_reason(offered, world))
    if world.pool.patient:
        candidates = free(candidates, world.beyond_reach(Tier.LOCAL, surveyed))
    room = sum(world.usage.free_slots(each.engine) for each in candidates)
    if room == 0:
        return Prospect(0, reason=_nowhere(world))
    if offered.counted:
        room = min(room, load.cap_left)
    held_first = offered.why is Why.OVERFLOW and policy.overflow_after_ms > 0
    return Prospect(room, held_first=held_first, counted=offered.counted)


def _field(world: World, request: Request, surveyed: Survey, tier: Tier) -> Field:
    """What the walk may see: the free candidates, and their full peers, which it passes over and tells so."""
    session = None if request.session is None else Session(request.session, world.sessions)
    return Field(surveyed.peers(tier), world.full, surveyed.demoted, session)


def _nowhere(world: World) -> WaitReason:
    """Why a walk with free candidates came to none: its pool waits, or holds none of them."""
    return WaitReason.POOL_TIER_FULL if world.pool.patient else WaitReason.NO_ELIGIBLE_ENGINE


def _grounds(surveyed: Survey, world: World, load: Load) -> Grounds:
    in_use = world.usage.in_use
    ours = [each.engine for each in surveyed.assessments if each.engine.tier is Tier.LOCAL]
    ours.sort(key=lambda engine: (engine.ordinal, engine.name))
    local = tuple((engine.name, in_use.get(engine.name, 0), engine.slots) for engine in ours)
    return Grounds(local, load.waited_ms, load.cap_left)


def _wait_reason(offered: Offer, world: World) -> WaitReason:
    """Why none of the offered candidates can take the job."""
    if not offered.candidates:
        return WaitReason.NO_ELIGIBLE_ENGINE
    if free(offered.candidates, world.full):
        return _nowhere(world)
    if not any(each.engine.staffed for each in offered.candidates):
        return WaitReason.NO_WORKER
    return WaitReason.SLOTS_FULL
