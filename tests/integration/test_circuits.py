"""Circuits on a real database: accounts that engines and pools share, early probes, what closes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.chat_server import ChatServer, Reply
from tests.support.installation import Bench, noop
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control, views
from vibey.services.explain import explain
from vibey.services.fleet import examine
from vibey.services.route import route, run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import reap, tick
from vibey.services.wording import in_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome

HOURS_5 = 5 * 3600
SHARED = {"a": noop(account="x"), "b": noop(account="x")}
CREDITS = Failure(FailureClass.CAPACITY, "pay first", CapacityKind.CREDITS)
WINDOW = Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=HOURS_5 * 1000)
CRASH = Failure(FailureClass.ENGINE, "crashed")


def _end(bench: Bench, outcome: Outcome, engine: str | None = None) -> str:
    """End the oldest live run, of an engine if one is named; the engine it was on."""
    run, token, on = next(each for each in bench.live() if engine in {None, each[2]})
    started = _start(bench.installation, run, token)
    assert started is not None
    assert settle(bench.installation, Held.of(started, token), outcome) is not None
    return on


def _live(bench: Bench) -> dict[str, int]:
    return dict(bench.rows("select engine, count(*)::int from runs where ended_at is null group by engine"))


def _account(bench: Bench, *columns: str) -> tuple[Any, ...]:
    found = bench.rows(f"select {', '.join(columns)} from accounts where name = 'x'")
    return found[0]


def _minutes(bench: Bench, column: str) -> int | None:
    """How many minutes are left until an instant of the account's."""
    left = bench.value(f"select extract(epoch from {column} - clock_timestamp())::float / 60 from accounts")
    return None if left is None else round(left)


def _until_probe(bench: Bench) -> None:
    """Let time pass until the account's probe is due."""
    seconds = bench.value("select extract(epoch from probe_at - clock_timestamp())::float from accounts")
    bench.let_time_pass(seconds + 0.001)


def test_engines_of_one_account_open_are_probed_and_ramp_together(open_bench: Callable[..., Bench]) -> None:
    """The refusal of one is the end of both; one probe for both; then each has a slot for each success."""
    bench = open_bench(engine=SHARED, engines={"slots": {"a": 3, "b": 2}})
    bench.enqueue(40)
    assert route(bench.installation, "main") == 5
    _end(bench, CREDITS, "a")
    for _ in range(4):
        _end(bench, CRASH)
    assert route(bench.installation, "main") == 0
    assert _account(bench, "open_reason", "probes") == ("credits_exhausted", 1)
    _until_probe(bench)
    assert [route(bench.installation, "main") for _ in range(2)] == [1, 0]
    _end(bench, Success())
    seen = []
    for _ in range(3):
        route(bench.installation, "main")
        seen.append((_account(bench, "ramp")[0], _live(bench)))
        _end(bench, Success())
    assert seen == [(1, {"a": 1, "b": 1}), (2, {"a": 2, "b": 2}), (None, {"a": 3, "b": 2})]


def test_a_crash_on_the_way_back_keeps_both_engines_where_they_are(open_bench: Callable[..., Bench]) -> None:
    """And the third in a row shuts both again, at the first step: the account had been well."""
    bench = open_bench(engine=SHARED, engines={"slots": {"a": 4, "b": 4}, "retry_backoff_seconds": 0})
    bench.enqueue(40)
    bench.rows("update accounts set open_reason = 'engine_failures', probes = 3, probe_at = clock_timestamp()")
    route(bench.installation, "main")
    _end(bench, Success())
    for _ in range(2):
        route(bench.installation, "main")
        _end(bench, CRASH)
        assert _account(bench, "open_reason", "ramp") == (None, 1)
    route(bench.installation, "main")
    assert _live(bench) == {"a": 1, "b": 1}
    _end(bench, CRASH)
    assert _account(bench, "open_reason", "ramp", "probes") == ("engine_failures", None, 1)
    assert route(bench.installation, "main") == 0


