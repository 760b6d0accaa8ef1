"""Waiting: no eligible queued job beside a free slot of a local engine for longer than it takes to notice (I10).

Judged from instants alone: when each job's first attempt was due and when it was granted, and when each engine's slots
were all in use. Later attempts may avoid an engine, so only first ones are judged. An engine whose circuit was open is
no candidate. Under faults there is no router for a while, or no worker; so then the bound is what an outage may take.
From the calm on it is a tick, and the time in which a loaded machine gets to one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.checker.facts import Facts

SECOND = 1_000_000_000
CALM_SECONDS = 5.0
DISTURBED_SECONDS = 180.0
Interval = tuple[int, int]


def beside_free_slots(facts: Facts) -> Iterator[str]:
    """I10."""
    if facts.calm_ns is None:
        return
    free = {name: _free(facts, name) for (name,) in facts.rows("select name from engines where tier = 'local'")}
    for job, due, granted, excluded in _first_waits(facts):
        for engine in free.keys() - set(excluded):
            for calm, (begin, end) in _parts(due, granted, facts.calm_ns):
                bound = CALM_SECONDS if calm else DISTURBED_SECONDS
                longest = max((last - first for first, last in _within(free[engine], begin, end)), default=0)
                if longest > bound * SECOND:
                    yield f"job {job} stood {longest / SECOND:.1f} s beside a free slot of {engine}"


def _first_waits(facts: Facts) -> list[tuple[int, int, int, list[str]]]:
    """Of each job: when it was due, and when its first attempt was granted or it ended without one."""
    return facts.rows(
        f"""select j.id, (extract(epoch from j.created_at) * 1000000000)::bigint,
                  (extract(epoch from coalesce(least(min(r.granted_at), j.ended_at), pg_catalog.clock_timestamp()))
                    * 1000000000)::bigint, j.excluded
           from {facts.tables["jobs"]} j left join {facts.tables["runs"]} r on r.job_id = j.id
           where j.capabilities = '{{}}' group by j.id, j.created_at, j.ended_at, j.excluded"""
    )


def _parts(due: int, granted: int, calm: int) -> list[tuple[bool, Interval]]:
    parts = [(False, (due, min(granted, calm))), (True, (max(due, calm), granted))]
    return [(quiet, (begin, end)) for quiet, (begin, end) in parts if end > begin]


def _free(facts: Facts, engine: str) -> list[Interval]:
    """When an engine had a free slot and a closed circuit, as intervals in order."""
    steps: list[tuple[int, int]] = []
    for span in facts.spans.values():
        if span.engine == engine:
            steps += [(span.granted, 1), (span.ended, -1)]
    # An open circuit uses up more slots than there are.
    wall = 1_000_000
    openings: dict[str, bool] = defaultdict(bool)
    for at, account, is_open in facts.rows(
        f"""select (extract(epoch from l.at) * 1000000000)::bigint, l.data ->> 'account',
                   l.data ->> 'open' is not null from {facts.tables["ledger"]} l
            where l.kind = 'CircuitChanged'
              and l.data ->> 'account' = (select account from engines where name = '{engine}') order by l.id"""
    ):
        if openings[account] != is_open:
            openings[account] = is_open
            steps.append((at, wall if is_open else -wall))
    return _gaps(sorted(steps), facts.slots[engine])


def _gaps(steps: Sequence[tuple[int, int]], slots: int) -> list[Interval]:
    found, held, since = [], 0, 0
    for at, step in steps:
        was, held = held, held + step
        if was < slots <= held:
            found.append((since, at))
        elif held < slots <= was:
            since = at
    return [*found, (since, 1 << 62)] if held < slots else found


def _within(free: Sequence[Interval], begin: int, end: int) -> Iterator[Interval]:
    """The parts of these intervals that lie between two instants."""
    for first, last in free[max(0, bisect_right(free, (begin, 1 << 62)) - 1) :]:
        if first >= end:
            return
        if last > begin:
            yield max(first, begin), min(last, end)
