"""End to end: jobs that do nothing, from enqueueing the first to the end of the last, beside plain Celery's.

Both sides have the same number of pool processes on the same broker, and on both the time includes producing.
Vibey's jobs are each enqueued, decided, granted, sent, started by token, settled and recorded; the peer's are sent
and received. Vibey's control worker and beat run beside its build worker, and its task events are on. Procrastinate,
where it is there, runs its jobs on the same Postgres, as many at once, and keeps them, as Vibey does.

Beside the bare peer there is one whose tasks commit their start and their end, a row each: what any router must write
whose jobs are neither lost nor run twice, without deciding anything.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from vibey.bench.figures import Bar, Figure, Scale, ratios
from vibey.bench.laboratory import Laboratory, Site, number, until
from vibey.bench.peer import Peer
from vibey.bench.procrastinating import Procrastinate
from vibey.services import enqueue
from vibey.services.programs import CONTROL_PROCESSES
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from vibey.bench.processes import Processes

# As many as a busy fleet has: a routing pass then grants a batch, and the peer has as many processes.
SLOTS = 48
NOTED = "create table noted (task text primary key, started_at timestamptz, ended_at timestamptz)"
NOW = Statement("bench-now", "the database's clock", "select extract(epoch from clock_timestamp())")
OPEN = Statement("bench-open", "whether any job has not ended", "select count(*) from jobs where ended_at is null")
LAST_END = Statement("bench-last-end", "when the last job ended", "select extract(epoch from max(ended_at)) from jobs")


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Jobs a second on either side."""
    count = scale.pick(5_000, 100)
    slots = scale.pick(SLOTS, 2)
    with ExitStack() as stack:
        site = stack.enter_context(laboratory.site("endtoend", {"noop": slots}))
        fleet = stack.enter_context(laboratory.fleet(site))
        database = stack.enter_context(laboratory.database("noted"))
        laboratory.sql(database, NOTED)
        peer = stack.enter_context(Peer.running(laboratory, slots + 1 + CONTROL_PROCESSES, database))
        sides = [lambda: finish(site, fleet, count), lambda: peer.jobs(count), lambda: peer.noted(count)]
        if laboratory.peers.has("procrastinate"):
            other = stack.enter_context(Procrastinate.running(laboratory, slots))
            sides.append(lambda: other.jobs(count))
        finish(site, fleet, 5 * slots)
        ours, theirs, noted, *others = scale.in_turn(*sides)
    return [
        Figure("endtoend", "Vibey, no-op jobs", "jobs/s", ours),
        Figure("endtoend", "plain Celery, no-op tasks", "tasks/s", theirs),
        Figure("endtoend", "Vibey over plain Celery", "x", ratios(ours, theirs), Bar(0.6)),
        Figure("endtoend", "plain Celery, start and end committed", "tasks/s", noted),
        Figure("endtoend", "Vibey over Celery that commits both", "x", ratios(ours, noted)),
        *(Figure("endtoend", "Procrastinate, no-op jobs", "jobs/s", each) for each in others),
        *(Figure("endtoend", "Vibey over Procrastinate", "x", ratios(ours, each), Bar(2)) for each in others),
    ]


def finish(site: Site, fleet: Processes, count: int) -> float:
    """Enqueue `count` jobs in one batch and wait for the end of the last; jobs a second by the database's clock."""
    began = number(site.installation, NOW)
    enqueue.place(site.installation, [enqueue.Order()] * count)
    until(lambda: number(site.installation, OPEN) == 0, fleet, f"{count} jobs did not end")
    return count / (number(site.installation, LAST_END) - began)
