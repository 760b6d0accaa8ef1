"""Pruning beside others at work: routers, another pruner, readers, and whoever holds or places a job."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg2
import pytest

from tests.support.ageing import forgetting, grow_old, sound, work
from tests.support.databases import plain
from vibey.domain.errors import Removed
from vibey.domain.outcome import Failure, FailureClass
from vibey.services import control, prune
from vibey.services.audit import audit
from vibey.services.enqueue import Order, place
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.store import jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.installation import Bench


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """A fleet whose jobs are kept ten days."""
    return forgetting(open_bench)


def test_pruning_beside_work_and_audits(bench: Bench) -> None:
    """While threads route and settle, two pruners and an audit beside them: every instant of it is sound."""
    bench.enqueue(80)
    work(bench, 7, leave=10)
    grow_old(bench)
    bench.enqueue(60)
    aged = bench.value("select count(*) from jobs where ended_at is not null")
    prune.PAGE_JOBS, pages = 7, prune.PAGE_JOBS
    prune.PAGE_PASSES, passes = 3, prune.PAGE_PASSES
    ended = threading.Event()

    def pruner() -> int:
        removed = 0
        while not ended.is_set():
            removed += prune.prune(bench.installation).jobs
        return removed

    try:
        with ThreadPoolExecutor(5) as threads:
            working = [threads.submit(work, bench, seed) for seed in (8, 9)]
            pruning = [threads.submit(pruner) for _ in range(2)]
            audits = []
            while not all(each.done() for each in working):
                audits.append(audit(bench.installation))
            ended.set()
            assert [found.violations for found in audits if not found.ok] == []
            assert sum(each.result() for each in pruning) + prune.prune(bench.installation).jobs >= aged
            for each in working:
                each.result()
    finally:
        prune.PAGE_JOBS, prune.PAGE_PASSES = pages, passes
    sound(bench)


def test_a_pruner_leaves_the_work_to_the_other(bench: Bench) -> None:
    """One that finds the horizon held removes nothing and says that it is not done."""
    bench.enqueue(2)
    work(bench, 12)
    grow_old(bench)
    with closing(psycopg2.connect(plain(bench.url))) as other:
        with other.cursor() as cursor:
            cursor.execute("select 1 from horizon for no key update")
        found = prune.prune(bench.installation)
        # Closing alone would let the server find out by itself, some time later.
        other.rollback()
    assert (found.jobs, found.done) == (0, False)
    assert prune.prune(bench.installation).jobs == 2


def test_a_reader_of_one_instant_still_sees_what_is_removed(bench: Bench) -> None:
    """A foreign transaction that began before sees the whole record to its end, and keeps nobody from pruning."""
    bench.enqueue(4)
    work(bench, 13)
    grow_old(bench)
    with closing(psycopg2.connect(plain(bench.url))) as reader:
        reader.set_session(isolation_level="REPEATABLE READ", readonly=True)
        with reader.cursor() as cursor:
            cursor.execute("select count(*) from jobs")
            assert prune.prune(bench.installation).jobs == 4
            cursor.execute("select (select count(*) from jobs), (select count(distinct job_id) from decisions)")
            assert cursor.fetchone() == (4, 4)
    sound(bench)


def test_a_job_somebody_holds_is_left_for_the_next_time(bench: Bench) -> None:
    """A retry that came first keeps its job: the pruner passes it over, and afterwards finds it queued."""
    (job, other) = bench.enqueue(2, max_attempts=1)
    route(bench.installation, "main")
    for run, token, _ in bench.live():
        started = _start(bench.installation, run, token)
        assert started is not None
        settle(bench.installation, Held.of(started, token), Failure(FailureClass.WORK, "exit 1"))
    grow_old(bench)
    with bench.installation.database.begin() as connection:
        jobs.LOCK.first(connection, id=job)
        assert prune.prune(bench.installation).jobs == 1
    control.retry(bench.installation, job)
    assert prune.prune(bench.installation).jobs == 0
    assert bench.rows("select id, state from jobs") == [(job, "queued")]
    with pytest.raises(Removed):
        control.retry(bench.installation, other)
    work(bench, 14)
    sound(bench)


def test_a_key_whose_job_is_removed_makes_a_new_one(bench: Bench) -> None:
    """A repeated idempotency key finds the first job for as long as that is kept, and also one just being removed."""
    first = place(bench.installation, [Order(idempotency_key="k")])[0]
    work(bench, 15)
    grow_old(bench)
    assert not place(bench.installation, [Order(idempotency_key="k")])[0].created
    with ThreadPoolExecutor(8) as threads:
        placing = [
            threads.submit(place, bench.installation, [Order(idempotency_key="k"), Order(), Order(idempotency_key="k")])
            for _ in range(7)
        ]
        threads.submit(prune.prune, bench.installation).result()
        placed = [each.result() for each in placing]
    again = place(bench.installation, [Order(idempotency_key="k")])[0]
    assert again.job_id != first.job_id
    assert all(each[0].job_id == each[2].job_id for each in placed)
    assert {each[0].job_id for each in placed} <= {first.job_id, again.job_id}
    sound(bench)
