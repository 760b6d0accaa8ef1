"""Durable decisions: slot, token, credits, decision and event committed, and what each costs in its own transaction.

Vibey's side is the router's own pass over a queue, with slots for all. The other side is pgbench, C code over
prepared statements, on the same server and the same tables: one transaction a decision that locks the engine, counts
its live runs, writes run, decision and event, moves the job and charges a credit. It is spared what a router also
does: it is told which job to take, surveys nothing, and touches the credit of one engine instead of all. Each round
of either side starts from a fresh copy of the database, so that live runs stay bounded. Neither counts the time in
which it connects, and the router not that in which its statements are planned, which is once in its life.

A third side, where it is there, is LiteLLM's Router picking among ten deployments in memory, which commits nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vibey import embedded
from vibey.bench.figures import Bar, Figure, Scale, rate, ratios
from vibey.bench.laboratory import rows
from vibey.bench.latency import litellm
from vibey.domain.errors import VibeyError
from vibey.services import enqueue, route
from vibey.services.interpreter import calmed_collector
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from vibey.bench.laboratory import Laboratory, Site
    from vibey.services.installation import Installation

ENGINES = 10
SLOTS = 100_000
CLIENTS = 4
# A fresh database has no statistics yet; one that lives has.
VACUUM = "vacuum analyze"
SET_SLOTS = Statement(
    "bench-set-slots", "give each engine so many slots", "update engines set slots = %(slots)s returning name"
)
SPEED = re.compile(r"tps = ([0-9.]+) \(without initial connection time\)")
SCRIPT = """\
\\set n :n + 1
\\set job :client_id * :share + :n
\\set e random(0, {last})
begin;
select name from engines where name = 'e' || :e for no key update;
select count(*) from runs where engine = 'e' || :e and ended_at is null;
select id from jobs where id = :job and state = 'queued' for no key update;
insert into runs (job_id, engine, account, attempt, why, lease_expires_at)
  values (:job, 'e' || :e, 'e' || :e, 1, 'assign', clock_timestamp() + interval '60 s')
  returning id as run \\gset
insert into decisions (pass_id, ordinal, job_id, run_id, attempt, asked, outcome, engine, tier, trace)
  values (1, 0, :job, :run, 1, 0, 'assign', 'e' || :e, 'local', '{trace}');
insert into ledger (kind, project_id, job_id, run_id, engine, data)
  values ('RunGranted', 1, :job, :run, 'e' || :e, '{event}');
update jobs set state = 'granted', run_id = :run, attempt = 1, engine = 'e' || :e, reason = '' where id = :job;
insert into credits (pool, member, credit) values ('main.local', 'e' || :e, 1)
  on conflict (pool, member) do update set credit = credits.credit + 1;
commit;
"""


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """The router's passes against one transaction a decision."""
    count = scale.pick(10_000, 1_000)
    sides = [lambda: _passes(laboratory, count), lambda: _pgbench(laboratory, scale.pick(4_000, 200))]
    with ExitStack() as stack:
        peer = litellm(laboratory, stack)
        if peer is not None:
            picks = scale.pick(10_000, 200)
            sides.append(lambda: float(peer.ask(engines=ENGINES, count=picks)["rate"]))
        passes, single, *theirs = scale.in_turn(*sides)
    return [
        Figure("durable", "router's passes, ten engines", "decisions/s", passes, Bar(10_000)),
        Figure("durable", "pgbench, a transaction each", "decisions/s", single),
        Figure("durable", "passes over pgbench", "x", ratios(passes, single), Bar(8)),
        *(Figure("durable", "LiteLLM Router, in memory", "picks/s", each) for each in theirs),
        *(Figure("durable", "passes over LiteLLM Router", "x", ratios(passes, each), Bar(2)) for each in theirs),
    ]


def _passes(laboratory: Laboratory, count: int) -> float:
    with laboratory.site("durable", {f"e{number}": SLOTS for number in range(ENGINES)}) as site:
        enqueue.place(site.installation, [enqueue.Order()] * (ENGINES + count))
        laboratory.sql(site.database, VACUUM)
        site.staff()
        _warm_up(site)
        with calmed_collector():
            return rate(count, lambda: _all(site.installation, count))


def _warm_up(site: Site) -> None:
    """Grant a job on each engine: a router at work is connected, and its statements are planned."""
    rows(site.installation, SET_SLOTS, slots=1)
    passed = route.run_pass(site.installation, "main")
    if passed is None or len(passed.granted) != ENGINES:
        raise VibeyError("the router did not grant a job on each engine")
    rows(site.installation, SET_SLOTS, slots=SLOTS)


def _all(installation: Installation, count: int) -> None:
    granted = 0
    while granted < count:
        passed = route.run_pass(installation, "main")
        if passed is None or not passed.granted:
            raise VibeyError(f"the router granted {granted} of {count} jobs and then no more")
        granted += len(passed.granted)


def _pgbench(laboratory: Laboratory, count: int) -> float:
    share = count // CLIENTS
    with laboratory.site("pgbench", {f"e{number}": SLOTS for number in range(ENGINES)}) as site:
        enqueue.place(site.installation, [enqueue.Order()] * (count + CLIENTS))
        laboratory.sql(site.database, VACUUM)
        script = laboratory.folder / "decision.sql"
        script.write_text(_script(), encoding="utf-8")
        address = urlsplit(site.installation.database.url)
        said = subprocess.run(
            [
                embedded.postgres_binary("pgbench"),
                "--no-vacuum", "--protocol=prepared", f"--client={CLIENTS}", "--jobs=2",
                f"--transactions={share}", "--define=n=0", f"--define=share={share}", f"--file={script}",
                f"--host={address.hostname}", f"--port={address.port}", f"--username={address.username}",
                address.path.lstrip("/"),
            ],
            capture_output=True,
            check=False,
            env={**os.environ, "PGPASSWORD": address.password or ""},
            text=True,
        )  # fmt: skip
    found = SPEED.search(said.stdout)
    if said.returncode != 0 or found is None:
        raise VibeyError(f"pgbench failed: {said.stderr.strip()[-500:]}")
    return float(found[1])


def _script() -> str:
    """The transaction, with JSON of the size the router writes; a colon before a word would be a variable."""
    tenths = ", ".join("100000000000" for _ in range(ENGINES))
    return SCRIPT.format(
        last=ENGINES - 1,
        trace=f'{{"steps": [[0, [{tenths}], "e1", 0]]}}',
        event='{"why": "assign", "attempt": 1}',
    )
