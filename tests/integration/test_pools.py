"""Configured pools on a real database: tiers by weight and layers, demotion, patience, sessions, and the ramp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installation import Bench, noop
from vibey.domain.outcome import Success
from vibey.services import adjust, control
from vibey.services.route import route, run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0


def _served(bench: Bench, count: int = 1, **values: Any) -> list[str]:
    """Enqueue so many jobs and route; the engines they went to, in queue order."""
    jobs = bench.enqueue(count, **values)
    route(bench.installation, "main")
    found = dict(bench.rows("select job_id, engine from runs"))
    return [found[job] for job in jobs if job in found]


def _finish(bench: Bench, count: int | None = None) -> None:
    """Carry so many of the live runs to their good end, oldest first; all by default."""
    for run, token, _ in bench.live()[:count]:
        started = _start(bench.installation, run, token)
        assert started is not None
        settle(bench.installation, Held.of(started, token), Success())


def _over(bench: Bench) -> None:
    """Let every adjustment and demotion be over."""
    bench.rows("update adjustments set expires_at = clock_timestamp() - interval '1 second'")
    bench.rows("update engines set demoted_until = clock_timestamp() - interval '1 second'")


def _tiered(open_bench: Callable[..., Bench], weights: dict[str, float], **more: Any) -> Bench:
    """Local engines of four slots each, in a pool tiered by their weights."""
    engine = {name: noop(weight=weight) for name, weight in weights.items()}
    pool = {"main": {"select": "tiered", "tier_by": "weight", "members": list(weights)}}
    return open_bench(engine=engine, engines={"slots": dict.fromkeys(weights, 4)}, pool=pool, **more)


def test_a_preference_moves_a_tier_until_it_ends(open_bench: Callable[..., Bench]) -> None:
    """Above the others it takes everything, at exactly the same height it takes turns, and after its end nothing."""
    bench = _tiered(open_bench, {"a": 0.3, "b": 0.1})
    assert _served(bench, 2) == ["a", "a"]
    adjust.prefer(bench.installation, "b", "4", HOUR)
    assert _served(bench, 2) == ["b", "b"]
    _finish(bench)
    adjust.prefer(bench.installation, "b", "3", HOUR)
    assert sorted(_served(bench, 4)) == ["a", "a", "b", "b"]
    _finish(bench)
    _over(bench)
    assert _served(bench, 2) == ["a", "a"]


def test_layers_are_kept_in_the_world_a_decision_was_made_on(open_bench: Callable[..., Bench]) -> None:
    """Preference, learned factor and schedule stand beside the member they moved."""
    hours = {"always": {"member": "b", "factor": 0.5}}
    bench = _tiered(open_bench, {"a": 1, "b": 1}, schedule=hours)
    adjust.prefer(bench.installation, "b", "0.25", HOUR, "month end")
    bench.rows(
        "insert into adjustments (member, kind, factor, expires_at) "
        "values ('b', 'learned', 100000, clock_timestamp() + interval '1 hour')"
    )
    assert _served(bench, 2) == ["a", "a"]
    members = bench.value("select world -> 'pool' -> 'members' from passes order by id desc limit 1")
    layers = {
        each["key"]: [(kind, factor, note) for kind, factor, _, note in each.get("layers", ())] for each in members
    }
    assert layers == {
        "a": [],
        "b": [("schedule", 500_000, "always"), ("preference", 250_000, "month end"), ("learned", 100_000, "")],
    }


def test_a_preference_on_a_nested_pool_moves_the_whole(open_bench: Callable[..., Bench]) -> None:
    """A pool competes by its own weight times its layers; a failing member of it does not lift it."""
    pool = {
        "main": {"select": "tiered", "tier_by": "weight", "members": ["c", {"pool": "ours"}]},
        "ours": {"select": "weighted", "members": ["a", "b"]},
    }
    engine = {"a": noop(), "b": noop(), "c": noop(weight=2)}
    bench = open_bench(engine=engine, engines={"slots": dict.fromkeys(engine, 4)}, pool=pool)
    assert _served(bench, 2) == ["c", "c"]
    adjust.prefer(bench.installation, "ours", "3", HOUR)
    assert sorted(_served(bench, 2)) == ["a", "b"]
    adjust.prefer(bench.installation, "a", "0.1", HOUR)
    assert _served(bench, 1) == ["c"], "three times the mean of 0.1 and 1 is below two"
    control.pause_engine(bench.installation, "a", paused=True)
    assert _served(bench, 1) == ["c"], "without its worse member the pool is no better"


@pytest.mark.parametrize(
    "pool",
    [
        {"select": "tiered", "members": [{"engine": "a", "tier": 2}, {"engine": "b", "tier": 1}]},
        {"select": "tiered", "tier_by": "weight", "members": ["a", {"engine": "b", "weight": 0.001}]},
        {"select": "ordered", "members": ["a", "b"]},
        {"select": "weighted", "members": [{"engine": "a", "weight": 5}, {"engine": "b", "weight": 1}]},
    ],
    ids=["tiered", "by weight", "ordered", "weighted"],
)
def test_a_demoted_engine_serves_last_and_comes_back(open_bench: Callable[..., Bench], pool: dict[str, Any]) -> None:
    """Whatever the pool, it waits behind its lesser peer, still takes what that cannot, and then leads again."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 1, "b": 1}}, pool={"main": pool})
    assert _served(bench, 2) == ["a", "b"]
    _finish(bench)
    adjust.demote(bench.installation, "a", HOUR)
    assert _served(bench, 2) == ["b", "a"]
    _finish(bench)
    _over(bench)
    assert _served(bench, 1) == ["a"]


