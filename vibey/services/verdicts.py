"""Verdicts: what a decision came to for each engine, from what the decision was made from. Pure.

Every engine has exactly one. *Excluded*: it could not serve the job at all. *Full*: it could, but had no free slot.
*Not offered*: it was free, but the job was not allowed it. Of the engines offered and free one is *chosen*; another
*lost* to it in a draw, or was *passed over*, because it lies in a lower class or its pool waits for a full one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vibey.domain.decide import Assign
from vibey.domain.engine import Phase, Tier
from vibey.domain.offer import Barred, Held, Mode, Offer, free, offer
from vibey.domain.selection import Field, Status

if TYPE_CHECKING:
    from vibey.domain.assessment import Assessment
    from vibey.domain.decide import Decision
    from vibey.domain.pool import Member, Pool
    from vibey.domain.selection import Step
    from vibey.services.replay import Question


class Verdict(StrEnum):
    """What became of an engine."""

    CHOSEN = "chosen"
    LOST = "lost"
    PASSED_OVER = "passed_over"
    NOT_OFFERED = "not_offered"
    FULL = "full"
    EXCLUDED = "excluded"


class Ground(StrEnum):
    """Why an engine that could serve the job was not in the draw."""

    SLOTS = "slots"
    BUSY = "busy"
    NO_WORKER = "no_worker"
    PROBE_OUT = "probe_out"
    LOCAL_FIRST = "local_first"
    LOCAL_FREE = "local_free"
    HELD = "held"
    CAP_SPENT = "cap_spent"
    FALLBACK_NOT_ALLOWED = "fallback_not_allowed"
    POOL_WAITS = "pool_waits"
    LOWER_CLASS = "lower_class"
    NOT_IN_POOL = "not_in_pool"


@dataclass(frozen=True, slots=True)
class Judged:
    """An engine's verdict and its ground, an `Exclusion`'s or a `Ground`'s word; none for those in the draw.

    `member` is how the engine stands in the tree, None if it does not. `step` and `place` are where it took part in the
    draw: itself, or the nested pool it lies in.
    """

    assessment: Assessment
    verdict: Verdict
    ground: str | None = None
    member: Member | None = None
    step: Step | None = None
    place: int | None = None


def verdicts(question: Question, answer: Decision) -> list[Judged]:
    """Every engine's verdict, in declared order."""
    load = question.world.load(question.request, question.surveyed)
    offered = offer(question.surveyed, question.world.policy(question.request.requirement.project), load)
    candidates = free(offered.candidates, load.full) if isinstance(offered, Offer) else ()
    drawn = {each.engine.name for each in candidates}
    judge = _Judge(question, answer, offered, drawn)
    return [judge.judged(each) for each in question.surveyed.assessments]


@dataclass(frozen=True, slots=True)
class _Judge:
    question: Question
    answer: Decision
    offered: Offer | Held | Barred
    drawn: set[str]

    def judged(self, each: Assessment) -> Judged:
        name, world = each.engine.name, self.question.world
        member = _member(world.pool, name)
        if each.exclusion is not None:
            return Judged(each, Verdict.EXCLUDED, each.exclusion.value, member)
        if name in world.full:
            return Judged(each, Verdict.FULL, self._fullness(each), member)
        if name not in self.drawn:
            return Judged(each, Verdict.NOT_OFFERED, self._refusal(), member)
        if not isinstance(self.answer, Assign):
            ground = Ground.NOT_IN_POOL if member is None else Ground.POOL_WAITS
            return Judged(each, Verdict.PASSED_OVER, ground, member)
        return self._in_the_walk(each, member, self.answer.selection.steps)

    def _fullness(self, each: Assessment) -> Ground:
        engine, usage = each.engine, self.question.world.usage
        if engine.busy:
            return Ground.BUSY
        if not engine.staffed:
            return Ground.NO_WORKER
        probing = engine.phase is Phase.HALF_OPEN and engine.account in usage.probing
        return Ground.PROBE_OUT if probing and usage.in_use.get(engine.name, 0) < engine.slots else Ground.SLOTS

    def _refusal(self) -> Ground:
        """Why an engine with a free slot was not offered; only a paid one ever is not."""
        if isinstance(self.offered, Held):
            return Ground.HELD
        if isinstance(self.offered, Barred):
            return Ground(self.offered.reason.value)
        request, surveyed, world = self.question.request, self.question.surveyed, self.question.world
        if not surveyed.local:
            return Ground.POOL_WAITS
        if world.policy(request.requirement.project).mode is Mode.SINGLETON:
            return Ground.LOCAL_FIRST
        if free(surveyed.local, world.full):
            return Ground.LOCAL_FREE
        load = world.load(request, surveyed)
        return Ground.CAP_SPENT if free(surveyed.paid, load.full) and load.cap_left <= 0 else Ground.POOL_WAITS

    def _in_the_walk(self, each: Assessment, leaf: Member | None, steps: tuple[Step, ...]) -> Judged:
        """Where the way to this engine parted from the way that was taken."""
        node: Pool | None = self.question.world.pool
        for step in steps:
            if node is None or leaf is None:
                break
            way = _way(node, each.engine.name)
            place = step.members.index(way.key) if way.key in step.members else None
            if way.key != step.chosen:
                verdict = Verdict.PASSED_OVER if place is None else Verdict.LOST
                ground = self._passed_over(way) if place is None else None
                return Judged(each, verdict, ground, leaf, None if place is None else step, place)
            if way.pool is None:
                return Judged(each, Verdict.CHOSEN, None, leaf, step, place)
            node = way.pool
        return Judged(each, Verdict.PASSED_OVER, Ground.NOT_IN_POOL, leaf)

    def _passed_over(self, way: Member) -> Ground:
        surveyed = self.question.surveyed
        tier = self.answer.engine.tier if isinstance(self.answer, Assign) else Tier.PAID
        seen = Field(surveyed.peers(tier), self.question.world.full, surveyed.demoted)
        return Ground.LOWER_CLASS if seen.status(way) is Status.FREE else Ground.POOL_WAITS


def _member(pool: Pool, name: str) -> Member | None:
    """The member that is this engine, wherever in the tree a walk can find it."""
    if name not in pool.leaves:
        return None
    way = _way(pool, name)
    return way if way.pool is None else _member(way.pool, name)


def _way(pool: Pool, name: str) -> Member:
    """The member of a pool that leads to an engine under it."""
    return next(each for each in pool.members if each.share != 0 and name in each.leaves)
