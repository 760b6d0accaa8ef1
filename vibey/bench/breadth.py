"""Breadth: for how long a pass keeps engines locked where there are many engines and many groups of jobs.

Whoever else needs an engine's row waits for that long: another pool's router, a settling run, `vibey engine pause`. It
is measured as one of those would see it: beside the router a connection locks the row of one engine again and again,
and the longest that it waited counts. First all slots are filled, then every group's jobs are held, each project's jobs
being a group.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from vibey.bench.figures import Bar, Figure, Scale, say
from vibey.bench.laboratory import number, rows
from vibey.bench.projects import MAKE
from vibey.domain.errors import VibeyError
from vibey.services import enqueue, notes, route
from vibey.store.projects import DEFAULT_PROJECT
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.bench.laboratory import Laboratory, Site

PAID = '\n[engine.cloud]\nkind = "noop"\ntier = "paid"\n'
POLICY = {"mode": "hybrid", "overflow_after_seconds": 86_400, "paid_daily_cap": 1_000_000}
CHUNK = 5_000
PAUSE_SECONDS = 0.002
LIMIT = Bar(1, ceiling=True)
LOCKING = Statement(
    "bench-lock-engine", "lock one engine's row", "select 1 from engines where name = %(name)s for no key update"
)
UNHELD = Statement(
    "bench-unheld",
    "queued jobs that are not held, and groups without a reason",
    """select (select count(*) from jobs where state = 'queued' and held_at is null)
            + (select count(distinct requirement_key) from jobs where state = 'queued')
            - (select count(*) from group_states)""",
)


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Seconds that an engine's row was locked at a time, while slots are filled and while jobs are held."""
    engines, groups, jobs = scale.pick(1_000, 20), scale.pick(5_000, 600), scale.pick(20_000, 1_200)
    filling, holding, noting = [], [], []
    for turn in range(scale.rounds):
        with laboratory.site("breadth", {f"e{each}": 1 for each in range(engines)}, PAID, POLICY) as site:
            rows(site.installation, MAKE, count=groups, like=DEFAULT_PROJECT)
            enqueue.place(site.installation, [enqueue.Order()] * engines)
            with _watched(site) as longest:
                _fill(site, engines)
            filling.append(max(longest))
            for start in range(0, jobs, CHUNK):
                orders = [enqueue.Order(project=f"p{each % groups + 1}") for each in range(start, start + CHUNK)]
                enqueue.place(site.installation, orders[: jobs - start])
            laboratory.sql(site.database, "vacuum analyze")
            with _watched(site) as longest:
                noting.append(_hold(site))
            holding.append(max(longest))
        say(f"  round {turn + 1} of {scale.rounds}")
    fleet = f"{engines:,} engines"
    return [
        Figure("breadth", f"an engine locked at a time, {fleet} being filled", "s", tuple(filling), LIMIT),
        Figure("breadth", f"the same, jobs of {groups:,} groups being held", "s", tuple(holding), LIMIT),
        Figure("breadth", f"holding {jobs:,} jobs of {groups:,} groups", "s", tuple(noting)),
    ]


def _fill(site: Site, engines: int) -> None:
    granted = 0
    while granted < engines:
        site.staff()
        passed = route.run_pass(site.installation, "main")
        if passed is None or not passed.granted:
            raise VibeyError(f"the router granted {granted} of {engines} jobs and then no more")
        granted += len(passed.granted)


def _hold(site: Site) -> float:
    """Make passes until all is noted; the seconds it took."""
    began = perf_counter()
    while number(site.installation, UNHELD):
        site.staff()
        route.run_pass(site.installation, "main")
        notes.note_rest(site.installation, "main")
    return perf_counter() - began


@contextmanager
def _watched(site: Site) -> Iterator[list[float]]:
    """The seconds that an engine's row was waited for at a time, beside what is done meanwhile."""
    waits: list[float] = []
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(PAUSE_SECONDS):
            began = perf_counter()
            rows(site.installation, LOCKING, name="e0")
            waits.append(perf_counter() - began)

    watch = threading.Thread(target=wait)
    watch.start()
    try:
        yield waits
    finally:
        ended.set()
        watch.join()
