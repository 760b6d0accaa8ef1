"""Starting, settling, reaping, cancelling: fenced by token, and every ending as its row of the table says."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis
from sqlalchemy.exc import DBAPIError

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.coordination.wakeups import WakeUps
from vibey.domain.errors import Refused, UnknownName
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control
from vibey.services.outputs import output_of
from vibey.services.route import route
from vibey.services.run import _start, carry_out
from vibey.services.settle import Held, settle
from vibey.services.tick import reap, resend, tick
from vibey.store import runs

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """One local engine with one slot, and one job granted on it."""
    bench = open_bench(engine={"a": noop(), "b": noop("paid")}, engines={"retry_backoff_seconds": 2, "max_attempts": 3})
    bench.enqueue(1)
    route(bench.installation, "main")
    return bench


@pytest.fixture
def brief(open_bench: Callable[..., Bench]) -> Bench:
    """As `bench`, with a lease of three seconds."""
    bench = open_bench(engine={"a": noop(), "b": noop("paid")}, engines={"lease_seconds": 3})
    bench.enqueue(1)
    route(bench.installation, "main")
    return bench


def _held(bench: Bench) -> Held:
    run, token, _ = bench.live()[0]
    started = _start(bench.installation, run, token)
    assert started is not None
    return Held.of(started, token)


def _job(bench: Bench, *columns: str) -> tuple[Any, ...]:
    return bench.rows(f"select {', '.join(columns)} from jobs order by id")[0]


def _failure(kind: FailureClass, capacity: CapacityKind | None = None, **more: Any) -> Failure:
    return Failure(kind, "said so", capacity, **more)


def test_a_message_delivered_twice_runs_once(bench: Bench) -> None:
    """The second delivery finds the token taken and changes nothing."""
    run, token, _ = bench.live()[0]
    assert carry_out(bench.installation, run, token) == "succeeded"
    before = bench.rows("select * from jobs"), bench.value("select count(*) from ledger")
    assert carry_out(bench.installation, run, token) == "stale"
    assert (bench.rows("select * from jobs"), bench.value("select count(*) from ledger")) == before


def test_a_run_in_other_hands_cannot_be_started_again(bench: Bench) -> None:
    """While one holder runs it, another's start by the right token is refused."""
    held = _held(bench)
    assert _start(bench.installation, *held.key) is None
    assert bench.rows("select state from runs") == [("running",)]


def test_success_ends_run_and_job_in_one_statement(bench: Bench) -> None:
    """The result, the end of the run and the event are there together, and the slot is free."""
    held = _held(bench)
    settle(bench.installation, held, Success({"answer": 42}))
    assert _job(bench, "state", "result", "run_id") == ("succeeded", {"answer": 42}, None)
    assert bench.live() == []
    kinds = [kind for (kind,) in bench.rows("select kind from ledger where job_id is not null order by id")]
    assert kinds == ["JobEnqueued", "RunGranted", "RunStarted", "JobSucceeded"]


def test_a_stale_token_changes_nothing_at_all(brief: Bench) -> None:
    """After the lease was lost and reaped, neither success nor any failure of the old holder leaves a trace."""
    bench = brief
    held = _held(bench)
    bench.let_time_pass(3600)
    assert reap(bench.installation) == (1, 0)
    before = [bench.rows(f"select * from {table} order by 1") for table in ("jobs", "runs", "accounts", "engines")]
    events = bench.value("select count(*) from ledger")
    for outcome in (
        Success(),
        _failure(FailureClass.ENGINE),
        _failure(FailureClass.CAPACITY, CapacityKind.BUSY),
        _failure(FailureClass.CAPACITY, CapacityKind.CREDITS),
        _failure(FailureClass.MISCONFIGURED),
    ):
        assert settle(bench.installation, held, outcome) is None
    after = [bench.rows(f"select * from {table} order by 1") for table in ("jobs", "runs", "accounts", "engines")]
    assert after == before
    assert bench.value("select count(*) from ledger") == events
    renewed = bench.installation.database.statement(
        lambda connection: runs.RENEW.first(connection, run=held.run_id, token=held.token, lease_ms=1, tail=None)
    )
    assert renewed is None


