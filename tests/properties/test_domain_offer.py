"""The offer: six rules, each held against a plain re-statement of it, over fleets, policies and loads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import fleets, requirements
from vibey.domain.assessment import Survey, survey
from vibey.domain.engine import EngineFacts, Tier, Usage
from vibey.domain.offer import Barred, Covers, Fallback, Held, Load, Mode, Offer, Policy, WaitReason, Why, offer

policies = st.builds(
    Policy,
    mode=st.sampled_from(Mode),
    overflow_after_ms=st.sampled_from([0, 1, 1000, 590_500, 600_000]),
    poll_ms=st.sampled_from([1000, 30_000]),
    cap=st.integers(0, 5),
    fallback=st.sampled_from(Fallback),
    covers=st.sampled_from(Covers),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Survey, Policy, Load]:
    """A survey of some fleet, a policy and a load."""
    engines = draw(fleets())
    surveyed = survey(draw(requirements), engines)
    in_use = {engine.name: draw(st.integers(0, engine.slots)) for engine in engines}
    waited = draw(st.sampled_from([0, 1, 999, 1000, 590_500, 599_999, 600_000, 10**9]))
    usage = Usage(in_use)
    full = frozenset(engine.name for engine in engines if usage.free_slots(engine) == 0)
    return surveyed, draw(policies), Load(full, waited, draw(st.integers(0, 5)))


def _is_free(engine: EngineFacts, load: Load) -> bool:
    return engine.name not in load.full


def _names(offered: Offer) -> set[str]:
    return {each.engine.name for each in offered.candidates}


@given(cases())
def test_every_case_has_exactly_one_answer(case: tuple[Survey, Policy, Load]) -> None:
    """The function is total: an offer with candidates of one tier, a hold, or a reason."""
    answer = offer(*case)
    assert isinstance(answer, Offer | Held | Barred)
    if isinstance(answer, Offer):
        assert answer.candidates
        assert len({each.engine.tier for each in answer.candidates}) == 1


@given(cases(), st.integers(0, 9), st.integers(0, 10**6))
def test_singleton_offers_the_preferred_tier_for_any_load(
    case: tuple[Survey, Policy, Load], cap_left: int, waited: int
) -> None:
    """With a local candidate, mode singleton offers exactly the local candidates, however full they are."""
    surveyed, _, load = case
    local = tuple(each for each in surveyed.assessments if each.is_candidate and each.engine.tier is Tier.LOCAL)
    answer = offer(surveyed, Policy(), Load(load.full, waited, cap_left))
    if local:
        assert answer == Offer(local, Why.ASSIGN)


@given(cases())
def test_paid_is_never_offered_beside_a_free_local_slot(case: tuple[Survey, Policy, Load]) -> None:
    """While any local candidate has a free slot, what is offered is local."""
    surveyed, policy, load = case
    free_local = {each.engine.name for each in surveyed.local if _is_free(each.engine, load)}
    answer = offer(surveyed, policy, load)
    if free_local:
        assert isinstance(answer, Offer)
        assert all(each.engine.tier is Tier.LOCAL for each in answer.candidates)
        if policy.mode is Mode.HYBRID:
            assert _names(answer) == free_local


@given(cases())
def test_an_overflow_had_to_wait_and_has_a_unit_and_a_slot(case: tuple[Survey, Policy, Load]) -> None:
    """Overflow implies hybrid, waited for the threshold, cap left, all offered paid and free, and no free local."""
    surveyed, policy, load = case
    answer = offer(surveyed, policy, load)
    if isinstance(answer, Offer) and answer.why is Why.OVERFLOW:
        assert policy.mode is Mode.HYBRID
        assert load.waited_ms >= policy.overflow_after_ms
        assert load.cap_left > 0
        assert answer.counted
        assert all(each.engine.tier is Tier.PAID and _is_free(each.engine, load) for each in answer.candidates)
        assert surveyed.local
        assert not any(_is_free(each.engine, load) for each in surveyed.local)


@given(cases())
def test_a_hold_is_only_for_an_overflow_that_could_follow(case: tuple[Survey, Policy, Load]) -> None:
    """Hold implies hybrid, cap left, a free paid candidate, a wait below the threshold, and 1 s ≤ retry ≤ poll."""
    surveyed, policy, load = case
    answer = offer(surveyed, policy, load)
    if isinstance(answer, Held):
        assert policy.mode is Mode.HYBRID
        assert load.cap_left > 0
        assert load.waited_ms < policy.overflow_after_ms
        assert any(_is_free(each.engine, load) for each in surveyed.paid)
        assert 1000 <= answer.retry_ms <= policy.poll_ms


@given(cases())
def test_full_is_not_gone(case: tuple[Survey, Policy, Load]) -> None:
    """With a local candidate that is merely full there is never a fallback."""
    surveyed, policy, load = case
    answer = offer(surveyed, policy, load)
    if surveyed.local:
        assert not (isinstance(answer, Offer) and answer.why is Why.FALLBACK)


@given(cases())
def test_a_fallback_obeys_its_rule(case: tuple[Survey, Policy, Load]) -> None:
    """Paid for want of any local candidate: forbidden, counted while the cap lasts, or free of it."""
    surveyed, policy, load = case
    answer = offer(surveyed, policy, load)
    if surveyed.local or not surveyed.has_local or not surveyed.paid:
        return
    counts = policy.fallback is Fallback.COUNT or policy.covers is Covers.ALL
    if policy.fallback is Fallback.NEVER:
        assert answer == Barred(WaitReason.FALLBACK_NOT_ALLOWED)
    elif counts and load.cap_left == 0:
        assert answer == Barred(WaitReason.CAP_SPENT)
    else:
        assert answer == Offer(surveyed.paid, Why.FALLBACK, counted=counts)


@given(cases())
def test_without_any_local_engine_paid_is_a_plain_assignment(case: tuple[Survey, Policy, Load]) -> None:
    """It takes a unit, and waits for one, exactly where the cap covers all; mode and fallback play no part."""
    surveyed, policy, load = case
    if surveyed.has_local or not surveyed.paid:
        return
    answer = offer(surveyed, policy, load)
    if policy.covers is Covers.ALL and load.cap_left == 0:
        assert answer == Barred(WaitReason.CAP_SPENT)
    else:
        assert answer == Offer(surveyed.paid, Why.ASSIGN, counted=policy.covers is Covers.ALL)


@given(cases())
def test_a_cap_that_covers_all_has_no_paid_run_without_a_unit(case: tuple[Survey, Policy, Load]) -> None:
    """In any mode and fleet: what is paid is counted, and offered only while a unit is left."""
    surveyed, policy, load = case
    answer = offer(surveyed, replace(policy, covers=Covers.ALL), load)
    if isinstance(answer, Offer):
        is_paid = any(each.engine.tier is Tier.PAID for each in answer.candidates)
        assert answer.counted == is_paid
        assert not is_paid or load.cap_left > 0


@given(cases())
def test_covering_all_only_adds_units(case: tuple[Survey, Policy, Load]) -> None:
    """With units left the same candidates are offered on the same grounds; whether they are counted may differ."""
    surveyed, policy, load = case
    enough = replace(load, cap_left=max(1, load.cap_left))
    exceptions, everything = (offer(surveyed, replace(policy, covers=each), enough) for each in Covers)
    if isinstance(exceptions, Offer) and isinstance(everything, Offer):
        exceptions = replace(exceptions, counted=everything.counted)
    assert exceptions == everything


@given(cases())
def test_the_cap_has_a_part_only_where_a_unit_could_be_taken(case: tuple[Survey, Policy, Load]) -> None:
    """A router that does not count the units of such a project decides as one that does."""
    surveyed, policy, load = case
    if policy.may_take_unit(surveyed):
        assert policy.may_spend
    else:
        assert offer(surveyed, policy, load) == offer(surveyed, policy, replace(load, cap_left=0))


def _full(*, waited_ms: int, cap_left: int = 1, policy: Policy, paid_full: bool = False) -> Offer | Held | Barred:
    """The answer with one local engine, full, and one paid engine."""
    engines = (EngineFacts("l", Tier.LOCAL, 0, 1, "l"), EngineFacts("p", Tier.PAID, 1, 1, "p"))
    from vibey.domain.effort import Effort
    from vibey.domain.requirement import Requirement

    surveyed = survey(Requirement("main", "default", Effort.LOW), engines)
    full = frozenset({"l", "p"}) if paid_full else frozenset({"l"})
    return offer(surveyed, policy, Load(full, waited_ms, cap_left))


HYBRID = Policy(Mode.HYBRID, overflow_after_ms=600_000, poll_ms=30_000)


@pytest.mark.parametrize(
    ("waited_ms", "retry_ms"), [(0, 30_000), (590_500, 10_000), (599_999, 1000), (575_000, 25_000), (569_000, 30_000)]
)
def test_when_a_held_job_is_looked_at_again(waited_ms: int, retry_ms: int) -> None:
    """At the threshold in whole seconds, within the poll, never sooner than a second."""
    assert _full(waited_ms=waited_ms, policy=HYBRID) == Held(retry_ms)


def test_the_boundaries() -> None:
    """A cap of 0 and a full paid engine make the job wait for local; a threshold of 0 overflows at once."""
    for waiting in (
        _full(waited_ms=10**9, cap_left=0, policy=HYBRID),
        _full(waited_ms=10**9, policy=HYBRID, paid_full=True),
    ):
        assert isinstance(waiting, Offer)
        assert (waiting.why, _names(waiting)) == (Why.ASSIGN, {"l"})
    at_once = _full(waited_ms=0, policy=Policy(Mode.HYBRID, overflow_after_ms=0))
    assert isinstance(at_once, Offer)
    assert at_once.why is Why.OVERFLOW
