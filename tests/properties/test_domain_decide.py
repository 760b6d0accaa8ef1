"""What holds of decisions for every valid world."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracles
from tests.support.worlds import batches, requirements, ruled_worlds, worlds
from vibey.domain.decide import Assign, Request, Wait, World, decide, decide_all, prospect
from vibey.domain.engine import Phase, Tier
from vibey.domain.offer import Covers, Fallback, Mode, Why
from vibey.domain.pool import default_pool

if TYPE_CHECKING:
    from vibey.domain.decide import Decision
    from vibey.domain.requirement import Requirement


def folded(requests: list[Request], world: World) -> tuple[list[Decision], list[World]]:
    """Decisions one by one, and the world before each and after the last."""
    decisions, seen = [], [world]
    for request in requests:
        decisions.append(decide(request, seen[-1]))
        seen.append(seen[-1].after(decisions[-1]))
    return decisions, seen


@given(worlds(), requirements)
def test_a_job_is_assigned_exactly_when_an_engine_of_the_preferred_tier_is_free(
    world: World, requirement: Requirement
) -> None:
    """There is always one answer, and it is to assign exactly when the oracle finds a taker."""
    expected = oracles.takers(requirement, world.engines, world.usage)
    decision = decide(Request(1, 1, requirement), world)
    if expected:
        assert isinstance(decision, Assign)
        assert decision.engine.name in expected
    else:
        assert isinstance(decision, Wait)
        assert decision.reason.value == oracles.wait_reason(requirement, world.engines)


@given(worlds(), requirements)
def test_takers_and_reasons_agree_with_the_oracle(world: World, requirement: Requirement) -> None:
    """What a group is told before any of its jobs is decided is what the decision would say."""
    surveyed = world.survey(requirement)
    expected = oracles.takers(requirement, world.engines, world.usage)
    seen = prospect(surveyed, world, Request(0, 1, requirement))
    free = sum(world.usage.free_slots(engine) for engine in world.engines if engine.name in expected)
    assert seen.room == free
    if not expected:
        assert seen.waiting == oracles.wait_reason(requirement, world.engines)


@given(worlds(), requirements)
def test_the_first_reason_that_applies_is_given(world: World, requirement: Requirement) -> None:
    """Each engine's exclusion is the first in the documented order; avoidance counts unless waived."""
    remaining = {
        engine.name: engine for tier in Tier for engine in oracles.candidates(requirement, world.engines, tier)[0]
    }
    surveyed = world.survey(requirement)
    assert [each.engine for each in surveyed.assessments] == list(world.engines)
    for each in surveyed.assessments:
        reason = oracles.exclusion(each.engine, requirement)
        if reason is None and each.engine.name not in remaining:
            reason = "excluded_by_job"
        assert (each.exclusion.value if each.exclusion else None) == reason
        assert each.is_candidate == (reason is None)


@given(worlds(), requirements)
def test_avoidance_is_waived_only_for_a_tier_it_would_empty(world: World, requirement: Requirement) -> None:
    """A waived candidate was handed off from, or is of a tier in which every live engine is avoided; none else is."""
    for each in world.survey(requirement).assessments:
        assert each.waived == oracles.is_waived(each.engine, requirement, world.engines)


@given(ruled_worlds(), requirements)
def test_a_handoff_is_waived_only_when_no_other_engine_may_serve(world: World, requirement: Requirement) -> None:
    """An engine the job was handed off from is a candidate exactly when no other is left, by the project's rules."""
    may_pay = world.policy(requirement.project).fallback is not Fallback.NEVER
    left, waived = oracles.beyond_handoff(requirement, world.engines, may_pay=may_pay)
    again = [each for each in left if each.name in requirement.handed_off]
    assert bool(again) == waived
    surveyed = world.survey(requirement)
    for each in surveyed.assessments:
        assert each.waived == oracles.is_waived(each.engine, requirement, world.engines, may_pay=may_pay)
        if each.engine.name in requirement.handed_off and not waived:
            assert not each.is_candidate


@given(worlds(), batches())
def test_paid_is_never_chosen_while_a_local_candidate_exists(world: World, requests: list[Request]) -> None:
    """A full local engine is waited for; paid is a fallback when local is configured and gone, else an assignment."""
    has_local = any(engine.tier is Tier.LOCAL for engine in world.engines)
    for decision in decide_all(requests, world):
        local, _ = oracles.candidates(decision.request.requirement, world.engines, Tier.LOCAL)
        if isinstance(decision, Assign):
            assert decision.engine.tier is (Tier.LOCAL if local else Tier.PAID)
            assert decision.why is (Why.FALLBACK if has_local and not local else Why.ASSIGN)
            assert decision.outcome == decision.why.value


@given(worlds(), batches())
def test_credits_of_engines_that_took_no_part_stand_still(world: World, requests: list[Request]) -> None:
    """An excluded, full or unpreferred engine is not chosen, and its credit and its pools' do not move."""
    decisions, seen = folded(requests, world)
    for decision, before, after in zip(decisions, seen, seen[1:], strict=False):
        if isinstance(decision, Wait):
            assert after is before
            continue
        free = set(oracles.takers(decision.request.requirement, before.engines, before.usage))
        assert decision.engine.name in free
        moved = {key for key in after.credits if after.credits[key] != before.credits.get(key, 0)}
        visited = {step.pool for step in decision.selection.steps}
        members = {key for step in decision.selection.steps for key in step.members}
        assert {pool for pool, _ in moved} <= visited
        assert {member for _, member in moved} <= members
        assert members & {engine.name for engine in world.engines} <= free