def test_with_all_demoted_the_order_is_as_with_none(open_bench: Callable[..., Bench]) -> None:
    """Demotion orders engines among each other; it takes none away."""
    bench = _tiered(open_bench, {"a": 2, "b": 1})
    for name in ("a", "b"):
        adjust.demote(bench.installation, name, HOUR)
    assert _served(bench, 2) == ["a", "a"]


def test_demotion_leads_to_no_paid_engine(open_bench: Callable[..., Bench]) -> None:
    """A demoted local engine with a free slot is still taken before anything paid."""
    bench = open_bench(engine={"a": noop(), "p": noop("paid")}, engines={"mode": "hybrid", "overflow_after_seconds": 0})
    adjust.demote(bench.installation, "a", HOUR)
    assert _served(bench, 1) == ["a"]


def _patient(open_bench: Callable[..., Bench], when_full: str) -> Bench:
    """Hybrid without patience: two local pool tiers of one slot each in a pool of their own, then a paid engine."""
    members = [{"engine": "a", "tier": 2}, {"engine": "b", "tier": 1}]
    pool = {
        "main": {"select": "ordered", "members": [{"pool": "ours"}, "p"]},
        "ours": {"select": "tiered", "when_full": when_full, "members": members},
    }
    engines = {"mode": "hybrid", "overflow_after_seconds": 0, "slots": {"a": 1, "b": 1, "p": 5}}
    return open_bench(engine={"a": noop(), "b": noop(), "p": noop("paid")}, engines=engines, pool=pool)


def test_a_patient_pool_waits_for_its_better_tier(open_bench: Callable[..., Bench]) -> None:
    """With a lower tier and a paid engine free the job waits for the full tier, says so, and gets it when it frees."""
    bench = _patient(open_bench, "wait")
    assert _served(bench, 3) == ["a"]
    assert bench.rows("select reason from group_states") == [("pool_tier_full",)]
    assert bench.value("select count(*) from ledger where kind like 'EngineOverflow%' or kind like '%WaitStarted'") == 0
    credits = bench.rows("select * from credits order by 1, 2")
    for _ in range(2):
        passed = run_pass(bench.installation, "main")
        assert passed is not None
        assert (passed.granted, passed.again, passed.stale) == ((), False, ())
    assert bench.rows("select * from credits order by 1, 2") == credits
    _finish(bench)
    assert route(bench.installation, "main") == 1
    assert [engine for _, _, engine in bench.live()] == ["a"]
    control.pause_engine(bench.installation, "a", paused=True)
    assert route(bench.installation, "main") == 1
    assert [engine for _, _, engine in bench.live()] == ["a", "b"], "a tier that is gone is not waited for"
    assert bench.value("select count(*) from group_states") == 0


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "root"])
def test_a_tier_taken_in_the_same_pass_is_waited_for_too(open_bench: Callable[..., Bench], *, nested: bool) -> None:
    """Two groups with one place in view each: the first takes it, the second finds it gone and goes no lower."""
    bench = _patient(open_bench, "wait")
    root = "main" if nested else "ours"
    first, second = (bench.enqueue(1, effort=effort, pool=root)[0] for effort in ("low", "high"))
    passed = run_pass(bench.installation, root)
    assert passed is not None
    assert [each.job_id for each in passed.granted] == [first]
    assert [engine for _, _, engine in bench.live()] == ["a"]
    assert route(bench.installation, root) == 0
    assert bench.rows("select reason from group_states") == [("pool_tier_full",)]
    assert bench.rows(f"select state from jobs where id = {second}") == [("queued",)]


