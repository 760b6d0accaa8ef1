"""Limits: what the promises of hybrid dispatch cost. The same load with the limits on and off, one hot cap, held jobs.

*On against off* grants the same jobs on the same local slots in mode hybrid and in mode singleton. *One cap* has eight
threads overflow one job a transaction, each over a pool of its own, all against one project's cap, so that every
transaction waits for the same row; the runs are ended in the same loop. *Held* has every local slot taken, a paid
engine free and a long queue held, and counts the statements of a tick.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

from vibey.bench.depth import COUNTED, TICKS
from vibey.bench.figures import Bar, Figure, Scale, rate, ratios, say
from vibey.bench.laboratory import number
from vibey.domain.effort import Effort
from vibey.domain.errors import VibeyError
from vibey.domain.outcome import Success
from vibey.domain.requirement import Requirement
from vibey.domain.settlement import Attempted, settle
from vibey.services import enqueue, notes, route, tick
from vibey.services.interpreter import calmed_collector
from vibey.services.settle import end_row
from vibey.store import runs

if TYPE_CHECKING:
    from vibey.bench.laboratory import Laboratory, Site

THREADS = 8
PLENTY = 100_000
CAP = 1_000_000
HELD = (1_000, 10_000, 100_000)
PAID = """
[engine.{name}]
kind = "noop"
tier = "paid"
"""
POOL = """
[pool.pool{number}]
select = "ordered"
members = ["home{number}", "cloud{number}"]
"""


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Granting with the limits on and off, units of one cap a second, an idle router's statements over held jobs."""
    laboratory.count_statements()
    count = scale.pick(5_000, 500)
    on, off = scale.in_turn(
        lambda: _granting(laboratory, "hybrid", count), lambda: _granting(laboratory, "singleton", count)
    )
    (units,) = scale.in_turn(lambda: _one_cap(laboratory, scale.pick(40, 5)))
    depths = (2_000,) if scale.quick else HELD
    idle = [(depth, *_held(laboratory, depth, scale.rounds)) for depth in depths]
    return [
        Figure("limits", "granting in mode hybrid", "runs/s", on),
        Figure("limits", "granting in mode singleton", "runs/s", off),
        Figure("limits", "limits on over off", "x", ratios(on, off), Bar(0.85)),
        Figure("limits", f"one cap, {THREADS} routers, a unit a transaction", "units/s", units, Bar(200)),
        *(
            Figure("limits", f"idle with {depth:,} held", "statements/s", sent, Bar(5, ceiling=True))
            for depth, sent, _ in idle
        ),
        *(Figure("limits", f"a tick with {depth:,} held", "ms", took) for depth, _, took in idle),
    ]


def _policy(mode: str, threshold: int) -> dict[str, object]:
    return {"mode": mode, "overflow_after_seconds": threshold, "paid_daily_cap": CAP}


def _granting(laboratory: Laboratory, mode: str, count: int) -> float:
    slots = {f"e{each}": PLENTY for each in range(9)}
    with laboratory.site("limits", slots, PAID.format(name="cloud"), _policy(mode, 600)) as site:
        enqueue.place(site.installation, [enqueue.Order()] * count)
        site.staff()
        with calmed_collector():
            return rate(count, lambda: _all(site, count))


def _all(site: Site, count: int) -> None:
    granted = 0
    while granted < count:
        passed = route.run_pass(site.installation, "main")
        if passed is None or not passed.granted:
            raise VibeyError(f"the router granted {granted} of {count} jobs and then no more")
        granted += len(passed.granted)


def _one_cap(laboratory: Laboratory, each: int) -> float:
    names = range(THREADS)
    more = "".join(PAID.format(name=f"cloud{number}") + POOL.format(number=number) for number in names)
    slots = {f"home{number}": 1 for number in names}
    with laboratory.site("cap", slots, more, _policy("hybrid", 0)) as site:
        site.staff(*(f"cloud{number}" for number in names))
        for number in names:
            enqueue.place(site.installation, [enqueue.Order(pool=f"pool{number}")] * each)
        began = perf_counter()
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda number: _overflow(site, f"pool{number}", each), names))
        return THREADS * each / (perf_counter() - began)


def _overflow(site: Site, pool: str, count: int) -> None:
    key = Requirement(pool, "default", Effort.LOW).key
    taken = 0
    while taken < count:
        passed = route.run_pass(site.installation, pool)
        granted = passed.granted if passed else ()
        taken += len(granted)
        for run in granted:
            job = Attempted(run.job_id, run.engine, run.attempt, 7, Effort.LOW)
            ended = end_row((run.run_id, run.token), settle(job, Success(), backoff_ms=0), key, Success())
            _end(site, ended)


def _end(site: Site, ended: dict[str, Any]) -> None:
    site.installation.database.run(lambda connection: runs.end(connection, [ended]))


def _held(laboratory: Laboratory, depth: int, rounds: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Statements a second, and milliseconds of a tick, of an idle router over so many held jobs."""
    policy = _policy("hybrid", 86_400)
    with laboratory.site("held", {"home": 1}, PAID.format(name="cloud"), policy) as site:
        for start in range(0, depth, 10_000):
            enqueue.place(site.installation, [enqueue.Order()] * min(10_000, depth - start))
        site.staff()
        say(f"  holding {depth:,} jobs")
        route.run_pass(site.installation, "main")
        while not notes.note_rest(site.installation, "main"):
            site.staff()
        sent, took = [], []
        every = site.installation.timing.tick_ms / 1000
        for _ in range(rounds):
            before, began = number(site.installation, COUNTED), perf_counter()
            for _ in range(TICKS):
                tick.tick(site.installation)
            took.append(1000 * (perf_counter() - began) / TICKS)
            sent.append((number(site.installation, COUNTED) - before) / TICKS / every)
        return tuple(sent), tuple(took)
