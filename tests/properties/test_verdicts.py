"""What explanations say of engines, for every valid world: one verdict each, and the same one the domain acted on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support import oracles
from tests.support.worlds import batches, plain_engine, plain_request, worlds
from vibey.domain.decide import Assign, Decision, Hold, Wait, World, decide
from vibey.domain.engine import Phase, Tier, Usage
from vibey.domain.offer import Fallback, Mode, Offer, Policy, free, offer
from vibey.domain.pool import default_pool
from vibey.services import forecast, telling
from vibey.services.replay import Question
from vibey.services.verdicts import Ground, Verdict, verdicts

if TYPE_CHECKING:
    from vibey.domain.decide import Request
    from vibey.domain.engine import EngineFacts
    from vibey.services.verdicts import Judged

DRAWN = {Verdict.CHOSEN, Verdict.LOST, Verdict.PASSED_OVER}
MIDDAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
policies = st.builds(
    Policy,
    mode=st.sampled_from(Mode),
    overflow_after_ms=st.sampled_from([0, 600_000]),
    fallback=st.sampled_from(Fallback),
)


@st.composite
def cases(draw: st.DrawFn) -> list[tuple[Question, Decision]]:
    """The questions and answers of a batch in a world of any policy, each on the world the one before left."""
    world = draw(worlds(patient=True))
    caps = {"p": draw(st.integers(0, 3)), "q": draw(st.integers(0, 3))}
    world = replace(world, policies={"p": draw(policies), "q": draw(policies)}, caps=caps)
    found = []
    for asked in draw(batches(largest=6)):
        request = replace(asked, waited_ms=draw(st.sampled_from([0, 599_999, 600_000])))
        question = Question(request, world, world.survey(request.requirement))
        answer = decide(request, world)
        found.append((question, answer))
        world = world.after(answer)
    return found


def _names(judged: list[Judged], *those: Verdict) -> set[str]:
    return {each.assessment.engine.name for each in judged if each.verdict in those}


@given(cases())
def test_every_engine_has_exactly_one_verdict(found: list[tuple[Question, Decision]]) -> None:
    """Each engine of the world is named once, in declared order, and can be told as JSON with a sentence."""
    for question, answer in found:
        told = telling.engines(question, answer)
        assert [each["engine"] for each in told] == [engine.name for engine in question.world.engines]
        assert all(each["detail"] for each in told)
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        for each in told:
            event(f"{each['verdict']} {each['ground']}")


@given(cases())
def test_verdicts_are_what_the_domain_acted_on(found: list[tuple[Question, Decision]]) -> None:
    """Excluded, full, and offered with a free slot are the sets that a plain reading and the domain itself have."""
    for question, answer in found:
        request, world = question.request, question.world
        judged = verdicts(question, answer)
        engines, requirement = world.engines, request.requirement
        may_pay = world.policy(requirement.project).fallback is not Fallback.NEVER
        by_tier = [oracles.candidates(requirement, engines, tier, may_pay=may_pay)[0] for tier in Tier]
        candidates = {each.name for found in by_tier for each in found}
        assert _names(judged, Verdict.EXCLUDED) == {each.name for each in engines} - candidates
        unfree = {each.name for each in engines if oracles.free_slots(each, world.usage) == 0}
        assert _names(judged, Verdict.FULL) == candidates & unfree
        load = world.load(request, question.surveyed)
        offered = offer(question.surveyed, world.policy(requirement.project), load)
        drawn = free(offered.candidates, load.full) if isinstance(offered, Offer) else ()
        assert _names(judged, *DRAWN) == {each.engine.name for each in drawn}


@given(cases())
def test_the_chosen_engine_and_those_that_lost_to_it(found: list[tuple[Question, Decision]]) -> None:
    """One engine is chosen by an assignment and none otherwise; who lost took part in a step with this very share."""
    for question, answer in found:
        judged = verdicts(question, answer)
        chosen = _names(judged, Verdict.CHOSEN)
        if not isinstance(answer, Assign):
            assert chosen == set()
            assert _names(judged, Verdict.LOST) == set()
            continue
        assert chosen == {answer.engine.name}
        steps = {step.pool: step for step in answer.selection.steps}
        shares = Counter[str]()
        for each in telling.engines(question, answer):
            if each["verdict"] == "lost":
                step = steps[each["pool"]]
                assert round(each["share"] * 10**12) in step.shares
                shares[each["engine"]] += 1
        direct = {name for step in steps.values() for name in step.members} & {e.name for e in question.world.engines}
        assert direct - chosen <= set(shares)
        assert [each["pool"] for each in telling.walk(answer, question.world.pool)] == list(steps)


@given(cases())
def test_weights_are_the_product_of_what_is_told(found: list[tuple[Question, Decision]]) -> None:
    """Base, layers and soft factors multiply to the effective weight, but for what integers round away."""
    for question, answer in found:
        for each in telling.engines(question, answer):
            factors = each["factors"]
            product = factors["base"] * factors["health"] * factors["fidelity"] * factors["cost"] * factors["affinity"]
            for layer in factors["layers"] if question.world.pool.leaves else ():
                product *= layer["factor"]
            if each["ground"] != "not_in_pool" and _states_its_weight(question, each["engine"]):
                assert each["weight"] == pytest.approx(product, rel=1e-3, abs=3e-6)


def _states_its_weight(question: Question, name: str) -> bool:
    """Whether the pool tree states a weight for this engine; layers count only then, as routing lays them so."""
    for pool in question.world.pool.nested():
        for member in pool.members:
            if member.key == name:
                return member.weight is not None or not member.layers
    return False


LOCAL = plain_engine(0)
PAID = plain_engine(1, tier=Tier.PAID)


def _world(*engines: EngineFacts, **changes: object) -> World:
    policy = Policy(Mode.HYBRID, overflow_after_ms=600_000, cap=3, fallback=Fallback.COUNT)
    facts: dict[str, object] = {"policies": {"p": policy}, "caps": {"p": 3}}
    return World(default_pool("main", engines), engines, **(facts | changes))  # type: ignore[arg-type]


def _grounds(world: World, request: Request) -> dict[str, str | None]:
    question = Question(request, world, world.survey(request.requirement))
    return {each.assessment.engine.name: each.ground for each in verdicts(question, decide(request, world))}


@pytest.mark.parametrize(
    ("world", "request_", "grounds"),
    [
        (_world(LOCAL, PAID), plain_request(), {"e0": None, "e1": Ground.LOCAL_FREE}),
        (_world(LOCAL, PAID, usage=Usage({"e0": 1})), plain_request(), {"e0": Ground.SLOTS, "e1": Ground.HELD}),
        (
            _world(LOCAL, PAID, usage=Usage({"e0": 1}), caps={"p": 0}),
            plain_request(),
            {"e0": Ground.SLOTS, "e1": Ground.CAP_SPENT},
        ),
        (
            _world(LOCAL, PAID, usage=Usage({"e0": 1}), policies={}),
            plain_request(),
            {"e0": Ground.SLOTS, "e1": Ground.LOCAL_FIRST},
        ),
        (
            _world(replace(LOCAL, enabled=False), PAID, caps={"p": 0}),
            plain_request(),
            {"e0": "disabled", "e1": Ground.CAP_SPENT},
        ),
        (
            _world(replace(LOCAL, enabled=False), PAID, policies={"p": Policy(fallback=Fallback.NEVER)}),
            plain_request(),
            {"e0": "disabled", "e1": Ground.FALLBACK_NOT_ALLOWED},
        ),
        (
            _world(replace(LOCAL, busy=True), replace(PAID, staffed=False)),
            plain_request(),
            {"e0": Ground.BUSY, "e1": Ground.NO_WORKER},
        ),
        (
            _world(replace(LOCAL, phase=Phase.HALF_OPEN), usage=Usage(probing=frozenset({"a0"}))),
            plain_request(),
            {"e0": Ground.PROBE_OUT},
        ),
    ],
)
def test_grounds(world: World, request_: Request, grounds: dict[str, str | None]) -> None:
    """Each ground where it applies."""
    assert _grounds(world, request_) == grounds


def _coming(**changes: object) -> forecast.Coming:
    facts: dict[str, object] = {
        "now": MIDDAY,
        "day": date(2026, 3, 1),
        "limits": {"p": 3},
        "probes": {},
        "frees": {},
    }
    return forecast.Coming(**(facts | changes))  # type: ignore[arg-type]


FULL = Usage({"e0": 1})
HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
OPEN = replace(PAID, phase=Phase.OPEN)


@pytest.mark.parametrize(
    ("world", "coming", "expected"),
    [
        (_world(LOCAL), _coming(), (MIDDAY, forecast.NOW, "e0")),
        (_world(LOCAL), _coming(not_before=MIDDAY + HOUR), (MIDDAY + HOUR, forecast.BACKOFF, "e0")),
        (_world(LOCAL, usage=FULL), _coming(), None),
        (_world(LOCAL, PAID, usage=FULL), _coming(), (MIDDAY + HOUR / 6, forecast.HOLD_END, "e1")),
        (
            _world(LOCAL, PAID, usage=FULL),
            _coming(held_at=MIDDAY - HOUR / 12),
            (MIDDAY + HOUR / 12, forecast.HOLD_END, "e1"),
        ),
        (
            _world(LOCAL, PAID, usage=FULL, caps={"p": 0}),
            _coming(held_at=MIDDAY - HOUR),
            (MIDNIGHT, forecast.MIDNIGHT, "e1"),
        ),
        (
            _world(LOCAL, PAID, usage=FULL, caps={"p": 0}),
            _coming(),
            (MIDNIGHT + HOUR / 6, forecast.HOLD_END, "e1"),
        ),
        (
            _world(LOCAL, PAID, usage=FULL, caps={"p": 0}),
            _coming(limits={"p": 0}),
            None,
        ),
        (_world(OPEN), _coming(probes={"a1": MIDDAY + HOUR}), (MIDDAY + HOUR, forecast.PROBE, "e1")),
        (
            _world(OPEN),
            _coming(probes={"a1": MIDDAY + HOUR}, not_before=MIDDAY + 2 * HOUR),
            (MIDDAY + 2 * HOUR, forecast.BACKOFF, "e1"),
        ),
        (_world(replace(OPEN, enabled=False)), _coming(probes={"a1": MIDDAY + HOUR}), None),
        (
            _world(replace(LOCAL, busy=True)),
            _coming(frees={"e0": MIDDAY + HOUR}),
            (MIDDAY + HOUR, forecast.BUSY_END, "e0"),
        ),
        (_world(replace(LOCAL, staffed=False)), _coming(), None),
    ],
)
def test_the_earliest_start(world: World, coming: forecast.Coming, expected: tuple[datetime, str, str] | None) -> None:
    """The first instant at which the router would grant the job if nobody did anything."""
    found = forecast.earliest(plain_request(), world, coming)
    assert (None if found is None else (found.at, found.by, found.engine)) == expected


@given(cases(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_now_is_the_earliest_exactly_when_it_is_granted_now(
    found: list[tuple[Question, Decision]], probe_s: int, free_s: int
) -> None:
    """A job granted now starts now; one that is not never does, whatever is to come."""
    for question, answer in found:
        held_at = (
            None if not question.request.waited_ms else MIDDAY - timedelta(milliseconds=question.request.waited_ms)
        )
        coming = _coming(
            held_at=held_at,
            probes={"a0": MIDDAY + timedelta(seconds=1 + probe_s)},
            frees={"e1": MIDDAY + timedelta(seconds=1 + free_s)},
        )
        first = forecast.earliest(question.request, question.world, coming)
        if isinstance(answer, Assign):
            assert first == forecast.Earliest(MIDDAY, forecast.NOW, answer.engine.name)
        else:
            assert isinstance(answer, Hold | Wait)
            assert first is None or first.at > MIDDAY
