"""Routing on a real database: exact slots, no blocking, one commit, wake-ups."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.installation import Bench, noop
from vibey.domain.outcome import Success
from vibey.services import control
from vibey.services import route as routing
from vibey.services.audit import audit
from vibey.services.enqueue import Order, place_in
from vibey.services.run import _start, carry_out
from vibey.services.settle import Held, settle
from vibey.services.tick import tick

if TYPE_CHECKING:
    from collections.abc import Callable

OpenBench = "Callable[..., Bench]"


def _state(bench: Bench) -> Counter[str]:
    return Counter(state for (state,) in bench.rows("select state from jobs"))


def test_slots_are_filled_exactly_and_in_queue_order(open_bench: Callable[..., Bench]) -> None:
    """Three free slots take the three jobs first in order: by priority, then by age."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 3}})
    plain = bench.enqueue(4)
    urgent = bench.enqueue(1, priority=5)
    assert routing.route(bench.installation, "main") == 3
    granted = {job for (job,) in bench.rows("select job_id from runs")}
    assert granted == {urgent[0], plain[0], plain[1]}
    assert routing.route(bench.installation, "main") == 0


def test_a_pass_commits_slot_credits_decision_and_event_together(open_bench: Callable[..., Bench]) -> None:
    """Every run has its token, decision and event; credits sum to 0; the world they started from is kept."""
    bench = open_bench(engine={"a": noop(weight=3), "b": noop()}, engines={"slots": {"a": 9, "b": 9}})
    bench.enqueue(9)
    routing.route(bench.installation, "main")
    assert Counter(engine for _, _, engine in bench.live()) == {"a": 7, "b": 2}
    assert bench.value("select count(distinct token) from runs") == 9
    assert bench.value("select count(*) from runs join decisions d on d.run_id = runs.id") == 9
    assert bench.value("select count(*) from ledger where kind = 'RunGranted'") == 9
    assert bench.rows("select pool, sum(credit), count(*) from credits group by pool") == [("main.local", 0, 2)]
    assert bench.value("select count(*) from decisions d join passes p on p.id = d.pass_id") == 9
    picks = dict(bench.rows("select name, selected_count from engines"))
    expected = dict(bench.rows("select name, expected / 1e12 from engines"))
    assert picks == {"a": 7, "b": 2}
    assert expected == {"a": Decimal("6.75"), "b": Decimal("2.25")}


def test_a_grant_is_announced_once_to_its_engine(open_bench: Callable[..., Bench]) -> None:
    """One build message per run, on the queue of the engine it was granted on."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 2, "b": 1}})
    bench.enqueue(5)
    routing.route(bench.installation, "main")
    assert (bench.messages("a"), bench.messages("b")) == (2, 1)


def test_paid_is_not_used_while_a_local_engine_is_only_full(open_bench: Callable[..., Bench]) -> None:
    """In mode singleton a job waits for the full local engine, and the group's reason says so."""
    bench = open_bench(engine={"a": noop(), "p": noop("paid")})
    bench.enqueue(3)
    routing.route(bench.installation, "main")
    assert [engine for _, _, engine in bench.live()] == ["a"]
    assert bench.rows("select reason from group_states") == [("slots_full",)]


def test_paid_without_any_local_candidate_is_a_fallback(open_bench: Callable[..., Bench]) -> None:
    """When every local engine is gone a paid one serves, and the run says on what grounds."""
    bench = open_bench(engine={"a": noop(enabled=False), "p": noop("paid")})
    bench.enqueue(1)
    routing.route(bench.installation, "main")
    assert bench.rows("select engine, why from runs") == [("p", "fallback")]


def test_an_engine_without_a_worker_is_full_not_gone(open_bench: Callable[..., Bench]) -> None:
    """Without a live worker a local engine takes nothing and nothing goes to paid instead."""
    bench = open_bench(engine={"a": noop(), "p": noop("paid")})
    bench.staff("p")
    bench.enqueue(1)
    routing.route(bench.installation, "main")
    assert bench.live() == []
    assert bench.rows("select reason from group_states") == [("no_worker",)]


def test_unrunnable_jobs_ahead_block_nobody(open_bench: Callable[..., Bench]) -> None:
    """Thousands of older, more urgent jobs that nothing can take do not keep a runnable one waiting."""
    bench = open_bench(
        engine={"a": noop(), "web": noop("paid", capabilities=["web"], enabled=False)},
        engines={"slots": {"a": 2}},
    )
    bench.enqueue(3000, priority=9, capabilities=["web"])
    runnable = bench.enqueue(2)
    assert routing.route(bench.installation, "main") == 2
    assert {job for (job,) in bench.rows("select job_id from runs")} == set(runnable)
    assert bench.rows("select reason from group_states") == [("no_eligible_engine",)]


