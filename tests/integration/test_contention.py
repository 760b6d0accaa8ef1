"""Everything against everything: route, settle, cancel, retry, reap, tick, and enqueue in callers' transactions."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.domain.errors import Refused
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control
from vibey.services.enqueue import Order, place_in
from vibey.services.route import grant_freed, run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import tick

if TYPE_CHECKING:
    from collections.abc import Callable

FEW = 200
MANY = int(os.environ.get("VIBEY_CONTENTION_RUNS", "1000"))
PATIENCE_SECONDS = 240 + MANY / 5
SLOTS = {"a": 4, "b": 2, "p": 3}
ENDED_BY = {
    "JobEnqueued": "queued",
    "RunGranted": "granted",
    "RunStarted": "running",
    "JobRequeued": "queued",
    "JobRetried": "queued",
    "JobSucceeded": "succeeded",
    "JobFailed": "failed",
    "JobCancelled": "cancelled",
}
OUTCOMES = (
    Success(),
    Success({"n": 1}),
    Failure(FailureClass.WORK, "work"),
    Failure(FailureClass.ENGINE, "engine"),
    Failure(FailureClass.HANDOFF, "handoff"),
    Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY),
    Failure(FailureClass.CAPACITY, "window", CapacityKind.WINDOW, resets_in_ms=1),
)


class Crowd:
    """Threads that each repeat one kind of work until enough was done; the first error of any of them ends it."""

    def __init__(self, bench: Bench) -> None:
        """Give every kind of work a number for its own chance."""
        self.bench = bench
        self.installation = bench.installation
        self.ending = threading.Event()
        self.errors: list[BaseException] = []
        self.done: Counter[str] = Counter()

    def run(self, runs: int) -> None:
        """Let all of them loose until so many runs were settled, or something went wrong."""
        works = [self.route, self.route, self.work, self.work, self.work, self.cancel, self.enqueue, self.enqueue]
        works += [self.tick, self.expire, self.meddle]
        threads = [threading.Thread(target=self._repeat, args=(work, seed)) for seed, work in enumerate(works)]
        for thread in threads:
            thread.start()
        try:
            until(
                lambda: self.ending.is_set() or self.done["settled"] >= runs,
                seconds=PATIENCE_SECONDS,
                what=f"{runs} runs",
            )
        finally:
            self.ending.set()
            for thread in threads:
                thread.join(60)

    def _repeat(self, work: Callable[[random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        while not self.ending.is_set():
            try:
                work(chance)
                self.done[work.__name__] += 1
            except BaseException as error:  # noqa: BLE001  whatever it was, the test reports it
                self.errors.append(error)
                self.ending.set()

    def route(self, chance: random.Random) -> None:
        """Route with or without waiting for locks; the Redis lock is not asked."""
        run_pass(self.installation, "main", wait=chance.random() < 0.5)
        self.ending.wait(0.01)

    def work(self, chance: random.Random) -> None:
        """Be a worker: start a granted run, settle it in some way, hand the slot over."""
        granted = self.bench.rows("select id, token from runs where state = 'granted' order by random() limit 1")
        if not granted:
            self.ending.wait(0.01)
            return
        run, token = granted[0]
        started = _start(self.installation, run, token)
        if started is None:
            return
        held = Held.of(started, token)
        self.ending.wait(chance.random() * 0.02)
        settle(self.installation, held, chance.choice(OUTCOMES))
        self.done["settled"] += 1
        grant_freed(self.installation, "main")

    def cancel(self, chance: random.Random) -> None:
        """Cancel some open job, or retry some ended one."""
        state = chance.choice(("queued", "granted", "running", "failed", "cancelled"))
        found = self.bench.rows(f"select id from jobs where state = '{state}' order by random() limit 1")
        if found:
            try:
                (control.retry if state in {"failed", "cancelled"} else control.cancel)(self.installation, found[0][0])
            except Refused:
                self.done["refused"] += 1
        self.ending.wait(0.02)

    def enqueue(self, chance: random.Random) -> None:
        """Enqueue in a transaction of the caller's, kept open for a moment, sometimes rolled back."""
        order = Order(
            priority=chance.randint(0, 3),
            session=chance.choice((None, "s", "t")),
            idempotency_key=chance.choice((None, f"k{chance.randint(0, 50)}")),
            effort=chance.choice(("low", "high")),
            max_attempts=chance.randint(1, 4),
        )
        with suppress(InterruptedError), self.installation.database.begin() as connection:
            place_in(connection, self.installation, [order] * chance.randint(1, 5))
            self.ending.wait(chance.random() * 0.05)
            if chance.random() < 0.3:
                raise InterruptedError
        self.ending.wait(0.05)

    def tick(self, _: random.Random) -> None:
        """The beat's tick."""
        tick(self.installation)
        self.bench.staff()
        self.ending.wait(0.1)

    def expire(self, _: random.Random) -> None:
        """Let some leases pass, and no backoff, circuit or busy engine last."""
        self.bench.rows(
            "update runs set lease_clock_ms = -1000000 where id = "
            "(select id from runs where ended_at is null order by random() limit 1 for no key update skip locked)"
        )
        for table, column in (("accounts", "open_reason"), ("engines", "busy_until")):
            self.bench.rows(
                f"with held as materialized (select name from {table} where {column} is not null order by name "
                f"for no key update) update {table} t set {column} = null from held where t.name = held.name"
            )
        self.ending.wait(0.05)

    def meddle(self, chance: random.Random) -> None:
        """Pause, resume and reset engines."""
        engine = chance.choice(tuple(SLOTS))
        if chance.random() < 0.3:
            control.reset_engine(self.installation, engine)
        else:
            control.pause_engine(self.installation, engine, paused=chance.random() < 0.3)
        self.ending.wait(0.1)