def test_a_patient_pool_is_passed_over_by_one_that_is_not(open_bench: Callable[..., Bench]) -> None:
    """Its patience is about its own tiers: to the pool above it is full, and the next member serves."""
    members = [{"engine": "a", "tier": 2}, {"engine": "b", "tier": 1}]
    pool = {
        "main": {"select": "ordered", "members": [{"pool": "ours"}, "c"]},
        "ours": {"select": "tiered", "when_full": "wait", "members": members},
    }
    engine = {name: noop() for name in "abc"}
    bench = open_bench(engine=engine, engines={"slots": dict.fromkeys(engine, 1)}, pool=pool)
    assert _served(bench, 3) == ["a", "c"]
    assert bench.rows("select reason from group_states") == [("pool_tier_full",)]


def test_an_impatient_pool_goes_on_to_the_next_tier_and_overflows(open_bench: Callable[..., Bench]) -> None:
    """With `next` a full tier is passed over, and with every local slot taken the third job is an overflow."""
    bench = _patient(open_bench, "next")
    assert _served(bench, 3) == ["a", "b", "p"]
    assert bench.rows("select why from runs order by id") == [("assign",), ("assign",), ("overflow",)]


def test_a_session_returns_to_its_old_member_of_a_tier(open_bench: Callable[..., Bench]) -> None:
    """While its tier is away it is served below; once back it finds the member it had, not the one whose turn it is."""
    members = [{"engine": "a", "tier": 2}, {"engine": "b", "tier": 2}, {"engine": "c", "tier": 1}]
    pool = {"main": {"select": "tiered", "members": [*members, {"engine": "d", "tier": 1}]}}
    engine = {name: noop() for name in "abcd"}
    bench = open_bench(engine=engine, engines={"slots": dict.fromkeys(engine, 9)}, pool=pool)
    assert _served(bench, 1) == ["a"]
    assert _served(bench, 1, session="talk") == ["b"]
    assert _served(bench, 1, session="talk") == ["b"]
    for name in ("a", "b"):
        control.pause_engine(bench.installation, name, paused=True)
    assert _served(bench, 2, session="talk") == ["c", "c"]
    for name in ("a", "b"):
        control.pause_engine(bench.installation, name, paused=False)
    assert _served(bench, 1, session="talk") == ["b"]
    assert _served(bench, 2) == ["a", "a"], "the others are owed what the session had beyond its turn"
    remembered = bench.rows("select pool, class, session, member from sessions order by class")
    assert remembered == [("main", "1", "default/talk", "c"), ("main", "2", "default/talk", "b")]


def test_a_session_is_forgotten_once_it_is_cold(open_bench: Callable[..., Bench]) -> None:
    """A memory that is over counts for nothing, and a run that ends well keeps it from being over."""
    bench = open_bench(
        engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 5, "b": 5}, "session_ttl_seconds": 60}
    )
    assert _served(bench, 2, session="talk") == ["a", "a"]
    bench.rows("update sessions set expires_at = clock_timestamp() + interval '1 second'")
    _finish(bench)
    assert bench.value("select expires_at > clock_timestamp() + interval '50 seconds' from sessions") is True
    bench.rows("update sessions set expires_at = clock_timestamp() - interval '1 second'")
    assert _served(bench, 1, session="talk") == ["b"]


def test_slots_come_back_one_by_one_after_a_probe(open_bench: Callable[..., Bench]) -> None:
    """One probe; after it one slot, and one more for each run that ends well, until all of them are back."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 3}})
    bench.rows(
        "update accounts set open_reason = 'engine_failures', probes = 1, probe_at = now() - interval '1 second'"
    )
    bench.enqueue(20)
    seen = []
    for _ in range(4):
        granted = route(bench.installation, "main")
        seen.append((granted, len(bench.live()), bench.value("select ramp from accounts where name = 'a'")))
        _finish(bench, 1)
    assert seen == [(1, 1, None), (1, 1, 1), (2, 2, 2), (2, 3, None)]
    assert bench.rows("select open_reason, ramp from accounts where name = 'a'") == [(None, None)]


def test_a_hand_reset_gives_all_slots_back_at_once(open_bench: Callable[..., Bench]) -> None:
    """Whoever resets an engine knows that it is well: there is no ramp, and no demotion is left."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 3}})
    bench.rows("update accounts set ramp = 1")
    adjust.demote(bench.installation, "a", HOUR)
    assert len(_served(bench, 5)) == 1
    control.reset_engine(bench.installation, "a")
    assert route(bench.installation, "main") == 2
    assert bench.value("select demoted_until from engines") is None