def test_a_group_forgets_why_it_waited_once_it_does_not(open_bench: Callable[..., Bench]) -> None:
    """The reason is written when a group starts waiting and removed when it is served."""
    bench = open_bench(engine={"a": noop()})
    bench.enqueue(1)
    bench.rows("update workers set engines = '{}'")
    routing.route(bench.installation, "main")
    assert bench.value("select count(*) from group_states") == 1
    bench.staff()
    routing.route(bench.installation, "main")
    assert bench.value("select count(*) from group_states") == 0


def test_a_slot_that_changes_hands_writes_nothing_for_those_who_go_on_waiting(open_bench: Callable[..., Bench]) -> None:
    """Their reason holds on: it is told once, however many groups there are and however many slots are freed."""
    bench = open_bench(engine={"a": noop()}, engines={"fair_share": True})
    names = [f"p{number}" for number in range(12)]
    for name in names:
        control.new_project(bench.installation, name)
        bench.enqueue(4, project=name)
    routing.route(bench.installation, "main")
    since = bench.rows("select requirement_key, since from group_states")
    assert len(since) == 12
    told = bench.value("select count(*) from decisions where run_id is null")
    for _ in range(3):
        [(run, token, _)] = bench.live()
        started = _start(bench.installation, run, token)
        assert settle(bench.installation, Held.of(started, token), Success()) is not None
        assert routing.route(bench.installation, "main") == 1
    assert bench.value("select count(*) from decisions where run_id is null") - told <= 3
    kept = set(bench.rows("select requirement_key, since from group_states"))
    assert len(kept) == 12
    assert len(kept & set(since)) >= 9
    assert audit(bench.installation).violations == ()


def test_two_routers_without_their_lock_never_exceed_slots(open_bench: Callable[..., Bench]) -> None:
    """With the Redis lock out of the way, eight routers at once still grant each job once and no slot twice."""
    bench = open_bench(engine={"a": noop(weight=2), "b": noop()}, engines={"slots": {"a": 5, "b": 3}})
    bench.enqueue(40)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: routing.run_pass(bench.installation, "main"), range(8)))
    assert Counter(engine for _, _, engine in bench.live()) == {"a": 5, "b": 3}
    assert bench.value("select count(distinct job_id) from runs") == 8
    assert bench.value("select sum(credit) from credits") == 0


def test_an_open_transaction_of_a_caller_blocks_no_routing(open_bench: Callable[..., Bench]) -> None:
    """Jobs of an uncommitted enqueue are unseen, jobs of others are routed meanwhile, and a rollback leaves nothing."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 9}})
    others: list[int] = []

    def caller() -> None:
        with bench.installation.database.begin() as connection:
            place_in(connection, bench.installation, [Order(session="same")] * 3)
            others.extend(bench.enqueue(2, session="same"))
            assert routing.route(bench.installation, "main") == 2
            raise InterruptedError

    with pytest.raises(InterruptedError):
        caller()
    assert {job for (job,) in bench.rows("select id from jobs")} == set(others)


def test_a_burst_of_enqueues_sends_one_wake_up(open_bench: Callable[..., Bench]) -> None:
    """Ten thousand jobs enqueued one by one and in batches leave a single routing message."""
    bench = open_bench(engine={"a": noop()})
    bench.enqueue(1)
    # The key that says so expires, for a message may be lost. Here it does not, however long the rest takes.
    assert bench.keep_wake_up("main")
    for _ in range(49):
        bench.enqueue(1)
    bench.enqueue(9950)
    assert bench.value("select count(*) from jobs") == 10_000
    assert bench.messages() == 1


def test_a_router_at_work_is_asked_to_look_again(open_bench: Callable[..., Bench]) -> None:
    """A second router leaves at once, and the first one's release says that someone asked."""
    bench = open_bench(engine={"a": noop()})
    wakeups = bench.installation.wakeups
    assert wakeups.begin("main", "first")
    assert not wakeups.begin("main", "second")
    assert wakeups.finish("main", "first")
    assert not wakeups.finish("main", "first")
    assert wakeups.begin("main", "second")


def test_a_job_someone_holds_is_left_to_a_later_pass(open_bench: Callable[..., Bench]) -> None:
    """A locked job is skipped without waiting, and another job takes the slot meanwhile."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 1}})
    first, second = bench.enqueue(2)
    with bench.installation.database.begin() as connection:
        connection.exec_driver_sql(f"select 1 from jobs where id = {first} for update")
        routing.run_pass(bench.installation, "main")
    assert bench.rows("select job_id from runs") == [(second,)]
    routing.route(bench.installation, "main")
    assert bench.value("select count(*) from runs") == 1


def test_a_job_someone_holds_keeps_no_other_group_from_its_slot(open_bench: Callable[..., Bench]) -> None:
    """However long the first in order is held: what it would have taken goes to the next that asks otherwise."""
    bench = open_bench(engine={"a": noop()})
    (held,) = bench.enqueue(1, priority=5)
    (other,) = bench.enqueue(1, effort="high")
    with bench.installation.database.begin() as elsewhere:
        elsewhere.exec_driver_sql(f"select 1 from jobs where id = {held} for no key update")
        assert routing.route(bench.installation, "main") == 1
    assert bench.rows("select job_id from runs") == [(other,)]


def test_named_pools_route_by_their_own_tree(open_bench: Callable[..., Bench]) -> None:
    """A job that names a pool is served by that pool's engines, in its order, under its own credits."""
    bench = open_bench(
        engine={"a": noop(), "b": noop(), "c": noop()},
        engines={"slots": {"a": 1, "b": 1, "c": 5}},
        pool={
            "images": {"select": "ordered", "members": ["b", {"pool": "pair"}]},
            "pair": {"select": "weighted", "members": ["a", "c"]},
        },
    )
    bench.enqueue(3, pool="images")
    routing.route(bench.installation, "images")
    assert [engine for _, _, engine in bench.live()] == ["b", "a", "c"]
    assert bench.rows("select distinct pool from credits") == [("pair",)]


