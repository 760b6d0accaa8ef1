"""Depth: what a long queue costs. Granting from a deep queue beside granting from a shallow one, and an idle router.

Half of each queue can run, as far as there are slots; the other half asks for a capability that only an engine
without a worker has. After each timed pass its runs are ended and as many jobs enqueued, outside the timing, so both
queues keep their depth. Statements are counted by the server itself (`pg_stat_statements`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from vibey.bench.figures import Bar, Figure, Scale, ratios, say
from vibey.bench.laboratory import number
from vibey.domain.effort import Effort
from vibey.domain.errors import VibeyError
from vibey.domain.outcome import Success
from vibey.domain.requirement import Requirement
from vibey.domain.settlement import Attempted, settle
from vibey.services import enqueue, route, tick
from vibey.services.interpreter import calmed_collector
from vibey.services.settle import end_row
from vibey.store import runs
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.bench.laboratory import Laboratory, Site
    from vibey.store.runs import Granted

SLOTS = 250
SHALLOW = 1_000
DEPTHS = (10_000, 100_000, 1_000_000)
PASSES = 4
TICKS = 5
CHUNK = 10_000
UNSTAFFED = """
[engine.away]
kind = "noop"
tier = "local"
capabilities = ["elsewhere"]
"""
VACUUM = "vacuum analyze"
COUNTED = Statement(
    "bench-counted",
    "statements the server has seen in this database, begin and commit included",
    """select coalesce(sum(calls), 0) from pg_stat_statements s join pg_database d on d.oid = s.dbid
       where d.datname = current_database() and query not like '%%pg_stat_statements%%'""",
)


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Runs granted a second by depth, and statements an idle router sends in one tick."""
    depths = (10_000,) if scale.quick else DEPTHS
    found: list[Figure] = []
    laboratory.count_statements()
    slots = {"noop": SLOTS}
    with laboratory.site("shallow", slots, UNSTAFFED) as shallow, laboratory.site("deep", slots, UNSTAFFED) as deep:
        _fill(shallow, SHALLOW)
        reached = 0
        for depth in depths:
            _fill(deep, depth - reached)
            reached = depth
            for site in (shallow, deep):
                laboratory.sql(site.database, VACUUM)
                granting(site)
            ours, beside = scale.in_turn(lambda: granting(deep), lambda: granting(shallow))
            found += _at(depth, ours, beside, is_last=depth == depths[-1])
        idle = _idle(deep, scale.rounds)
    every = deep.installation.timing.tick_ms / 1000
    words = f"idle with {reached:,} waiting"
    return [
        *found,
        Figure("depth", words, "statements/s", tuple(each / every for each in idle), Bar(5, ceiling=True)),
    ]


def _at(depth: int, ours: tuple[float, ...], beside: tuple[float, ...], *, is_last: bool) -> list[Figure]:
    bar = Bar(0.9) if is_last else None
    return [
        Figure("depth", f"granting at {depth:,} queued", "runs/s", ours),
        Figure("depth", f"granting at {SHALLOW:,} queued, beside", "runs/s", beside),
        Figure("depth", f"{depth:,} over {SHALLOW:,}", "x", ratios(ours, beside), bar),
    ]


def _fill(site: Site, depth: int) -> None:
    half = depth // 2
    for start in range(0, half, CHUNK):
        count = min(CHUNK, half - start)
        enqueue.place(site.installation, [enqueue.Order()] * count)
        enqueue.place(site.installation, [enqueue.Order(capabilities=("elsewhere",))] * count)
    say(f"  {depth:,} jobs queued")


def granting(site: Site, orders: Sequence[enqueue.Order] = (enqueue.Order(),) * SLOTS) -> float:
    """Runs granted a second over a few passes that each fill every slot; these orders then take the jobs' place."""
    took = 0.0
    for _ in range(PASSES):
        site.staff("noop")
        with calmed_collector():
            began = perf_counter()
            granted = _pass(site)
            took += perf_counter() - began
        _end(site, granted)
        enqueue.place(site.installation, orders)
    return PASSES * SLOTS / took


def _pass(site: Site) -> tuple[Granted, ...]:
    passed = route.run_pass(site.installation, "main")
    if passed is None or len(passed.granted) != SLOTS:
        raise VibeyError(f"a pass granted {0 if passed is None else len(passed.granted)} of {SLOTS} free slots")
    return passed.granted


def _end(site: Site, granted: Sequence[Granted]) -> None:
    key = Requirement("main", "default", Effort.LOW).key
    rows = []
    for run in granted:
        job = Attempted(run.job_id, run.engine, run.attempt, 7, Effort.LOW)
        rows.append(end_row((run.run_id, run.token), settle(job, Success(), backoff_ms=0), key, Success()))
    site.installation.database.run(lambda connection: runs.end(connection, rows))


def _idle(site: Site, rounds: int) -> tuple[float, ...]:
    """Statements of one tick when every slot is taken, a sample for each round."""
    site.staff("noop")
    _pass(site)
    tick.tick(site.installation)
    found = []
    for _ in range(rounds):
        before = number(site.installation, COUNTED)
        for _ in range(TICKS):
            tick.tick(site.installation)
        found.append((number(site.installation, COUNTED) - before) / TICKS)
    return tuple(found)