@pytest.mark.parametrize("kind", [FailureClass.WORK, FailureClass.VIBEY])
def test_the_jobs_own_fault_is_retried_and_touches_no_circuit(bench: Bench, kind: FailureClass) -> None:
    """WORK and VIBEY failures count an attempt, wait out a backoff, and leave the account alone."""
    settle(bench.installation, _held(bench), _failure(kind))
    assert _job(bench, "state", "attempt", "affinity") == ("queued", 1, "a")
    assert bench.value("select failures_in_a_row from accounts where name = 'a'") == 0


def test_attempts_run_out(bench: Bench) -> None:
    """After the last attempt the job has failed, with the reason and its number."""
    for _ in range(3):
        settle(bench.installation, _held(bench), _failure(FailureClass.WORK))
        bench.let_time_pass(1000)
        tick(bench.installation)
    state, reason = _job(bench, "state", "reason")
    assert state == "failed"
    assert "attempt 3 of 3" in reason


def test_three_engine_failures_open_the_account(bench: Bench) -> None:
    """The third failure in a row opens the circuit with a probe time, and its event is on the ledger."""
    for _ in range(3):
        settle(bench.installation, _held(bench), _failure(FailureClass.ENGINE))
        bench.let_time_pass(0.001)
        bench.rows("update jobs set not_before = null, state = 'queued', ended_at = null, attempt = 0")
        route(bench.installation, "main")
    reason, probes = bench.rows("select open_reason, probes from accounts where name = 'a'")[0]
    assert (reason, probes) == ("engine_failures", 1)
    assert bench.value("select count(*) from ledger where kind = 'CircuitChanged'") == 1


@pytest.mark.parametrize(
    ("capacity", "reason"),
    [
        (CapacityKind.WINDOW, "window_exhausted"),
        (CapacityKind.CREDITS, "credits_exhausted"),
        (CapacityKind.LOGIN, "login_failed"),
    ],
)
def test_a_refusal_for_capacity_opens_the_account_and_refunds(
    bench: Bench, capacity: CapacityKind, reason: str
) -> None:
    """The attempt is given back, the job is due at once, and the account is open for the right reason."""
    settle(bench.installation, _held(bench), _failure(FailureClass.CAPACITY, capacity))
    assert _job(bench, "state", "attempt", "refunds", "not_before") == ("queued", 0, 1, None)
    assert bench.value("select open_reason from accounts where name = 'a'") == reason


def test_a_busy_server_is_full_not_broken(bench: Bench) -> None:
    """An engine that answers busy takes nothing for a poll; no circuit opens and nothing goes to paid."""
    settle(bench.installation, _held(bench), _failure(FailureClass.CAPACITY, CapacityKind.BUSY))
    assert bench.value("select open_reason from accounts where name = 'a'") is None
    assert route(bench.installation, "main") == 0
    assert bench.rows("select reason from group_states") == [("slots_full",)]
    bench.let_time_pass(31)
    assert route(bench.installation, "main") == 1


def test_a_handoff_goes_to_another_engine(open_bench: Callable[..., Bench]) -> None:
    """The engine that wound down is excluded from then on; the attempt is given back at most three times."""
    bench = open_bench(engine={name: noop() for name in "abcd"}, engines={"max_attempts": 9})
    bench.enqueue(1)
    seen = []
    for _ in range(4):
        route(bench.installation, "main")
        held = _held(bench)
        seen.append(held.job.engine)
        settle(bench.installation, held, _failure(FailureClass.HANDOFF))
    assert sorted(seen) == ["a", "b", "c", "d"]
    assert _job(bench, "handoffs", "attempt", "state") == (3, 1, "queued")


def test_a_misconfigured_engine_is_gone_until_reset(bench: Bench) -> None:
    """The engine is excluded, the attempt refunded, and `engine reset` brings it back."""
    settle(bench.installation, _held(bench), _failure(FailureClass.MISCONFIGURED))
    assert bench.value("select conformant from engines where name = 'a'") is False
    assert _job(bench, "attempt") == (0,)
    control.reset_engine(bench.installation, "a")
    assert route(bench.installation, "main") == 1
    assert bench.live()[0][2] == "a"