@given(worlds() | ruled_worlds(), batches())
def test_a_batch_decides_as_if_its_jobs_had_come_one_by_one(world: World, requests: list[Request]) -> None:
    """`decide_all` is the fold of `decide`; a ready survey changes nothing."""
    decisions, seen = folded(requests, world)
    assert list(decide_all(requests, world)) == decisions
    surveys = [world.survey(request.requirement) for request in requests]
    trio = zip(requests, seen, surveys, strict=False)
    assert [decide(request, at, surveyed) for request, at, surveyed in trio] == decisions


@given(worlds() | ruled_worlds(), batches())
def test_nothing_given_is_changed(world: World, requests: list[Request]) -> None:
    """Deciding and moving on leave the world they were given, and its mappings, as they were."""
    before = deepcopy((world.engines, world.pool, dict(world.usage.in_use), world.usage.probing, dict(world.credits)))
    list(decide_all(requests, world))
    after = (world.engines, world.pool, dict(world.usage.in_use), world.usage.probing, dict(world.credits))
    assert after == before


@given(worlds(), batches(largest=30))
def test_slots_are_never_exceeded_and_never_left_idle(world: World, requests: list[Request]) -> None:
    """After a batch no engine is over its slots by it, and no waiting job has a taker."""
    decisions, seen = folded(requests, world)
    granted = Counter(decision.engine.name for decision in decisions if isinstance(decision, Assign))
    for engine in world.engines:
        assert granted[engine.name] <= oracles.free_slots(engine, world.usage)
    last = seen[-1]
    for decision in decisions:
        if isinstance(decision, Wait):
            assert not oracles.takers(decision.request.requirement, last.engines, last.usage)


@given(worlds() | ruled_worlds(), batches(largest=30))
def test_a_half_open_account_gets_one_probe_in_all(world: World, requests: list[Request]) -> None:
    """Engines of one half-open account share its single probe, and none is granted while one is out."""
    probes: Counter[str] = Counter()
    for decision in decide_all(requests, world):
        if isinstance(decision, Assign):
            assert decision.is_probe == (decision.engine.phase is Phase.HALF_OPEN)
            probes[decision.engine.account] += decision.is_probe
    assert all(count <= 1 for count in probes.values())
    assert not world.usage.probing & {account for account, count in probes.items() if count}


@given(worlds(), batches(), st.randoms(use_true_random=False))
def test_the_order_engines_are_listed_in_changes_nothing(world: World, requests: list[Request], chance: object) -> None:
    """Shuffled engines keep their ordinals, and so every choice and every tie."""
    shuffled = list(world.engines)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    pool = default_pool("main", shuffled) if world.pool == default_pool("main", world.engines) else world.pool
    other = replace(world, engines=tuple(shuffled), pool=pool)
    assert list(decide_all(requests, other)) == list(decide_all(requests, world))


@given(worlds() | ruled_worlds(), batches())
def test_no_float_takes_part(world: World, requests: list[Request]) -> None:
    """Surveys, decisions and the worlds they lead to are made of whole numbers, names and flags."""
    decisions, seen = folded(requests, world)
    surveys = [world.survey(request.requirement) for request in requests]
    assert not [atom for atom in oracles.atoms((decisions, seen, surveys)) if isinstance(atom, float)]


@given(worlds() | ruled_worlds(), batches())
def test_the_same_question_has_the_same_answer(world: World, requests: list[Request]) -> None:
    """Deciding twice gives equal decisions."""
    assert list(decide_all(requests, world)) == list(decide_all(requests, deepcopy(world)))


@given(worlds(with_credits=False), batches(largest=30))
def test_expected_shares_of_a_decision_sum_to_one_pick(world: World, requests: list[Request]) -> None:
    """Every pool on the way offered one whole pick, and the chosen engine had part in it."""
    for decision in decide_all(requests, world):
        if isinstance(decision, Assign):
            assert all(sum(step.shares) == 10**12 for step in decision.selection.steps)
            last = decision.selection.steps[-1]
            assert last.shares[last.members.index(decision.engine.name)] > 0


@given(ruled_worlds(), batches(largest=30))
def test_paid_exceptions_keep_to_their_projects_rules(world: World, requests: list[Request]) -> None:
    """Overflow beside full local engines only, after the wait, in mode hybrid; fallback as allowed; caps hold."""
    left = dict(world.caps)
    decisions, seen = folded(requests, world)
    for decision, before in zip(decisions, seen, strict=False):
        if not isinstance(decision, Assign):
            continue
        asked, policy = decision.request.requirement, world.policies[decision.request.requirement.project]
        may_pay = policy.fallback is not Fallback.NEVER
        local, _ = oracles.candidates(asked, before.engines, Tier.LOCAL, may_pay=may_pay)
        free = [engine for engine in local if oracles.free_slots(engine, before.usage) > 0]
        is_covered = policy.covers is Covers.ALL and decision.engine.tier is Tier.PAID
        assert decision.counted == (
            is_covered
            or decision.why is Why.OVERFLOW
            or (decision.why is Why.FALLBACK and policy.fallback is Fallback.COUNT)
        )
        if decision.why is Why.OVERFLOW:
            assert (policy.mode, free, decision.engine.tier) == (Mode.HYBRID, [], Tier.PAID)
            assert local
            assert decision.request.waited_ms >= policy.overflow_after_ms
        elif decision.why is Why.FALLBACK:
            assert not local
            assert policy.fallback is not Fallback.NEVER
        left[world.purse(asked.project)] -= decision.counted
    assert all(units >= 0 for units in left.values())
    assert left == dict(seen[-1].caps)
