"""The database's clock is set forward and back under work: what was stored holds nothing up, and audits are sound.

The test sets the clock of its database. What leases make of it is in `test_lease_clock`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import redis

from tests.support.ageing import HYBRID, sound, work
from tests.support.clock import DatabaseClock
from tests.support.installation import Bench, noop
from vibey.coordination.keys import Keys
from vibey.domain.backoff import CEILING_MS
from vibey.domain.circuit import LONGEST_PROBE_MS
from vibey.domain.outcome import CapacityKind, Failure, FailureClass
from vibey.services import adjust, pulse
from vibey.services.adjust import LEARNED_SECONDS
from vibey.services.audit import audit_in_turn
from vibey.services.route import route, run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.store import adjustments, fleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.domain.outcome import Outcome

HOUR = 3600.0
DAY = 24 * HOUR
WINDOW = Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=round(5 * HOUR * 1000))


@pytest.fixture
def clock(database_url: str) -> DatabaseClock:
    """The clock of this test's database; it stands."""
    return DatabaseClock(database_url, standing=True)


@pytest.fixture
def open_clocked(clock: DatabaseClock, open_bench: Callable[..., Bench]) -> Callable[..., Bench]:  # noqa: ARG001
    """`open_bench`, once the database has its clock."""
    return open_bench


def run_one(bench: Bench, outcome: Outcome, **order: object) -> int:
    """Enqueue a job, run it to this outcome; its id."""
    bench.staff()
    (job,) = bench.enqueue(1, **order)
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    started = _start(bench.installation, run, token)
    assert started is not None
    settle(bench.installation, Held.of(started, token), outcome)
    return job


def seconds_until(bench: Bench, instant: str) -> float:
    """Seconds from now until an instant that a query yields."""
    return float(bench.value(f"select extract(epoch from ({instant}) - clock.clock_timestamp())::float"))


def test_a_backoff_is_no_longer_than_the_longest_and_a_delay_asked_for_stays(
    open_clocked: Callable[..., Bench], clock: DatabaseClock
) -> None:
    """Of jobs that wait for their next attempt the tick after the step lets none wait for hours."""
    bench = open_clocked(engine={"l": noop()}, engines={"retry_backoff_seconds": 3600})
    tick(bench.installation)
    retried = run_one(bench, Failure(FailureClass.WORK, "exit 1"))
    (delayed,) = bench.enqueue(1, delay_seconds=3 * HOUR)
    clock.move(-2 * HOUR)
    tick(bench.installation)
    assert 0 < seconds_until(bench, f"select not_before from jobs where id = {retried}") <= CEILING_MS / 1000
    assert seconds_until(bench, f"select not_before from jobs where id = {delayed}") == 5 * HOUR
    clock.move(CEILING_MS / 1000)
    bench.staff()
    assert tick(bench.installation).granted == 1


def test_a_step_that_no_tick_saw_is_made_up_for_by_the_next_cleaning(
    open_clocked: Callable[..., Bench], clock: DatabaseClock
) -> None:
    """Beat was away for about as long as the clock went back: ten minutes later instants are brought back too."""
    bench = open_clocked(engine={"l": noop()}, engines={"retry_backoff_seconds": 3600})
    tick(bench.installation)
    clock.move(2 * HOUR)
    retried = run_one(bench, Failure(FailureClass.WORK, "exit 1"))
    clock.move(-2 * HOUR + 1)
    tick(bench.installation)
    clock.move(601)
    tick(bench.installation)
    assert seconds_until(bench, f"select not_before from jobs where id = {retried}") <= CEILING_MS / 1000