@pytest.mark.timeout(PATIENCE_SECONDS + 120)
@pytest.mark.parametrize("runs", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_everything_at_once_leaves_no_deadlock_and_no_lost_update(open_bench: Callable[..., Bench], runs: int) -> None:
    """After so many runs with all kinds of work in each other's way every table agrees with every other."""
    bench = open_bench(
        engine={"a": noop(weight=2), "b": noop(), "p": noop("paid")},
        engines={"slots": SLOTS, "lease_seconds": 3, "retry_backoff_seconds": 0},
    )
    crowd = Crowd(bench)
    watch = threading.Thread(target=_watch_slots, args=(crowd,))
    watch.start()
    crowd.run(runs)
    watch.join()
    assert crowd.errors == []
    assert bench.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    assert all(crowd.done[kind] > 0 for kind in ("route", "work", "cancel", "enqueue", "tick", "expire")), crowd.done
    _check(bench)


def _watch_slots(crowd: Crowd) -> None:
    """Look all the time whether any engine holds more live runs than slots, or a job two."""
    statement = (
        "select e.name, e.slots, count(*), count(distinct r.job_id) from runs r join engines e on e.name = r.engine "
        "where r.ended_at is null group by 1, 2 having count(*) > e.slots or count(*) <> count(distinct r.job_id)"
    )
    while not crowd.ending.wait(0.02):
        over = crowd.bench.rows(statement)
        if over:
            crowd.errors.append(AssertionError(f"slots exceeded: {over}"))
            crowd.ending.set()


def _check(bench: Bench) -> None:
    events: dict[int, list[str]] = {}
    for job, kind in bench.rows("select job_id, kind from ledger where job_id is not null order by id"):
        events.setdefault(job, []).append(kind)
    states = dict(bench.rows("select id, state from jobs"))
    assert set(events) == set(states)
    told = {job: [ENDED_BY[kind] for kind in kinds if kind in ENDED_BY][-1] for job, kinds in events.items()}
    assert told == states
    runs = Counter(job for (job,) in bench.rows("select job_id from runs"))
    assert runs == Counter({job: kinds.count("RunGranted") for job, kinds in events.items() if "RunGranted" in kinds})
    assert bench.rows("select pool, sum(credit) from credits group by pool having sum(credit) <> 0") == []
    undecided = "select id from runs r where not exists (select 1 from decisions d where d.run_id = r.id)"
    assert bench.rows(undecided) == []
    live = dict(bench.rows("select job_id, id from runs where ended_at is null"))
    assert live == dict(bench.rows("select id, run_id from jobs where run_id is not null"))
    counted = dict(bench.rows("select engine, count(*) from runs group by engine"))
    selected = dict(bench.rows("select name, selected_count from engines where selected_count > 0"))
    assert counted == selected
    over = "select id from jobs where attempt > max_attempts or (state = 'queued' and ended_at is not null)"
    assert bench.rows(over) == []