def test_a_pool_named_like_a_former_engine_adds_nothing_to_its_counts(open_bench: Callable[..., Bench]) -> None:
    """An engine replaced by a pool of its name keeps the counts it left with."""
    former = open_bench(engine={"duo": noop(), "x": noop()})
    former.enqueue(1)
    routing.route(former.installation, "main")
    [(run, token, _)] = former.live()
    carry_out(former.installation, run, token)
    before = former.rows("select selected_count, expected from engines where name = 'duo'")
    bench = open_bench(
        engine={"x": noop(), "y": noop(), "z": noop()},
        engines={"slots": {"x": 5, "y": 5, "z": 5}},
        pool={
            "main": {"select": "weighted", "members": ["x", {"pool": "duo"}]},
            "duo": {"select": "weighted", "members": ["y", "z"]},
        },
    )
    bench.enqueue(3)
    assert routing.route(bench.installation, "main") == 3
    assert bench.value("select credit from credits where pool = 'main' and member = 'duo'") != 0
    assert bench.rows("select selected_count, expected from engines where name = 'duo'") == before


def test_a_half_open_circuit_lets_one_probe_through(open_bench: Callable[..., Bench]) -> None:
    """Of an account whose probe is due one run is granted in all, over every engine that shares it."""
    bench = open_bench(engine={"a": noop(account="x"), "b": noop(account="x")}, engines={"slots": {"a": 4, "b": 4}})
    bench.rows("update accounts set open_reason = 'engine_failures', probe_at = now() - interval '1 s', probes = 1")
    bench.enqueue(6)
    assert routing.route(bench.installation, "main") == 1
    assert routing.route(bench.installation, "main") == 0
    run = bench.live()[0][0]
    assert bench.rows("select probe_run_id from accounts") == [(run,)]


def test_backoff_is_over_at_the_tick_after_it(open_bench: Callable[..., Bench]) -> None:
    """A job in backoff is not due; once its time has come the tick makes it so and routes it."""
    bench = open_bench(engine={"a": noop()})
    bench.enqueue(1)
    bench.rows("update jobs set not_before = clock_timestamp() + interval '60 seconds'")
    assert tick(bench.installation).granted == 0
    bench.let_time_pass(61)
    done = tick(bench.installation)
    assert (done.promoted, done.granted) == (1, 1)


def test_the_deadline_of_a_queued_job_ends_it(open_bench: Callable[..., Bench]) -> None:
    """A queued job whose deadline passes fails with that reason, and its event is there."""
    bench = open_bench(engine={"a": noop(enabled=False)})
    bench.enqueue(1, deadline_seconds=30)
    assert tick(bench.installation).late == 0
    bench.let_time_pass(31)
    assert tick(bench.installation).late == 1
    assert bench.rows("select state from jobs") == [("failed",)]
    assert bench.value("select count(*) from ledger where kind = 'JobFailed'") == 1


def test_a_session_stays_with_its_member_and_pays_for_it_like_a_draw(open_bench: Callable[..., Bench]) -> None:
    """The engine a session was given first serves it again, remembered from the grant on and under its project."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 5, "b": 5}})
    for count in (1, 3):
        bench.enqueue(count, session="talk")
        routing.route(bench.installation, "main")
    assert len({engine for _, _, engine in bench.live()}) == 1
    assert bench.rows("select session, pool, class from sessions") == [("default/talk", "main.local", "")]
    credit = dict(bench.rows("select member, credit from credits where pool = 'main.local'"))
    assert sorted(credit.values()) == [-2 * 10**12, 2 * 10**12]
    assert [step[3] for (trace,) in bench.rows("select trace from decisions") for step in trace["steps"]].count(1) == 3


def test_a_session_yields_once_while_its_member_is_full(open_bench: Callable[..., Bench]) -> None:
    """Another engine steps in, and the memory stays."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 1, "b": 1}})
    bench.enqueue(2, session="talk")
    routing.route(bench.installation, "main")
    assert [engine for _, _, engine in bench.live()] == ["a", "b"]
    assert bench.rows("select member from sessions") == [("a",)]