def test_circuits_are_probed_and_busy_servers_tried_in_time_and_a_known_reset_stays(
    open_clocked: Callable[..., Bench], clock: DatabaseClock
) -> None:
    """A schedule of ours is brought back; what a provider said is its word, looked at earlier only by a recheck."""
    engines = {name: noop(account=name) for name in ("failing", "spent", "busy")}
    bench = open_clocked(engine=engines, engines={"retry_backoff_seconds": 0, "slot_poll_seconds": 20})
    tick(bench.installation)
    for _ in range(3):
        run_one(bench, Failure(FailureClass.ENGINE, "crash"), engines=["failing"], max_attempts=1)
    run_one(bench, WINDOW, engines=["spent"])
    run_one(bench, Failure(FailureClass.CAPACITY, "full", CapacityKind.BUSY), engines=["busy"])
    clock.move(-2 * HOUR)
    tick(bench.installation)
    probe = "select probe_at from accounts where name = '{}'"
    assert 0 < seconds_until(bench, probe.format("failing")) <= LONGEST_PROBE_MS / 1000
    assert seconds_until(bench, probe.format("spent")) == 7 * HOUR
    assert seconds_until(bench, "select busy_until from engines where name = 'busy'") == 20
    assert seconds_until(bench, "select max(failure_at) from accounts") <= 0
    bench.set_default(recheck_seconds=600)
    bench.rows("update installation set last_clean_at = last_clean_at - interval '1 hour'")
    tick(bench.installation)
    assert seconds_until(bench, probe.format("spent")) == 600
    assert seconds_until(bench, "select resets_at from accounts where name = 'spent'") == 7 * HOUR


def test_a_held_job_overflows_when_it_has_waited_since_the_step(
    open_clocked: Callable[..., Bench], clock: DatabaseClock
) -> None:
    """What it had waited before is forgotten; nothing more."""
    bench = open_clocked(
        engine={"l": noop(), "p": noop("paid")},
        engines={"mode": "hybrid", "overflow_after_seconds": 90, "paid_daily_cap": 5, "slots": {"l": 1, "p": 1}},
    )
    tick(bench.installation)
    bench.enqueue(2)
    for _ in range(2):
        run_pass(bench.installation, "main")
    assert bench.value("select count(*) from jobs where held_at is not null") == 1
    clock.move(-2 * HOUR)
    bench.staff()
    tick(bench.installation)
    assert seconds_until(bench, "select max(held_at) from jobs") == 0
    for seconds, engines in ((89, ["l"]), (2, ["l", "p"])):
        clock.move(seconds)
        bench.staff()
        tick(bench.installation)
        assert [engine for _, _, engine in bench.live()] == engines


def test_sessions_and_learned_factors_end_no_later_than_new_ones(
    open_clocked: Callable[..., Bench], clock: DatabaseClock
) -> None:
    """A person's factor ends when that person said."""
    bench = open_clocked(engine={"l": noop(), "m": noop()})
    tick(bench.installation)
    bench.enqueue(1, session="talk")
    route(bench.installation, "main")
    learned = [("l", 500_000, "it fails")]
    bench.installation.database.statement(lambda connection: adjustments.learn(connection, learned, LEARNED_SECONDS))
    adjust.prefer(bench.installation, "m", "2", HOUR)
    clock.move(-2 * HOUR)
    tick(bench.installation)
    ttl = bench.installation.settings.engines.session_ttl_seconds
    assert seconds_until(bench, "select expires_at from sessions") == ttl
    until = "select expires_at from adjustments where kind = '{}'"
    assert seconds_until(bench, until.format("learned")) == LEARNED_SECONDS
    assert seconds_until(bench, until.format("preference")) == 3 * HOUR


def test_a_worker_whose_report_lies_ahead_serves_nothing_until_its_next_one(
    open_clocked: Callable[..., Bench], clock: DatabaseClock
) -> None:
    """It may have died before the step; one that lives reports again within seconds, and its canary counts anew."""
    bench = open_clocked(engine={"l": noop()})

    def served() -> set[bool]:
        rows = bench.installation.database.statement(
            lambda connection: fleet.SERVED.all(connection, presence_ms=bench.installation.timing.presence_ms)
        )
        return {row.served for row in rows}

    worker = pulse.Worker("worker@test", ("l",), 64)
    first = pulse.appear(bench.installation, worker)
    assert first is not None
    tick(bench.installation)
    assert served() == {True}
    clock.move(-2 * HOUR)
    assert served() == {False}
    for moved, silent_ms in ((0, 0), (30, 30_000)):
        clock.move(moved)
        assert pulse.appear(bench.installation, worker, first.started_at) == pulse.Presence(first.started_at, silent_ms)
        assert served() == {True}
    clock.move(-2 * HOUR)
    tick(bench.installation)
    assert bench.rows("select name from workers") == []


