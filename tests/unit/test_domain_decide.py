"""Decisions in the cases people ask about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.worlds import plain_engine, plain_request
from vibey.domain.assessment import Exclusion
from vibey.domain.decide import Assign, Decision, Request, Wait, World, decide, decide_all
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.offer import Fallback, Policy, WaitReason, Why
from vibey.domain.pool import default_pool


def fleet(*engines: EngineFacts, usage: Usage | None = None) -> World:
    """A world of these engines under the default pool."""
    return World(default_pool("main", engines), engines, usage or Usage())


def engine_of(decision: Decision) -> str:
    """The name of the engine a decision granted a run on."""
    assert isinstance(decision, Assign)
    return decision.engine.name


def reason_of(decision: Decision) -> WaitReason:
    """Why a decision lets its job wait."""
    assert isinstance(decision, Wait)
    assert decision.outcome == "wait"
    return decision.reason


LOCAL = plain_engine(0)
PAID = plain_engine(1, tier=Tier.PAID, slots=2)


def test_a_full_local_engine_is_waited_for_though_paid_is_free() -> None:
    """Full is not gone: in singleton nothing overflows."""
    world = fleet(LOCAL, PAID, usage=Usage({"e0": 1}))
    assert reason_of(decide(plain_request(), world)) is WaitReason.SLOTS_FULL


@pytest.mark.parametrize("changes", [{"busy": True}, {"slots": 0}, {"phase": Phase.HALF_OPEN, "account": "out"}])
def test_whatever_fills_a_local_engine_it_is_not_gone(changes: dict[str, object]) -> None:
    """A busy server, no slot at all, a probe already out: each is full, and paid is not taken instead."""
    world = fleet(plain_engine(0, **changes), PAID, usage=Usage(probing=frozenset({"out"})))
    assert reason_of(decide(plain_request(), world)) is WaitReason.SLOTS_FULL


def test_a_local_engine_without_a_worker_is_waited_for_and_said_so() -> None:
    """A restarting worker never turns into paid work."""
    world = fleet(plain_engine(0, staffed=False), PAID)
    assert reason_of(decide(plain_request(), world)) is WaitReason.NO_WORKER


def test_paid_is_a_fallback_when_local_is_gone_and_plain_when_there_is_none() -> None:
    """The grounds tell a missing local engine from a fleet that never had one."""
    gone = decide(plain_request(), fleet(plain_engine(0, phase=Phase.OPEN), PAID))
    none = decide(plain_request(), fleet(PAID))
    assert (engine_of(gone), engine_of(none)) == ("e1", "e1")
    assert isinstance(gone, Assign)
    assert isinstance(none, Assign)
    assert (gone.why, none.why) == (Why.FALLBACK, Why.ASSIGN)


def test_local_beside_paid_is_a_plain_assignment() -> None:
    """Nothing fell back when the local engine took the job."""
    decision = decide(plain_request(), fleet(LOCAL, PAID))
    assert isinstance(decision, Assign)
    assert (decision.engine.name, decision.why) == ("e0", Why.ASSIGN)


def test_each_group_of_a_batch_is_surveyed_for_itself() -> None:
    """Jobs that ask different things get different answers in one batch."""
    asked = [plain_request(1), plain_request(2, excluded=frozenset({"e0"})), plain_request(3)]
    decisions = list(decide_all(asked, fleet(plain_engine(0, slots=2), PAID)))
    assert [engine_of(decision) for decision in decisions] == ["e0", "e1", "e0"]


def test_nothing_eligible_is_a_state_with_a_reason() -> None:
    """An empty fleet, and one wholly excluded, let the job wait."""
    assert reason_of(decide(plain_request(), fleet())) is WaitReason.NO_ELIGIBLE_ENGINE
    excluded = plain_request(excluded=frozenset({"e0", "e1"}))
    assert reason_of(decide(excluded, fleet(LOCAL, PAID))) is WaitReason.NO_ELIGIBLE_ENGINE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"enabled": False, "installed": False}, Exclusion.DISABLED),
        ({"installed": False, "conformant": False}, Exclusion.NOT_INSTALLED),
        ({"conformant": False, "login_ok": False}, Exclusion.CONFORMANCE_FAILED),
        ({"login_ok": False, "phase": Phase.OPEN}, Exclusion.LOGIN_STALE),
        ({"phase": Phase.OPEN, "weight": 0}, Exclusion.CIRCUIT_OPEN),
        ({"name": "x", "weight": 0}, Exclusion.NOT_PINNED),
        ({"name": "e7", "capabilities": frozenset[str]()}, Exclusion.NO_WORKSPACE),
        ({"weight": 0, "capabilities": frozenset[str]()}, Exclusion.MISSING_CAPABILITY),
        ({"weight": 0}, Exclusion.NO_WEIGHT),
        ({"failure": 1_000_000}, Exclusion.NO_WEIGHT),
    ],
)
def test_the_earlier_reason_is_given(changes: dict[str, object], reason: Exclusion) -> None:
    """Of two reasons the one earlier in the fixed order."""
    facts = {"capabilities": frozenset({"web"})} | changes
    request = plain_request(
        capabilities=frozenset({"web"}), pinned=frozenset({"e0", "e7"}), workspace=frozenset({"e0", "x"})
    )
    world = fleet(plain_engine(0, **facts))
    assert [each.exclusion for each in world.survey(request.requirement).assessments] == [reason]


def test_avoidance_is_kept_while_the_tier_has_another_and_waived_when_not() -> None:
    """The avoided engine yields to its neighbour; alone it serves, and the waiver is recorded."""
    request = plain_request(avoided=frozenset({"e0"}))
    other = plain_engine(2)
    kept = decide(request, fleet(LOCAL, other, PAID))
    alone = decide(request, fleet(LOCAL, PAID))
    assert isinstance(kept, Assign)
    assert isinstance(alone, Assign)
    assert (kept.engine.name, kept.waived) == ("e2", False)
    assert (alone.engine.name, alone.waived) == ("e0", True)


def test_a_handoff_leads_to_another_tier_and_back_only_when_nobody_is_left() -> None:
    """The local engine that gave the job back stays out while a paid one may serve: that is a fallback."""
    request = plain_request(handed_off=frozenset({"e0"}))
    away = decide(request, fleet(LOCAL, PAID))
    assert isinstance(away, Assign)
    assert (away.engine.name, away.why, away.waived) == ("e1", Why.FALLBACK, False)
    alone = decide(request, fleet(LOCAL, replace(PAID, phase=Phase.OPEN)))
    assert isinstance(alone, Assign)
    assert (alone.engine.name, alone.why, alone.waived) == ("e0", Why.ASSIGN, True)
    full = decide(request, fleet(LOCAL, PAID, usage=Usage({"e1": 2})))
    assert reason_of(full) is WaitReason.SLOTS_FULL


def test_a_handoff_is_waived_where_no_paid_engine_may_follow() -> None:
    """With paid_fallback = "never" a paid engine is none that is left: the job would wait for ever."""
    request = plain_request(handed_off=frozenset({"e0"}))
    world = replace(fleet(LOCAL, PAID), policies={"p": Policy(fallback=Fallback.NEVER)})
    back = decide(request, world)
    assert isinstance(back, Assign)
    assert (back.engine.name, back.waived) == ("e0", True)
    only_paid = replace(fleet(replace(PAID, name="e0"), PAID), policies=world.policies)
    other = decide(request, only_paid)
    assert isinstance(other, Assign)
    assert (other.engine.name, other.waived) == ("e1", False)


def test_an_engine_for_celery_tasks_alone_takes_nothing_else() -> None:
    """By what it can do, whenever it was configured; a call of a task it takes."""
    press = plain_engine(0, capabilities=frozenset({"routed-tasks", "routed-tasks-only"}), calls_only=True)
    assert reason_of(decide(plain_request(), fleet(press))) is WaitReason.NO_ELIGIBLE_ENGINE
    assert engine_of(decide(plain_request(capabilities=frozenset({"routed-tasks"})), fleet(press))) == "e0"


def test_the_job_s_own_exclusion_is_never_waived() -> None:
    """Excluded by the job means not there, even when that leaves the tier empty."""
    request = plain_request(excluded=frozenset({"e0"}), avoided=frozenset({"e0"}))
    assert engine_of(decide(request, fleet(LOCAL, PAID))) == "e1"


def test_a_batch_fills_slots_in_rotation_and_then_waits() -> None:
    """Weights 2 and 1 with two slots each: a, b, a, b, and the fifth job waits."""
    engines = (plain_engine(0, weight=2_000_000, slots=2), plain_engine(1, slots=2))
    decisions = list(decide_all([plain_request(number) for number in range(1, 6)], fleet(*engines)))
    assert [engine_of(decision) for decision in decisions[:4]] == ["e0", "e1", "e0", "e1"]
    assert reason_of(decisions[4]) is WaitReason.SLOTS_FULL


def test_engines_of_one_half_open_account_share_its_probe() -> None:
    """One run in all, though both engines have free slots."""
    engines = [plain_engine(number, account="a", phase=Phase.HALF_OPEN, slots=3) for number in range(2)]
    first, second = decide_all([plain_request(1), plain_request(2)], fleet(*engines))
    assert isinstance(first, Assign)
    assert first.is_probe
    assert reason_of(second) is WaitReason.SLOTS_FULL


def test_affinity_doubles_the_share() -> None:
    """An engine with affinity is offered twice its neighbour's part, and no more."""
    request = plain_request(affinity="e1")
    decision = decide(request, fleet(LOCAL, plain_engine(1)))
    assert isinstance(decision, Assign)
    last = decision.selection.steps[-1]
    assert (last.members, last.shares) == (("e0", "e1"), (333_333_333_333, 666_666_666_667))
    assert decision.engine.name == "e1"


def test_a_wait_leaves_the_world_as_it_is() -> None:
    """Waiting spends nothing."""
    world = fleet()
    assert world.after(Wait(Request(1, 1, plain_request().requirement), WaitReason.SLOTS_FULL)) is world


def test_costs_count_only_when_asked() -> None:
    """The dearer of two paid engines loses share, unless cost is set aside."""
    engines = (plain_engine(0, tier=Tier.PAID, price=100), plain_engine(1, tier=Tier.PAID, price=200))
    aware = World(default_pool("main", engines), engines)
    blind = World(aware.pool, engines, cost_aware=False)
    requirement = plain_request().requirement
    assert [each.weight for each in aware.survey(requirement).assessments] == [1_000_000, 500_000]
    assert [each.weight for each in blind.survey(requirement).assessments] == [1_000_000, 1_000_000]