def test_a_success_closes_the_circuit(bench: Bench) -> None:
    """A probe that succeeds closes the account and forgets its failures in a row."""
    bench.rows("update accounts set failures_in_a_row = 2, failure = 190000, failure_at = clock_timestamp()")
    settle(bench.installation, _held(bench), Success())
    in_a_row, failure = bench.rows("select failures_in_a_row, failure from accounts where name = 'a'")[0]
    assert in_a_row == 0
    assert 0 < failure <= 171_000


def test_a_grant_nobody_started_is_sent_again_then_withdrawn(open_bench: Callable[..., Bench]) -> None:
    """Unstarted, it is sent anew after a while; past its lease it is withdrawn, with attempt and credit untouched."""
    bench = open_bench(engine={"a": noop(), "b": noop()})
    bench.enqueue(1)
    route(bench.installation, "main")
    credit = bench.rows("select member, credit from credits order by 1")
    assert [member for member, _ in credit] == ["a", "b"]
    assert resend(bench.installation) == 0
    bench.let_time_pass(15)
    assert resend(bench.installation) == 1
    assert resend(bench.installation) == 0
    assert bench.messages("a") == 2
    bench.let_time_pass(60)
    assert reap(bench.installation) == (0, 1)
    assert _job(bench, "state", "attempt", "not_before") == ("queued", 0, None)
    assert bench.rows("select member, credit from credits order by 1") == credit
    assert bench.rows("select state from runs") == [("withdrawn",)]


def test_an_outage_counts_as_a_tenth_of_a_lease(brief: Bench) -> None:
    """However long no tick came, a started run is not reaped for it, but when its lease was counted to its end."""
    _held(brief)
    tick(brief.installation)
    for _ in range(7):
        brief.rows("update installation set last_tick_at = clock_timestamp() - interval '1 hour'")
        assert tick(brief.installation).lost == 0
    assert brief.value("select lease_clock_ms from installation") <= 8 * brief.installation.timing.gap_ms
    brief.let_time_pass(3600)
    assert tick(brief.installation).lost == 1


def test_a_lost_run_counts_and_reruns(brief: Bench) -> None:
    """A started run past its judged lease is lost: the attempt counts and the job is queued again."""
    bench = brief
    held = _held(bench)
    bench.let_time_pass(61)
    assert reap(bench.installation) == (1, 0)
    assert bench.rows("select state from runs") == [("lost",)]
    assert _job(bench, "attempt", "state") == (1, "queued")
    assert settle(bench.installation, held, Success()) is None


def test_a_held_run_counts_as_live(bench: Bench) -> None:
    """The reaper leaves out a run whose job someone has locked."""
    bench.let_time_pass(75)
    with bench.installation.database.begin() as connection:
        connection.exec_driver_sql("select 1 from jobs for update")
        assert reap(bench.installation) == (0, 0)
    assert reap(bench.installation) == (0, 1)