def test_routers_of_two_pools_grant_an_account_s_probe_once(open_bench: Callable[..., Bench]) -> None:
    """Each pool has an engine of its own and its own router; the probe is one for both, whoever comes first."""
    pools = {name: {"select": "ordered", "members": [engine]} for name, engine in (("main", "a"), ("other", "b"))}
    bench = open_bench(engine=SHARED, engines={"slots": {"a": 3, "b": 3}}, pool=pools)
    bench.enqueue(40)
    bench.enqueue(40, pool="other")
    due = "update accounts set open_reason = 'credits_exhausted', probes = 1, probe_at = clock_timestamp()"
    with ThreadPoolExecutor(2) as threads:
        for round_ in range(20):
            bench.rows(due)
            barrier = Barrier(2)

            def at_once(pool: str, barrier: Barrier = barrier) -> int:
                barrier.wait(300)
                passed = run_pass(bench.installation, pool)
                assert passed is not None
                return len(passed.granted)

            pools_in_turn = ["main", "other"][:: 1 if round_ % 2 else -1]
            assert sum(threads.map(at_once, pools_in_turn)) == 1
            assert [run_pass(bench.installation, pool).granted for pool in pools] == [(), ()]  # type: ignore[union-attr]
            _end(bench, CREDITS)
            assert bench.value("select probes from accounts") == 2, "a refused probe is one step"


def test_a_tick_grants_the_probe_once_it_is_due_and_nothing_before(open_bench: Callable[..., Bench]) -> None:
    """Nobody sends a message when a probe comes due: the tick looks at every pool with a queued job."""
    bench = open_bench(engine=SHARED)
    bench.enqueue(5)
    route(bench.installation, "main")
    _end(bench, CREDITS)
    _end(bench, CREDITS)
    assert tick(bench.installation).granted == 0
    bench.let_time_pass(9 * 60)
    assert tick(bench.installation).granted == 0
    _until_probe(bench)
    assert tick(bench.installation).granted == 1
    assert tick(bench.installation).granted == 0


def _rechecked(open_bench: Callable[..., Bench], seconds: int = 1800) -> Bench:
    """An account of two engines whose window is spent for five hours, looked at every half hour; both runs ended."""
    bench = open_bench(engine=SHARED, engines={"slots": {"a": 2, "b": 2}, "recheck_seconds": seconds})
    bench.enqueue(20)
    route(bench.installation, "main")
    for _ in range(4):
        _end(bench, WINDOW)
    return bench


def test_a_spent_window_is_looked_at_ahead_of_its_reset(open_bench: Callable[..., Bench]) -> None:
    """One probe every half hour; its refusals leave reset and schedule alone; its success ends the wait."""
    bench = _rechecked(open_bench)
    for left in (300, 270, 240):
        assert (_minutes(bench, "resets_at"), _minutes(bench, "probe_at")) == (left, 30)
        assert route(bench.installation, "main") == 0
        _until_probe(bench)
        assert [tick(bench.installation).granted for _ in range(2)] == [1, 0]
        _end(bench, Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW))
    assert _account(bench, "open_reason", "probes") == ("window_exhausted", 1)
    _until_probe(bench)
    assert tick(bench.installation).granted == 1
    _end(bench, Success())
    assert _account(bench, "open_reason", "probe_at", "resets_at", "ramp") == (None, None, None, 1)


def test_without_a_recheck_the_provider_s_word_is_waited_for(open_bench: Callable[..., Bench]) -> None:
    """Off unless the operator wants it."""
    bench = _rechecked(open_bench, 0)
    assert (_minutes(bench, "resets_at"), _minutes(bench, "probe_at")) == (300, 300)
    (seen,) = {each["detail"] for each in views.engines(bench.installation)["engines"]}
    assert "window exhausted, next trial " in seen


def test_people_read_both_instants(open_bench: Callable[..., Bench]) -> None:
    """In the list of engines, in a job's explanation, and on the ledger; the job's earliest start is the early look."""
    bench = _rechecked(open_bench)
    a, b = views.engines(bench.installation)["engines"]
    resets, probes = (in_words(datetime.fromisoformat(a[name])) for name in ("resets_at", "next_probe_at"))
    words = f"window exhausted until {resets}, looked at again at {probes}"
    assert {(each["circuit"], each["detail"], each["remark"]) for each in (a, b)} == {("open", words, words)}
    (job, *_) = bench.enqueue()
    route(bench.installation, "main")
    waiting = explain(bench.installation, job)["waiting"]
    assert (waiting["earliest"]["by"], waiting["earliest"]["at"]) == ("probe", a["next_probe_at"])
    assert {told["detail"] for told in waiting["engines"]} == {words}
    told = bench.value("select data from ledger where kind = 'CircuitChanged' order by id limit 1")
    probe_at, resets_at = _account(bench, "probe_at", "resets_at")
    assert told["resets_at_ms"] - told["probe_at_ms"] == (HOURS_5 - 1800) * 1000
    assert resets_at - probe_at >= timedelta(seconds=HOURS_5 - 1800)


