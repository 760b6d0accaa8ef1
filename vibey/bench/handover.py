"""Hand-over: from the end of one run to the start of the next on the slot it freed, by the database's clock.

One engine, one slot, a queue of jobs that do nothing, real workers. Beside it, what Celery needs from one task's
sending the next to that one's start, and what one question to Redis takes.
"""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import TYPE_CHECKING

from vibey.bench.endtoend import finish
from vibey.bench.figures import Bar, Figure, Scale, percentiles, ratios, say
from vibey.bench.laboratory import Laboratory, Site, rows
from vibey.bench.peer import Peer
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from vibey.bench.processes import Processes

PINGS = 200
LAST_RUN = Statement("bench-last-run", "the newest run", "select coalesce(max(id), 0) as id from runs")
GAPS = Statement(
    "bench-gaps",
    "milliseconds from each run's end to the next one's start",
    """select 1000 * extract(epoch from started_at - previous) as ms
       from (select started_at, lag(ended_at) over (order by id) as previous from runs where id > %(after)s) s
       where previous is not null""",
)


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Percentiles of the gaps of each round, and what they are compared with."""
    count = scale.pick(300, 50)
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    pings: list[float] = []
    with (
        laboratory.site("handover", {"noop": 1}) as site,
        laboratory.fleet(site) as fleet,
        Peer.running(laboratory, 2) as peer,
    ):
        finish(site, fleet, 20)
        for turn in range(scale.rounds):
            ours.append(_gaps(site, fleet, count))
            theirs.append(peer.relay(count))
            pings.append(ping(site))
            say(f"  round {turn + 1} of {scale.rounds}")
    return _figures(ours, theirs, pings)


def _figures(ours: list[list[float]], theirs: list[list[float]], pings: list[float]) -> list[Figure]:
    medians = [tuple(statistics.median(each) for each in side) for side in (ours, theirs)]
    bars = {50: Bar(6, ceiling=True), 95: Bar(15, ceiling=True), 99: Bar(30, ceiling=True)}
    return [
        *(
            Figure("handover", f"end to next start, p{part}", "ms", percentiles(ours, part), bar)
            for part, bar in bars.items()
        ),
        Figure("handover", "Celery, send to start, p50", "ms", medians[1]),
        Figure("handover", "a question to Redis", "ms", tuple(pings)),
        Figure("handover", "hand-over over Celery's send to start", "x", ratios(*medians)),
    ]


def _gaps(site: Site, fleet: Processes, count: int) -> list[float]:
    after = rows(site.installation, LAST_RUN)[0].id
    finish(site, fleet, count)
    return [float(row.ms) for row in rows(site.installation, GAPS, after=after)]


def ping(site: Site) -> float:
    """Median milliseconds of a round trip to Redis."""
    took = []
    for _ in range(PINGS):
        began = perf_counter()
        site.installation.wakeups.ping()
        took.append(1000 * (perf_counter() - began))
    return statistics.median(took)
