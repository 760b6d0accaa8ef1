"""Run: what a build message leads to. Start by token, hold the lease while it works, settle, hand over.

The message is only a wake-up: whoever starts the run first holds it, and a second delivery finds it taken
and leaves. The holder's lease is renewed while the engine's own process works under a supervisor (see
`vibey.engines.runner`); it ends with the settlement, and only that frees the slot. A run whose lease was
lost is not settled here: whoever took it away did.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from vibey import tracing
from vibey.domain import settlement
from vibey.domain.call import task_call_of
from vibey.domain.effort import Effort
from vibey.domain.errors import Contended, ServiceUnavailable, VibeyError
from vibey.domain.outcome import Failure, FailureClass, Outcome, one_line
from vibey.engines.contract import Job, Renewal, Stopped, StopReason
from vibey.engines.moment import Moment
from vibey.engines.processes import kill_leftovers
from vibey.engines.registry import equipped
from vibey.engines.runner import execute
from vibey.services import endings
from vibey.services.confidence import secrets_of
from vibey.services.fleet import config_of
from vibey.services.outputs import runs_root, sweep, tail_of, tidy
from vibey.services.settle import Held, close, hand_over, settle
from vibey.store import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vibey.domain.settlement import Settlement
    from vibey.services.installation import Installation
    from vibey.store.database import Connection

log = logging.getLogger("vibey.run")

SETTLE_LEASES = 5
TOLD_WORDS = frozenset({"failed", "cancelled"})
SETTLE_PAUSE_SECONDS = 0.5


def carry_out(
    installation: Installation, run_id: int, token: int, follow: Callable[[int | None], Installation] | None = None
) -> str:
    """Carry out a granted run; says in one word how it ended, `stale` when it was not this caller's to run.

    `follow` gives the installation under a generation, with this process's file read again where that is due.
    """
    claimed_at, began_ns = Moment.now(), time.time_ns()
    started = _start(installation, run_id, token)
    if started is None:
        log.info("run %d: not started here, its token %d no longer holds or it is at work elsewhere", run_id, token)
        return "stale"
    held = Held.of(started, token)
    if started.generation != installation.generation or installation.disagreement(held.job.engine):
        installation = _under(installation, held, started.generation, follow)
    if odd := installation.disagreement(held.job.engine):
        return _give_back(installation, held, odd)
    deadline = None if started.deadline_seconds is None else claimed_at.plus(started.deadline_seconds)
    with _span(started, held, began_ns) as span:
        payload = _payload(started)
        if isinstance(payload, Failure):
            ended: Outcome | Stopped = payload
        else:
            ended = _executed(installation, started, payload, held, claimed_at, span.traceparent)
        word = _settled(installation, held, ended, overdue=deadline is not None and deadline.has_come())
        _tell(span, ended, word)
    engine = installation.settings.engine.get(held.job.engine)
    try:
        hand_over(installation, held.requirement.pool, installation.settings.slots_of(engine.name) if engine else 1)
    finally:
        installation.wakeups.release(run_id)
        tidy(installation, run_id)
    if word in TOLD_WORDS and not isinstance(payload, Failure) and task_call_of(payload) is not None:
        endings.tell(installation, [held.job.engine])
    return word


def kill_dead_runs(installation: Installation, job_id: int | None = None) -> int:
    """Kill processes left on this machine by runs that are no longer live, then remove what those runs left on disk.

    Returns how many runs had any process.
    """

    def live(_: int, run_id: int) -> bool:
        return bool(installation.database.statement(lambda connection: runs.LIVE.all(connection, runs=[run_id])))

    killed = len(kill_leftovers(installation.identity, live=live, job_id=job_id))
    sweep(installation)
    return killed


def held_by(installation: Installation, pairs: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those of these (run, process of this machine) whose run is live and that process's, or nobody's yet."""

    def work(connection: Connection) -> set[tuple[int, int]]:
        asked = {"runs": [run for run, _ in pairs], "pids": [pid for _, pid in pairs]}
        return {(row.run, row.pid) for row in runs.HELD.all(connection, host=socket.gethostname(), **asked)}

    return installation.database.statement(work)


def _start(installation: Installation, run_id: int, token: int) -> Any:  # noqa: ANN401  a database row
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"
    started = installation.database.statement(
        lambda connection: runs.START.first(
            connection,
            run=run_id,
            token=token,
            holder=holder,
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_ms=installation.timing.lease_ms,
        )
    )
    if started is not None and started.was_lost:
        kill_dead_runs(installation, started.job_id)
    return started


def _under(
    installation: Installation,
    held: Held,
    generation: int | None,
    follow: Callable[[int | None], Installation] | None,
) -> Installation:
    """The installation under the generation the run was started in, its lease as long as that one says."""
    if follow is not None:
        now = follow(generation)
    else:
        now = installation.database.statement(lambda connection: installation.under(connection, generation))
    if now.timing.lease_ms != installation.timing.lease_ms:
        _renew(now, held)
    return now


def _give_back(installation: Installation, held: Held, odd: str) -> str:
    """Withdraw a run of an engine that this process would run in another way than the generation in force asks."""
    why = f"given back: its worker has {odd}"
    log.warning("run %d: %s", held.run_id, why)
    close(installation, held, settlement.withdrawn(held.job, why))
    installation.wakeups.release(held.run_id)
    installation.wake(held.requirement.pool)
    return "withdrawn"


