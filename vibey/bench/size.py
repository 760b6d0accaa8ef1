"""Size: bytes of the database a million jobs, from as many real ones as are run here: before, and once they are pruned.

Each job is enqueued, granted, started and succeeds by the statements that do it in service, with a small payload and
result; four threads do so without waiting for the disk. What is left after pruning is the ledger. Files are counted
after `vacuum full`, which gives back what removed rows have left; in service that room is used again instead.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from vibey.bench.figures import Figure, Scale, say
from vibey.bench.laboratory import number, rows
from vibey.domain.errors import VibeyError
from vibey.domain.outcome import Success
from vibey.services import enqueue, prune, route
from vibey.services.interpreter import calmed_collector
from vibey.services.settle import Held, settle
from vibey.store import runs
from vibey.store.horizon import SIZE
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from vibey.bench.laboratory import Laboratory, Site
    from vibey.store.runs import Granted

MILLION = 1_000_000
SLOTS = 250
THREADS = 4
CHUNK = 10_000
AGED_DAYS = 100
PACK = "vacuum full"
TABLE = Statement(
    "bench-table-size",
    "bytes on disk of a table with its indexes",
    "select pg_total_relation_size(%(name)s::regclass)",
)
AGE = Statement(
    "bench-age",
    "make every job, and every pass, many days older",
    """with aged as (update passes set at = at - make_interval(days => %(days)s), began_at = began_at
                       - make_interval(days => %(days)s) returning 1)
       update jobs set created_at = created_at - make_interval(days => %(days)s),
         ended_at = ended_at - make_interval(days => %(days)s) returning (select count(*) from aged)""",
)


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Gigabytes a million jobs of the database, of its ledger, and of what is left after pruning."""
    count = scale.pick(100_000, 250)
    with laboratory.site("size", {f"e{each}": SLOTS for each in range(4)}) as site:
        laboratory.sql(site.database, PACK)
        empty = number(site.installation, SIZE)
        laboratory.sql(site.database, f"alter database {site.database} set synchronous_commit = off")
        with calmed_collector(), ThreadPoolExecutor(THREADS) as threads:
            for start in range(0, count, CHUNK):
                _run(site, threads, min(CHUNK, count - start))
                say(f"  {start + min(CHUNK, count - start):,} of {count:,} jobs ended")
        lived = number(site.installation, SIZE)
        laboratory.sql(site.database, PACK)
        whole, ledger = number(site.installation, SIZE), number(site.installation, TABLE, name="ledger")
        rows(site.installation, AGE, days=AGED_DAYS)
        if prune.prune(site.installation).jobs != count:
            raise VibeyError("not every job was pruned")
        laboratory.sql(site.database, PACK)
        left = number(site.installation, SIZE)

    def figure(what: str, size: float) -> Figure:
        return Figure("size", what, "GB/million jobs", (size / count * MILLION / 1e9,))

    return [
        figure("the database, as it grew", lived - empty),
        figure("the database, packed", whole - empty),
        figure("of it the ledger", ledger),
        figure("the database, pruned and packed", left - empty),
        Figure("size", "pruned over packed", "x", ((left - empty) / (whole - empty),)),
    ]


def _run(site: Site, threads: ThreadPoolExecutor, count: int) -> None:
    orders = [enqueue.Order(payload={"number": n, "prompt": "make the failing test pass"}) for n in range(count)]
    enqueue.place(site.installation, orders)
    ended = 0
    while ended < count:
        site.staff()
        passed = route.run_pass(site.installation, "main")
        if passed is None or not passed.granted:
            raise VibeyError(f"the router granted {ended} of {count} jobs and then no more")
        list(threads.map(lambda run: _succeed(site, run), passed.granted))
        ended += len(passed.granted)


def _succeed(site: Site, run: Granted) -> None:
    who = {"holder": f"bench:{run.run_id}", "host": "bench", "pid": 1, "lease_ms": site.installation.timing.lease_ms}
    started = site.installation.database.statement(
        lambda connection: runs.START.first(connection, run=run.run_id, token=run.token, **who)
    )
    if started is None:
        raise VibeyError(f"run {run.run_id} could not be started")
    settle(site.installation, Held.of(started, run.token), Success({"branch": f"vibey/{run.job_id}"}))