def test_an_audit_by_itself_is_due_again(open_clocked: Callable[..., Bench], clock: DatabaseClock) -> None:
    """The last one lies in the future."""
    bench = open_clocked(engine={"l": noop()})
    assert audit_in_turn(bench.installation)
    assert not audit_in_turn(bench.installation)
    clock.move(-2 * HOUR)
    assert audit_in_turn(bench.installation)


@pytest.mark.parametrize("step", [-2 * HOUR, 2 * HOUR, -DAY, DAY])
def test_audits_are_sound_across_a_step(open_clocked: Callable[..., Bench], clock: DatabaseClock, step: float) -> None:
    """Runs that were granted, started and renewed before it end after it; jobs go on; units are of their day."""
    bench = open_clocked(engine={"l": noop(), "m": noop(weight=2), "p": noop("paid")}, engines=HYBRID)
    tick(bench.installation)
    bench.enqueue(24)
    work(bench, 3, leave=12)
    for sign in (1, -1, 1):
        run_pass(bench.installation, "main")
        clock.move(sign * step)
        sound(bench)
        bench.staff()
        tick(bench.installation)
        sound(bench)
        work(bench, 4, leave=6)
        bench.enqueue(4)
        clock.move(1)
    work(bench, 5)
    sound(bench)
    order = "started_at < granted_at or ended_at < started_at or ended_at < renewed_at"
    assert bench.rows(f"select id from runs where {order}") == []


def test_the_day_of_a_unit_is_that_of_its_event(open_clocked: Callable[..., Bench], clock: DatabaseClock) -> None:
    """Over midnight and back again: each day has its own cap, and a day that comes back goes on where it was."""
    bench = open_clocked(
        engine={"l": noop(), "p": noop("paid")},
        engines={"mode": "hybrid", "overflow_after_seconds": 0, "paid_daily_cap": 2, "slots": {"l": 1, "p": 9}},
    )
    today = datetime(2026, 3, 10, tzinfo=UTC).date()
    tick(bench.installation)
    bench.enqueue(20)
    taken = "select utc_day, count(*)::int from ledger where utc_day is not null group by 1 order by 1"

    def granted_after(seconds: float) -> list[tuple[object, ...]]:
        clock.move(seconds)
        bench.staff()
        tick(bench.installation)
        run_pass(bench.installation, "main")
        return bench.rows(taken)

    assert granted_after(0) == [(today, 2)]
    assert granted_after(DAY) == [(today, 2), (today + timedelta(days=1), 2)]
    assert granted_after(-DAY) == [(today, 2), (today + timedelta(days=1), 2)]
    sound(bench)


def test_a_router_that_died_does_not_block_its_pool_when_the_clock_of_redis_was_set_back(bench_redis: Bench) -> None:
    """Its key would live for hours: whoever meets it removes it. So with the key of a routing message that was lost."""
    bench = bench_redis
    client = redis.Redis.from_url(bench.redis_url)
    keys = Keys(bench.installation.settings.services.redis_prefix)
    wakeups = bench.installation.wakeups
    assert wakeups.begin("main", "dead")
    assert not wakeups.begin("main", "next")
    client.pexpire(keys.route("main"), round(2 * HOUR * 1000))
    assert wakeups.begin("main", "next")
    assert not wakeups.finish("main", "next") or not wakeups.finish("main", "next")
    assert wakeups.wake("main")
    assert not wakeups.wake("main")
    client.pexpire(keys.wake("main"), round(2 * HOUR * 1000))
    assert wakeups.wake("main")
    client.close()


@pytest.fixture
def bench_redis(open_bench: Callable[..., Bench]) -> Bench:
    """An installation with one engine."""
    return open_bench(engine={"l": noop()})
