"""Work: what the programs themselves wrote, against the rows of their runs (I1, I2, I11)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.support.checker.facts import most_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.checker.facts import Facts, Work

SECOND = 1_000_000_000
# How long faults may keep the tick from judging leases. By design none is judged until a lease's length has passed
# since the last start of the database and the last gap between ticks; one outage after the other puts that off.
DISTURBED_SECONDS = 180


def slots(facts: Facts) -> Iterator[str]:
    """I1: an engine's runs at once, by their rows and by their processes, against its slots."""
    spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for run in facts.spans.values():
        spans["runs", run.engine].append((run.granted, run.ended))
    for each in facts.works:
        spans["process trees", each.engine].append((each.first, each.last))
    for (what, engine), intervals in spans.items():
        most = most_at_once(intervals)
        if most > facts.slots[engine]:
            yield f"{most} {what} at once on {engine}, which has {facts.slots[engine]} slots"


def overlaps(facts: Facts) -> Iterator[str]:
    """I2: two process trees of one job at work at the same time; or a program started twice for one run."""
    by_job: dict[int, list[Work]] = defaultdict(list)
    for each in sorted(facts.works, key=lambda work: work.first):
        by_job[each.job].append(each)
    for job, trees in by_job.items():
        for number, later in enumerate(trees):
            for earlier in trees[:number]:
                if earlier.last >= later.first:
                    yield f"job {job}: run {earlier.run} was still at work when run {later.run} began"
    starts: dict[str, int] = defaultdict(int)
    for line in facts.labour_log.read_text(encoding="utf-8").splitlines():
        if line.startswith("start "):
            starts[line.split()[1]] += 1
    for run, count in starts.items():
        if count > 1:
            yield f"the program of run {run} was started {count} times"


def outlived(facts: Facts) -> Iterator[str]:
    """I2: work outside the time its run was started and not ended."""
    for each in facts.works:
        run = facts.spans[each.run]
        if run.started is None or each.first < run.started or each.last > run.ended:
            late = (each.last - run.ended) / 1e9
            yield f"run {each.run} ({run.state}) was at work outside its time, {late:+.3f} s after its end"
        if run.state == "succeeded" and not each.ended:
            yield f"run {each.run} succeeded, but its program never came to its end"


def leases(facts: Facts) -> Iterator[str]:
    """I11: a lease longer than its length, or a run left to a lease long over, or long after its program was heard of.

    A program dies with its holder; a holder that was stopped may renew once more when it wakes.
    """
    if facts.lease_seconds is None:
        return
    length = round(facts.lease_seconds * SECOND)
    heard = {each.run: each.last for each in facts.works}
    for run in facts.spans.values():
        if run.lease_until > run.renewed + length + SECOND:
            yield f"the lease of run {run.run} is {(run.lease_until - run.renewed) / SECOND:.1f} s long"
        if run.state in {"lost", "withdrawn"} and run.ended > run.lease_until + DISTURBED_SECONDS * SECOND:
            yield f"run {run.run} was {run.state} {(run.ended - run.lease_until) / SECOND:.1f} s after its lease"
        sign = heard.get(run.run)
        if run.state == "lost" and sign is not None and run.ended > sign + length + DISTURBED_SECONDS * SECOND:
            yield f"run {run.run} was lost {(run.ended - sign) / SECOND:.1f} s after its program was heard of last"
        if facts.at_rest and not run.over and run.ended > run.lease_until + 2 * length:
            yield f"run {run.run} ({run.state}) holds its slot {(run.ended - run.lease_until) / SECOND:.1f} s too long"