def test_a_run_begun_before_closes_its_account_early(open_bench: Callable[..., Bench]) -> None:
    """The success of another engine's run, hours ahead of the reset, and both serve again."""
    bench = open_bench(engine=SHARED, engines={"slots": {"a": 2, "b": 2}})
    bench.enqueue(20)
    route(bench.installation, "main")
    _end(bench, WINDOW, "a")
    assert route(bench.installation, "main") == 0
    _end(bench, Success(), "b")
    assert _account(bench, "open_reason", "resets_at", "ramp") == (None, None, 1)
    _end(bench, Success(), "a")
    _end(bench, Success(), "b")
    assert route(bench.installation, "main") == 4


@pytest.mark.parametrize("others", ["", "window_exhausted"])
def test_a_good_doctor_closes_what_a_refused_login_opened_and_nothing_else(
    open_bench: Callable[..., Bench], tmp_path: Path, others: str
) -> None:
    """All slots at once and no failure remembered, for a person has seen to it; a spent window stays spent."""
    key = tmp_path / "key"
    key.write_text("k", encoding="utf-8")
    with ChatServer() as server:
        chat = {"kind": "openai", "tier": "local", "base_url": server.url, "model": "m", "api_key_file": str(key)}
        bench = open_bench(engine={"a": {**chat, "account": "x"}}, engines={"slots": {"a": 3}})
        bench.enqueue(9, payload={"prompt": "go"})
        route(bench.installation, "main")
        for _ in range(3):
            _end(bench, Failure(FailureClass.CAPACITY, "who are you", CapacityKind.LOGIN))
        assert _account(bench, "open_reason", "failures_in_a_row") == ("login_failed", 3)
        assert route(bench.installation, "main") == 0
        if others:
            bench.rows(f"update accounts set open_reason = '{others}', probe_at = now() + interval '1 day'")
        server.answers["/v1/models"] = Reply.of(200, {"data": [{"id": "m", "owned_by": "x"}]})
        assert examine(bench.installation, ["a"])["a"].logged_in is True
    told = bench.value("select count(*) from ledger where kind = 'CircuitChanged' and data ->> 'open' is null")
    if others:
        assert (_account(bench, "open_reason"), told) == ((others,), 0)
        return
    assert _account(bench, "open_reason", "failures_in_a_row", "failure", "ramp") == (None, 0, 0, None)
    assert told == 1
    assert route(bench.installation, "main") == 3
    _end(bench, CRASH)
    assert _account(bench, "open_reason") == (None,), "one crash is not the third in a row"


def test_looks_ahead_of_a_reset_cost_the_job_nothing(open_bench: Callable[..., Bench]) -> None:
    """Ten refusals, more than a job is ever refunded, and it has used no attempt and one refund: the first's."""
    bench = open_bench(engine={"a": noop(account="x")}, engines={"recheck_seconds": 600})
    bench.enqueue()
    for _ in range(11):
        assert route(bench.installation, "main") == 1
        _end(bench, Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=HOURS_5 * 1000))
        _until_probe(bench)
    assert bench.rows("select state, attempt, refunds from jobs") == [("queued", 0, 1)]
    assert bench.value("select probes from accounts") == 1


@pytest.mark.parametrize("ending", ["work", "cancelled", "lost"])
def test_a_probe_that_says_nothing_of_its_account_makes_way_for_another(
    open_bench: Callable[..., Bench], ending: str
) -> None:
    """The job's own fault, a cancel before the start, a dead worker: the circuit is as it was, and one more may try."""
    bench = open_bench(engine=SHARED, engines={"slots": {"a": 2, "b": 2}, "lease_seconds": 3})
    bench.enqueue(9)
    bench.rows("update accounts set open_reason = 'credits_exhausted', probes = 2, probe_at = clock_timestamp()")
    before = _account(bench, "open_reason", "probes", "failures_in_a_row")
    assert route(bench.installation, "main") == 1
    ((run, token, _),) = bench.live()
    if ending == "work":
        _end(bench, Failure(FailureClass.WORK, "exit 1"))
    elif ending == "cancelled":
        control.cancel(bench.installation, bench.value(f"select job_id from runs where id = {run}"))
    else:
        assert _start(bench.installation, run, token) is not None
        assert route(bench.installation, "main") == 0
        bench.let_time_pass(60)
        assert reap(bench.installation) == (1, 0)
    assert _account(bench, "open_reason", "probes", "failures_in_a_row") == before
    assert [route(bench.installation, "main") for _ in range(2)] == [1, 0]