def test_cancel_in_each_state(open_bench: Callable[..., Bench]) -> None:
    """Queued and granted jobs end at once, a running one is told to stop, an ended one is refused."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 2}})
    running, granted, queued = bench.enqueue(3)
    route(bench.installation, "main")
    run, token, _ = bench.live()[0]
    started = _start(bench.installation, run, token)
    assert started is not None
    assert control.cancel(bench.installation, queued).state == "cancelled"
    assert control.cancel(bench.installation, granted).state == "cancelled"
    told = control.cancel(bench.installation, running)
    assert told.stopping_run == run
    assert bench.installation.wakeups.await_nudge(run, 1.0)
    states = dict(bench.rows("select id, state from jobs"))
    assert states == {running: "running", granted: "cancelled", queued: "cancelled"}
    settled = settle(bench.installation, Held.of(started, token), _failure(FailureClass.WORK))
    assert settled is not None
    assert settled.job_state == "cancelled"
    with pytest.raises(Refused, match="already been cancelled"):
        control.cancel(bench.installation, running)
    with pytest.raises(UnknownName, match="unknown job 999"):
        control.cancel(bench.installation, 999)


def test_a_cancelled_grant_cannot_be_started(bench: Bench) -> None:
    """A build message that arrives after the cancel finds nothing to start."""
    run, token, _ = bench.live()[0]
    control.cancel(bench.installation, 1)
    assert carry_out(bench.installation, run, token) == "stale"


def test_retry_gives_fresh_attempts(bench: Bench) -> None:
    """A failed job can be queued again by hand; one that is not ended cannot."""
    with pytest.raises(Refused, match="is granted"):
        control.retry(bench.installation, 1)
    control.cancel(bench.installation, 1)
    control.retry(bench.installation, 1)
    assert _job(bench, "state", "attempt", "ended_at") == ("queued", 0, None)
    assert route(bench.installation, "main") == 1


def test_a_freed_slot_is_granted_by_the_settling_task(bench: Bench) -> None:
    """With a job waiting, carrying out one run leaves the next one granted without a router in between."""
    bench.enqueue(1)
    run, token, _ = bench.live()[0]
    carry_out(bench.installation, run, token)
    assert [job for (job,) in bench.rows("select job_id from runs where ended_at is null")] == [2]


def test_pausing_an_engine_keeps_new_runs_away(bench: Bench) -> None:
    """A paused engine takes nothing new; resumed, it does; an unknown one is named."""
    control.cancel(bench.installation, 1)
    control.pause_engine(bench.installation, "a", paused=True)
    bench.enqueue(1)
    route(bench.installation, "main")
    assert [engine for _, _, engine in bench.live()] == ["b"]
    with pytest.raises(UnknownName, match="known: a, b"):
        control.pause_engine(bench.installation, "zzz", paused=True)


def test_short_runs_leave_no_connection_waiting(
    open_bench: Callable[..., Bench], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens for a cancel of a run stops when it is over, and the next run listens over the same connection."""
    listen, waits = WakeUps.await_nudge, defaultdict[int, list[bool]](list)

    def noted(self: WakeUps, run_id: int, seconds: float) -> bool:
        waits[run_id].append(answer := listen(self, run_id, seconds))
        return answer

    monkeypatch.setattr(WakeUps, "await_nudge", noted)
    command = {"kind": "command", "tier": "local", "argv": ["sleep", "0.02"]}
    with closing(redis.Redis.from_url(redis_url)) as client:
        own = client.client_info()["db"]
        # What earlier tests of this process left open is not of these runs.
        before = {each["id"] for each in client.client_list()}
        bench = open_bench(engine={"a": command})
        bench.enqueue(6)
        route(bench.installation, "main")

        def connected(flag: str = "") -> int:
            found = [each for each in client.client_list() if int(each["db"]) == own and each["id"] not in before]
            return sum(flag in each["flags"] for each in found)

        while live := bench.live():
            assert carry_out(bench.installation, *live[0][:2]) == "succeeded"
            until(lambda: not connected("b"), what="nobody to wait for news of a run that is over")
        assert bench.value("select count(*) from runs") == 6
        # By itself a wait ends after three seconds, without news.
        assert any(answers[-1] for answers in waits.values()), waits
        assert connected() <= 8
        until(lambda: not client.keys("*stop:*"), what="no news left lying")


def test_a_run_is_tidied_after_though_its_slot_could_not_be_handed_over(open_bench: Callable[..., Bench]) -> None:
    """Whatever keeps the next run from being granted, of this one only its log is left."""
    bench = open_bench(engine={"a": {"kind": "command", "tier": "local", "argv": ["touch", "left"]}})
    bench.enqueue(2)
    route(bench.installation, "main")
    run, token, _ = bench.live()[0]
    query(bench.url, f"alter table runs add constraint obstacle check (id = {run})")
    with pytest.raises(DBAPIError, match="obstacle"):
        carry_out(bench.installation, run, token)
    assert bench.rows("select state from runs") == [("succeeded",)]
    log = output_of(bench.installation, run)
    assert [each.name for each in log.parent.iterdir()] == [log.name]
