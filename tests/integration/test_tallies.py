"""Tallies: every pass and every hand-over is counted once, whoever folds and however often, and nothing else is."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.services.granting import PART
from vibey.services.metrics import snapshot
from vibey.services.route import route
from vibey.services.run import _start, carry_out
from vibey.services.settle import Held, settle
from vibey.store import tallies
from vibey.store.tallies import BOUNDS, DECISION, HANDOVER, LAG_MS, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _folded(bench: Bench, lag_ms: int = 0) -> dict[str, Tally]:
    bench.installation.database.run(lambda connection: tallies.fold(connection, lag_ms))
    return bench.installation.database.run(tallies.read)


def _tally(micros: Iterable[int]) -> Tally:
    """What these durations come to, by sorting instead of SQL."""
    found = sorted(micros)
    counts = tuple(bisect_left(found, bound + 1) for bound in BOUNDS)
    return Tally(counts, len(found), sum(found))


def _handovers(bench: Bench) -> list[int]:
    """The ledger told from its first line: which starts followed a successful end on a full engine, and how long."""
    slots = dict(bench.rows("select name, slots from engines"))
    due = {run: (at, why) for run, at, why in bench.rows("select id, due_at, why from runs")}
    live: dict[str, int] = defaultdict(int)
    freed: dict[str, tuple[str, object] | None] = defaultdict(lambda: None)
    follows: dict[int, object] = {}
    found = []
    lines = bench.rows("select kind, engine, run_id, at from ledger where run_id is not null order by id")
    for kind, engine, run, at in lines:
        if kind == "RunGranted":
            live[engine] += 1
            last = freed[engine]
            if live[engine] == slots[engine] and last is not None and last[0] == "JobSucceeded":
                began, why = due[run]
                if began <= last[1] and why != "overflow":
                    follows[run] = last[1]
        elif kind == "RunStarted" and run in follows:
            passed = at - follows[run]
            found.append(round(passed.total_seconds() * 1_000_000))
        elif kind.startswith("Job"):
            if live[engine] == slots[engine]:
                freed[engine] = (kind, at)
            live[engine] -= 1
    return found


def _work_off(bench: Bench, chance: random.Random) -> None:
    """Run what is granted, some of it failing, in any order, routing now and then."""
    while live := bench.live():
        run, token, _ = chance.choice(live)
        started = _start(bench.installation, run, token)
        if started is None:
            continue
        failed = chance.random() < 0.2
        outcome = Failure(FailureClass.WORK, "no") if failed else Success(None)
        settle(bench.installation, Held.of(started, token), outcome)
        if chance.random() < 0.7 or len(live) == 1:
            query(bench.url, "update jobs set not_before = null where not_before is not null")
            route(bench.installation, "main")


@pytest.mark.parametrize("slots", [1, 3])
def test_handovers_are_those_the_ledger_tells(open_bench: Callable[..., Bench], slots: int) -> None:
    """Folded in pieces, they equal what one reading of the whole ledger finds; so do the passes."""
    chance = random.Random(slots)
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": slots, "b": 2}, "max_attempts": 2})
    _folded(bench)
    for _ in range(4):
        bench.enqueue(chance.randrange(5, 12))
        route(bench.installation, "main")
        _work_off(bench, chance)
        _folded(bench)
    found = _folded(bench)
    expected = _handovers(bench)
    assert len(expected) >= 8
    assert found[HANDOVER] == _tally(expected)
    passes = bench.rows("select round(extract(epoch from at - began_at) * 1000000)::bigint from passes")
    assert found[DECISION] == _tally(took for (took,) in passes)
    assert _folded(bench) == found


def test_a_pass_kept_in_parts_is_one(open_bench: Callable[..., Bench]) -> None:
    """It lasted until its last part was written."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": PART + 1}})
    _folded(bench)
    bench.enqueue(PART + 1)
    assert route(bench.installation, "main") == PART + 1
    assert bench.value("select count(*) from passes") == 2
    took = bench.value("select round(extract(epoch from max(at) - min(began_at)) * 1000000)::bigint from passes")
    assert _folded(bench)[DECISION] == _tally([took])


def test_idle_slots_and_overflows_are_no_handovers(open_bench: Callable[..., Bench]) -> None:
    """A job that came later than the slot was freed waited for nothing; one that was held waited for something else."""
    rules = {"mode": "hybrid", "overflow_after_seconds": 600, "slots": {"l": 1, "p": 1}}
    bench = open_bench(engine={"l": noop(), "p": noop("paid", capabilities=["web"])}, engines=rules)
    _folded(bench)
    bench.enqueue(1, capabilities=["web"])
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    bench.enqueue(2)
    route(bench.installation, "main")
    carry_out(bench.installation, run, token)
    query(bench.url, "update jobs set held_at = held_at - interval '11 minutes' where held_at is not null")
    route(bench.installation, "main")
    assert bench.value("select count(*) from runs where why = 'overflow'") == 1
    for run, token, _ in bench.live():
        carry_out(bench.installation, run, token)
    bench.enqueue(1)
    route(bench.installation, "main")
    for run, token, _ in bench.live():
        carry_out(bench.installation, run, token)
    assert bench.value("select count(*) from runs where ended_at is not null") == 4
    assert _folded(bench)[HANDOVER].total == 0


def test_however_many_fold_each_row_counts_once(open_bench: Callable[..., Bench]) -> None:
    """Many at once, on connections of their own: one does the work, the others leave it."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 1}})
    _folded(bench)
    for _ in range(3):
        bench.enqueue(3)
        route(bench.installation, "main")
        _work_off(bench, random.Random(1))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: _folded(bench), range(24)))
    found = _folded(bench)
    assert found[DECISION].total == bench.value("select count(*) from passes")
    assert found[HANDOVER] == _tally(_handovers(bench))


def test_the_youngest_rows_are_left_for_later(open_bench: Callable[..., Bench]) -> None:
    """Their neighbours may not be committed yet; they are counted by a later folding."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 5}})
    _folded(bench)
    bench.enqueue(5)
    route(bench.installation, "main")
    assert _folded(bench, LAG_MS)[DECISION].total == 0
    query(bench.url, "update passes set at = at - interval '1 minute', began_at = began_at - interval '1 minute'")
    assert _folded(bench, LAG_MS)[DECISION].total == bench.value("select count(*) from passes")


def test_what_was_before_the_first_folding_is_left_out(open_bench: Callable[..., Bench]) -> None:
    """An installation of years is not read through; and a snapshot begins the tallies by itself."""
    bench = open_bench(engine={"a": noop()})
    bench.enqueue(3)
    route(bench.installation, "main")
    snapshot(bench.installation)
    assert {each.total for each in _folded(bench).values()} == {0}


def test_one_not_folded_for_long_leaves_out_what_is_old(
    open_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than a page of rows is looked at, and the cursor ends up at the last of them."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 1}})
    _folded(bench)
    bench.enqueue(12)
    route(bench.installation, "main")
    _work_off(bench, random.Random(3))
    monkeypatch.setattr(tallies, "PAGE", 4)
    assert _folded(bench)[DECISION].total == 4
    last = bench.value("select max(id) from passes")
    assert bench.value("select cursor from tallies where name = 'decision'") == last
