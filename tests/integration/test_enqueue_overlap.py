"""Many producers enqueue the same idempotency keys, each in an order of its own: no deadlock, one job a key."""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from tests.support import warm
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.services.enqueue import Order, Placed, place, place_in
from vibey.services.installation import Installation
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

PRODUCERS = 30
KEYS = 1_000
BATCH = 400
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"
"""The server's own count; a transaction that was tried again after a deadlock has been counted, too."""


def produce(told: Connection, tables: dict[str, object], folder: Path, seed: int, keys: int) -> None:
    """Enqueue every key, in overlapping batches of any order; report by key how often it was answered as created."""
    installation = Installation.open(settings_of(Source(None, folder, tables), {}))
    chance = random.Random(seed)
    shuffled = chance.sample(range(keys), keys)
    found: Counter[int] = Counter()
    # Each batch begins with the second half of the one before it.
    for start in range(0, keys, BATCH // 2):
        part = shuffled[start : start + BATCH]
        placed = place(installation, [Order(idempotency_key=f"k{key}") for key in part])
        found.update(key for key, each in zip(part, placed, strict=True) if each.created)
    installation.close()
    told.send(found)
    told.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_producers_of_the_same_keys(open_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Each of thirty processes enqueues every key; the server counts no deadlock, and each key is created once."""
    bench = open_bench(engine={"a": noop()})
    before = bench.value(DEADLOCKS)
    ends = []
    producers = []
    for seed in range(PRODUCERS):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        producers.append(warm.context.Process(target=produce, args=(theirs, bench.tables, tmp_path, seed, KEYS)))
        producers[-1].start()
        theirs.close()
        ends.append(ours)
    created: Counter[int] = Counter()
    for end in ends:
        created.update(end.recv())
    for producer in producers:
        producer.join()
    assert created == dict.fromkeys(range(KEYS), 1)
    assert bench.rows("select count(*), count(distinct idempotency_key) from jobs") == [(KEYS, KEYS)]
    assert bench.value(DEADLOCKS) == before


def test_a_key_whose_job_is_removed_meanwhile_is_not_inserted_behind_greater_ones(
    open_bench: Callable[..., Bench],
) -> None:
    """The batch gives back what it holds before it inserts that key, so one that holds the key does not wait for it."""
    bench = open_bench(engine={"a": noop()})
    place(bench.installation, [Order(idempotency_key="b")])
    removed, other_has_b = threading.Event(), threading.Event()
    before = bench.value(DEADLOCKS)

    def remove_first(_: object, __: object, text: str, *_more: object) -> None:
        """After the insert has met the old job, have it removed, and its key taken by another batch."""
        if "job-insert" in text and not removed.is_set():
            query(bench.url, "delete from jobs where idempotency_key = 'b'")
            removed.set()
            assert other_has_b.wait(60)

    def enqueue_others() -> list[Placed]:
        assert removed.wait(60)
        with bench.installation.database.begin() as connection:
            place_in(connection, bench.installation, [Order(idempotency_key="a"), Order(idempotency_key="b")])
            other_has_b.set()
            return place_in(connection, bench.installation, [Order(idempotency_key="z")])

    with ThreadPoolExecutor(1) as other:
        others = other.submit(enqueue_others)
        with bench.installation.database.begin() as connection:
            event.listen(connection, "after_cursor_execute", remove_first)
            placed = place_in(connection, bench.installation, [Order(idempotency_key=key) for key in ("z", "b")])
        assert [each.created for each in others.result()] == [True]
    assert [each.created for each in placed] == [False, False]
    assert bench.rows("select idempotency_key from jobs order by id") == [("a",), ("b",), ("z",)]
    assert bench.value(DEADLOCKS) == before
