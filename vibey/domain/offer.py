"""Offer: which candidates a job may be given now, before rotation chooses among them.

Pure and total: for every survey, policy and load there is exactly one answer, the first that applies.

1. *No local candidate.* Paid is offered. If local engines are configured this is a fallback, which the policy allows,
   counts against the cap, or forbids; with no local engine in the pool it is a plain assignment. Why no local engine is
   a candidate makes no difference: also not when the job handed itself off from it, names other engines, or works in a
   repository that only paid engines reach. Either takes a unit where the cap covers all paid runs.
2. *Mode singleton.* The preferred tier's candidates, whatever the load.
3. *A local candidate has a free slot.* Exactly the free locals: paid is never offered beside a free local slot.
4. *Overflow cannot follow*, because no paid candidate is free or the cap is spent. Local, so the job waits for it.
5. *Waited less than the threshold.* Hold, and look again within the poll.
6. *Waited long enough.* The free paid candidates: overflow, one unit of the cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibey.domain.assessment import Assessment, Survey


class Mode(StrEnum):
    """How local and paid engines work together; the setting `auto` always resolves to one of these."""

    SINGLETON = "singleton"
    HYBRID = "hybrid"


class Fallback(StrEnum):
    """What a paid pick for want of any local candidate costs: nothing, a unit of the cap, or it may not be."""

    ALLOW = "allow"
    COUNT = "count"
    NEVER = "never"


class Covers(StrEnum):
    """Which paid runs take a unit of the cap: overflows and counted fallbacks, or every one of them."""

    EXCEPTIONS = "exceptions"
    ALL = "all"


class Why(StrEnum):
    """On what grounds a run was granted."""

    ASSIGN = "assign"
    OVERFLOW = "overflow"
    FALLBACK = "fallback"


class WaitReason(StrEnum):
    """Why a job stays queued, seen from the fleet."""

    NO_ELIGIBLE_ENGINE = "no_eligible_engine"
    SLOTS_FULL = "slots_full"
    POOL_TIER_FULL = "pool_tier_full"
    NO_WORKER = "no_worker"
    CAP_SPENT = "cap_spent"
    FALLBACK_NOT_ALLOWED = "fallback_not_allowed"
    NO_SUCH_POOL = "no_such_pool"


@dataclass(frozen=True, slots=True)
class Policy:
    """A project's rules. Durations are milliseconds; `cap` is units a UTC day, `weight` its part among projects."""

    mode: Mode = Mode.SINGLETON
    overflow_after_ms: int = 600_000
    poll_ms: int = 30_000
    cap: int = 10
    fallback: Fallback = Fallback.ALLOW
    weight: int = 1
    covers: Covers = Covers.EXCEPTIONS

    @property
    def counts_fallbacks(self) -> bool:
        """Whether a paid run takes a unit where local engines are configured and none is a candidate."""
        return self.fallback is not Fallback.NEVER and (self.fallback is Fallback.COUNT or self.covers is Covers.ALL)

    @property
    def may_spend(self) -> bool:
        """Whether a job under these rules could ever take a unit of the cap."""
        return self.mode is Mode.HYBRID or self.fallback is Fallback.COUNT or self.covers is Covers.ALL

    def may_take_unit(self, survey: Survey) -> bool:
        """Whether a job with these candidates could take a unit; if not, the cap has no part in its decisions."""
        if not survey.paid:
            return False
        if survey.local:
            return self.mode is Mode.HYBRID
        return self.counts_fallbacks if survey.has_local else self.covers is Covers.ALL


@dataclass(frozen=True, slots=True)
class Load:
    """Which engines have no free slot, how long this attempt has been held, how many units of the cap are left."""

    full: frozenset[str] = frozenset()
    waited_ms: int = 0
    cap_left: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """The candidates rotation may choose among; `counted` says that a run on them takes a unit of the cap."""

    candidates: tuple[Assessment, ...]
    why: Why
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """The job stays queued because overflow could follow; look again after so many milliseconds."""

    retry_ms: int


@dataclass(frozen=True, slots=True)
class Barred:
    """Nothing may be offered, and why."""

    reason: WaitReason


def offer(survey: Survey, policy: Policy, load: Load) -> Offer | Held | Barred:
    """The answer for one job; the module's text numbers the rules."""
    local = survey.local
    if not local:
        return _without_local(survey, policy, load)
    if policy.mode is Mode.SINGLETON:
        return Offer(local, Why.ASSIGN)
    if free_local := free(local, load.full):
        return Offer(free_local, Why.ASSIGN)
    free_paid = free(survey.paid, load.full)
    if not free_paid or load.cap_left <= 0:
        return Offer(local, Why.ASSIGN)
    if load.waited_ms < policy.overflow_after_ms:
        return Held(retry_ms(policy, load.waited_ms))
    return Offer(free_paid, Why.OVERFLOW, counted=True)


def retry_ms(policy: Policy, waited_ms: int) -> int:
    """When to look at a held job again: at the threshold in whole seconds, within the poll, and never at once."""
    remaining = -(-(policy.overflow_after_ms - waited_ms) // 1000) * 1000
    return max(1000, min(remaining, policy.poll_ms))


def _without_local(survey: Survey, policy: Policy, load: Load) -> Offer | Barred:
    if not survey.paid:
        return Barred(WaitReason.NO_ELIGIBLE_ENGINE)
    if survey.has_local and policy.fallback is Fallback.NEVER:
        return Barred(WaitReason.FALLBACK_NOT_ALLOWED)
    counted = policy.may_take_unit(survey)
    if counted and load.cap_left <= 0:
        return Barred(WaitReason.CAP_SPENT)
    return Offer(survey.paid, Why.FALLBACK if survey.has_local else Why.ASSIGN, counted)


def free(candidates: tuple[Assessment, ...], full: frozenset[str]) -> tuple[Assessment, ...]:
    """The candidates that have a free slot."""
    return tuple([each for each in candidates if each.engine.name not in full]) if full else candidates