def _span(started: Any, held: Held, began_ns: int) -> tracing.Span:  # noqa: ANN401  a database row
    told: tracing.Attributes = {
        "vibey.job_id": held.job.job_id,
        "vibey.run_id": held.run_id,
        "vibey.attempt": held.job.attempt,
        "vibey.project": held.requirement.project,
        "vibey.engine": held.job.engine,
        "vibey.account": held.account,
        "vibey.effort": held.requirement.effort.label,
    }
    return tracing.begin("vibey.run", "consumer", started.traceparent, told, began_ns=began_ns)


def _tell(span: tracing.Span, ended: Outcome | Stopped, word: str) -> None:
    """Note on the span how the run ended, and what it took."""
    failure = ended.failure_class.value if isinstance(ended, Failure) else None
    cost = None if ended.cost_usd is None else float(ended.cost_usd)
    span.note({"vibey.outcome": word, "vibey.failure_class": failure, "vibey.cost_usd": cost})
    span.note({"gen_ai.usage.input_tokens": ended.tokens_in, "gen_ai.usage.output_tokens": ended.tokens_out})
    if isinstance(ended, Failure):
        span.fail(ended.detail)
    elif isinstance(ended, Stopped):
        span.fail(f"stopped: {ended.reason.value}")


def _executed(
    installation: Installation,
    started: Any,  # noqa: ANN401  a database row
    payload: Mapping[str, Any],
    held: Held,
    claimed_at: Moment,
    traceparent: str | None,
) -> Outcome | Stopped:
    settings = installation.settings
    engine = settings.engine.get(held.job.engine)
    if engine is None:
        return Failure(FailureClass.VIBEY, f"engine {held.job.engine!r} is not in this worker's configuration")
    timeout = float(settings.engines.run_timeout_seconds)
    if started.deadline_seconds is not None:
        if started.deadline_seconds <= 0:
            return Failure(FailureClass.WORK, "the deadline had passed before it started")
        timeout = min(timeout, started.deadline_seconds)
    try:
        adapter = equipped(config_of(engine, settings))
    except VibeyError as error:
        return Failure(FailureClass.MISCONFIGURED, str(error))
    return execute(
        adapter,
        _job(installation, started, payload, held, traceparent),
        directory_root=runs_root(installation),
        lease_seconds=installation.timing.lease_ms / 1000,
        renew=lambda: _renew(installation, held),
        timeout_seconds=timeout,
        stall_seconds=engine.stall_seconds or adapter.describe().stall_seconds,
        cost_limit_usd=engine.run_cost_limit_usd,
        claimed_at=claimed_at,
        wake=lambda seconds: _await_news(installation, held.run_id, seconds),
        secrets=lambda: secrets_of(settings),
    )


def _payload(started: Any) -> Mapping[str, Any] | Failure:  # noqa: ANN401  a database row
    """What the job is about, or the job's own failure where it cannot be read, such as one of an earlier version."""
    try:
        payload: Mapping[str, Any] = json.loads(started.payload)
    except (ValueError, RecursionError) as error:
        return Failure(FailureClass.WORK, one_line(f"the payload cannot be read: {error}"))
    return payload


def _job(
    installation: Installation,
    started: Any,  # noqa: ANN401  a database row
    payload: Mapping[str, Any],
    held: Held,
    traceparent: str | None,
) -> Job:
    return Job(
        job_id=held.job.job_id,
        run_id=held.run_id,
        token=held.token,
        attempt=held.job.attempt,
        effort=Effort(started.effort_now),
        payload=payload,
        project=started.project,
        installation=installation.identity,
        session=started.session,
        capabilities=held.requirement.capabilities,
        traceparent=traceparent,
        title=started.title,
    )


def _renew(installation: Installation, held: Held) -> Renewal:
    row = installation.database.statement(
        lambda connection: runs.RENEW.first(
            connection,
            run=held.run_id,
            token=held.token,
            lease_ms=installation.timing.lease_ms,
            tail=tail_of(installation, held.run_id),
        )
    )
    if row is None:
        return Renewal.LOST
    return Renewal.CANCEL if row.cancel else Renewal.KEPT


def _await_news(installation: Installation, run_id: int, seconds: float) -> bool:
    try:
        return installation.wakeups.await_nudge(run_id, seconds)
    except ConnectionError:
        threading.Event().wait(min(seconds, 3.0))
        return False


def _settled(installation: Installation, held: Held, ended: Outcome | Stopped, *, overdue: bool) -> str:
    if isinstance(ended, Stopped) and ended.reason is StopReason.LEASE_LOST:
        log.warning("run %d: its lease was lost, the work was killed", held.run_id)
        return "lost"
    tail = tail_of(installation, held.run_id)
    settled = _persistently(installation, lambda: _settle(installation, held, ended, tail, overdue=overdue))
    if settled is None:
        log.warning("run %d: ended too late, its token %d no longer holds; nothing was changed", *held.key)
        return "stale"
    return settled.run_state.value


def _settle(
    installation: Installation, held: Held, ended: Outcome | Stopped, tail: str | None, *, overdue: bool
) -> Settlement | None:
    if isinstance(ended, Stopped):
        return close(installation, held, settlement.cancelled(held.job), ended, tail)
    if overdue and isinstance(ended, Failure):
        return close(installation, held, settlement.overdue(held.job), ended, tail)
    return settle(installation, held, ended, tail)


def _persistently(installation: Installation, settling: Callable[[], Settlement | None]) -> Settlement | None:
    """Settle through an outage of the database: the work is done, and the token makes late and repeated tries safe."""
    patience = threading.Event()
    deadline = Moment.now().plus(SETTLE_LEASES * installation.timing.lease_ms / 1000)
    while True:
        try:
            return settling()
        except (ServiceUnavailable, Contended) as error:
            if deadline.has_come():
                raise
            log.warning("could not settle yet, trying again: %s", error)
            patience.wait(SETTLE_PAUSE_SECONDS)
