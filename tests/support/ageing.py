"""Installations that have done some work, which is then made to be long ago."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING

from tests.support.databases import query
from tests.support.installation import noop
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.services import replay
from vibey.services.audit import audit
from vibey.services.route import run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.installation import Bench
    from vibey.domain.outcome import Outcome


# A job that both local engines have handed over is left with the paid one. Were such a fallback counted, the job would
# wait until midnight once the cap is used up, and the work would not end.
HYBRID = {
    "mode": "hybrid",
    "overflow_after_seconds": 0,
    "paid_daily_cap": 60,
    "paid_fallback": "allow",
    "retry_backoff_seconds": 0,
    "slots": {"l": 2, "m": 3, "p": 4},
}
OUTCOMES: tuple[Outcome, ...] = (
    Success(cost_usd=Decimal("0.25"), tokens_in=100, tokens_out=7),
    Success(cost_usd=Decimal("0.5")),
    Failure(FailureClass.WORK, "exit 1"),
    Failure(FailureClass.HANDOFF, "exit 75"),
)
INSTANTS = {
    "jobs": ("created_at", "due_at", "held_at", "ended_at"),
    "runs": ("granted_at", "due_at", "sent_at", "started_at", "renewed_at", "ended_at"),
    "passes": ("began_at", "at"),
    "ledger": ("at",),
}
MOST_TURNS = 30
"""Turns of work for each job: a job has at most ten runs, and each turn ends one as long as there is any."""


def forgetting(open_bench: Callable[..., Bench]) -> Bench:
    """Two local engines and a paid one; jobs are kept ten days."""
    return open_bench(
        engine={"l": noop(), "m": noop(weight=2), "p": noop("paid")}, engines=HYBRID, services={"keep_days": 10}
    )


def grow_old(bench: Bench, days: int = 100) -> None:
    """Make everything that has happened so many days older, past the ledger's own guard."""
    query(bench.url, "alter table ledger disable trigger user")
    for table, columns in INSTANTS.items():
        aged = ", ".join(f"{column} = {column} - interval '{days} days'" for column in columns)
        query(bench.url, f"update {table} set {aged}")
    query(
        bench.url,
        f"update ledger set utc_day = utc_day - {days}, "
        "data = case when data ? 'utc_day' then data || jsonb_build_object('utc_day', "
        f"(utc_day - {days})::text) else data end where utc_day is not null",
    )
    query(bench.url, "alter table ledger enable trigger user")


def work(bench: Bench, seed: int, leave: int = 0) -> None:
    """Route and settle until no more than so many jobs are left open."""
    chance = random.Random(seed)
    turns = 0
    while (left := bench.value("select count(*) from jobs where ended_at is null")) > leave:
        turns += 1
        assert turns <= MOST_TURNS * bench.value("select count(*) from jobs"), f"{left} jobs do not end"
        run_pass(bench.installation, "main")
        for run, token, _ in chance.sample(live := bench.live(), min(3, len(live))):
            started = _start(bench.installation, run, token)
            if started is not None:
                settle(bench.installation, Held.of(started, token), chance.choice(OUTCOMES))


def sound(bench: Bench) -> dict[str, int]:
    """Audit and replay find nothing; what the audit counted."""
    found = audit(bench.installation)
    assert found.violations == ()
    replayed = replay.replay(bench.installation)
    assert replayed.same == replayed.replayed
    return found.checked
