"""The Celery application with bugs put in, so that the checker, or a soak, can be seen to find them.

`celery -A tests.support.spoiled_tasks worker` starts a worker with the bugs that SPOILED names. That is read here and
nowhere else: no configuration of the product can reach this module, and the product knows nothing of it. Each bug is
one that such a router could really have.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.celery import app
from vibey.coordination.wakeups import WakeUps
from vibey.domain import decide
from vibey.domain import offer as offers
from vibey.services import grants, route, run
from vibey.services.installation import service_urls
from vibey.store import engines, rotation, runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.services.installation import Installation
    from vibey.store.statement import Statement

__all__ = ["BUGS", "app"]


def _without(statement: Statement, *parts: tuple[str, str]) -> Statement:
    """The statement with parts of it replaced, each of which must be there."""
    sql = statement.sql
    for part, other in parts:
        if part not in sql:
            raise LookupError(f"{statement.name} does not say {part!r} any more")
        sql = sql.replace(part, other)
    return replace(statement, name=f"spoiled-{statement.name}", sql=sql)


def slots_without_lock() -> None:
    """I1: slots are counted without holding the engines, and no router waits for another."""
    engines.LOCK = _without(engines.LOCK, (" for no key update", ""))
    engines.LOCK_FREE = _without(engines.LOCK_FREE, (" for no key update skip locked", ""))
    engines.FACTS, rotation.LOCK_CREDITS = engines.GLANCE, rotation.CREDITS
    WakeUps.begin = lambda *_: True  # type: ignore[method-assign]


def settle_without_token() -> None:
    """I6: whoever settles last is right, whether or not the run is still theirs."""
    token = " and r.token = %(token)s and r.ended_at is null"
    runs.FINISH = _without(runs.FINISH, (token, ""), (" and j.run_id = ended.id", ""))


def leases_for_ever() -> None:
    """I11: nobody ends the run of a holder that is gone."""
    runs.LOCK_EXPIRED_JOBS = _without(runs.LOCK_EXPIRED_JOBS, ("where r.ended_at is null", "where false"))


def paid_without_unit() -> None:
    """I4: overflow is granted, and its unit is not taken."""
    noted = grants._notes  # noqa: SLF001

    def forgetful(outlook: Any, decision: Any) -> list[dict[str, Any]]:
        return [{**note, "unit": False} for note in noted(outlook, decision)]

    grants._notes = forgetful  # noqa: SLF001


def requeue_dropped() -> None:
    """I3: a run that failed is ended, and its job is left where it was."""
    moved = "where j.id = ended.job_id and j.run_id = ended.id"
    runs.END = _without(runs.END, (moved, f"{moved} and rows.job_state <> 'queued'"))


def started_by_anyone() -> None:
    """I2: a message is a right: whoever gets one runs the job, however often it comes."""
    condition = "(r.state = 'granted' or r.holder = %(holder)s)"
    runs.START = _without(runs.START, (condition, "true"))


def overflow_at_once() -> None:
    """I5: paid is offered beside a free local slot."""

    def eager(survey: Any, policy: Any, load: Any) -> Any:
        free_paid = offers.free(survey.paid, load.full)
        if survey.local and free_paid and load.cap_left > 0:
            return offers.Offer(free_paid, offers.Why.OVERFLOW, counted=True)
        return offers.offer(survey, policy, load)

    decide.offer = eager  # type: ignore[attr-defined]


def file_a_pass() -> None:
    """Soak, files: each routing pass leaves a file open."""
    route_pool, kept = route.route, []

    def leaking(*arguments: Any) -> Any:
        kept.append(Path(os.devnull).open("rb"))  # noqa: SIM115  (the bug)
        return route_pool(*arguments)

    route.route = leaking


def connection_a_run() -> None:
    """Soak, clients: each run leaves a connection to Redis open."""
    carry_out, kept = run.carry_out, []

    def leaking(installation: Installation, *arguments: Any) -> str:
        kept.append(WakeUps(service_urls(installation.settings).redis_url, "spoiled:"))
        kept[-1].unwake("main")
        return carry_out(installation, *arguments)

    run.carry_out = leaking


def memory_a_run() -> None:
    """Soak, memory: each run leaves two megabytes behind."""
    carry_out, kept = run.carry_out, []

    def leaking(*arguments: Any) -> str:
        kept.append(b"\1" * 2_097_152)
        return carry_out(*arguments)

    run.carry_out = leaking


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        slots_without_lock,
        settle_without_token,
        leases_for_ever,
        paid_without_unit,
        requeue_dropped,
        started_by_anyone,
        overflow_at_once,
        file_a_pass,
        connection_a_run,
        memory_a_run,
    )
}
for spoiled in os.environ.get("SPOILED", "").split():
    BUGS[spoiled]()
