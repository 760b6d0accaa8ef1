"""Settle: end a run, fenced by its token, and say what follows for its job, its account and its engine.

One transaction, in the one lock order: the engine's row where it changes, the account's where its circuit
hears of the outcome, then the job's, then the run's. A success on an account with nothing against it, and
with quota enough, touches neither engine nor account and is a single statement. A stale token ends nothing,
and nothing else is written either.

The freed slot is then granted. With few slots in the pool's engine a second transaction in this very task
does it, which is the quickest hand-over; with many, a collapsed wake-up lets one pass serve a whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vibey.domain import settlement
from vibey.domain.outcome import Failure, Outcome, Success
from vibey.domain.requirement import conversation
from vibey.domain.settlement import Attempted, JobState, Settlement
from vibey.services.route import grant_freed
from vibey.services.wording import instant
from vibey.store import engines, jobs, ledger, runs
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from vibey.domain.circuit import Circuit
    from vibey.domain.requirement import Requirement
    from vibey.engines.contract import Stopped
    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.runs import Expired

DIRECT_SLOTS = 8
EVENTS = {
    JobState.QUEUED: Event.JOB_REQUEUED,
    JobState.SUCCEEDED: Event.JOB_SUCCEEDED,
    JobState.FAILED: Event.JOB_FAILED,
    JobState.CANCELLED: Event.JOB_CANCELLED,
}
LOST_DETAIL = "its worker was gone: the lease was not renewed"
WITHDRAWN_DETAIL = "no worker started it in time"


@dataclass(frozen=True, slots=True)
class Held:
    """A run someone holds, with the columns of its job that settling writes anew."""

    run_id: int
    token: int
    account: str
    requirement: Requirement
    project_id: int
    job: Attempted
    session: str | None

    @property
    def key(self) -> tuple[int, int]:
        """The run and the token that holds it."""
        return self.run_id, self.token

    @classmethod
    def of(cls, row: Any, token: int) -> Held:  # noqa: ANN401  a database row
        """From the row that started the run."""
        return cls(
            run_id=row.id,
            token=token,
            account=row.account,
            requirement=jobs.requirement_of(row),
            project_id=row.project_id,
            job=runs.attempted(row, row.job_id),
            session=row.session,
        )


def settle(installation: Installation, held: Held, outcome: Outcome, tail: str | None = None) -> Settlement | None:
    """End the run with its outcome; None when the token was stale and nothing was changed."""
    if isinstance(outcome, Success) and not outcome.near_quota_ms:
        return _succeed(installation, held, outcome, tail)
    return _in_full(installation, held, outcome, tail)


def close(
    installation: Installation,
    held: Held,
    settled: Settlement,
    spent: Outcome | Stopped | None = None,
    tail: str | None = None,
) -> Settlement | None:
    """End a run in a way that is nobody's fault, such as a cancel; None when the token was stale."""
    row = end_row(held.key, settled, settled.requirement(held.requirement).key, spent, tail)
    ended = installation.database.run(lambda connection: runs.end(connection, [row]))
    return settled if ended else None


def hand_over(installation: Installation, pool: str, slots: int) -> None:
    """Grant what a settled run has freed, in the way that suits the engine's number of slots."""
    if slots <= DIRECT_SLOTS:
        grant_freed(installation, pool)
    else:
        installation.wake(pool)


def end_row(
    held_run: tuple[int, int],
    settled: Settlement,
    key: int,
    outcome: Outcome | Stopped | None = None,
    tail: str | None = None,
) -> dict[str, Any]:
    """The row that ends a (run, token) as settled; see `vibey.store.runs.END`."""
    failure = outcome if isinstance(outcome, Failure) else None
    success = outcome if isinstance(outcome, Success) else None
    spent = outcome if outcome is not None and outcome.cost_usd is not None else None
    return {
        "run_id": held_run[0],
        "token": held_run[1],
        "run_state": settled.run_state.value,
        "failure_class": failure.failure_class.value if failure else None,
        "detail": failure.detail if failure else "",
        "cost_usd": str(spent.cost_usd) if spent else None,
        "tokens_in": outcome.tokens_in if outcome else None,
        "tokens_out": outcome.tokens_out if outcome else None,
        "output_tail": tail,
        "job_state": settled.job_state.value,
        "attempts": settled.attempts,
        "refunds": settled.refunds,
        "handoffs": settled.handoffs,
        "avoided": sorted(settled.avoided),
        "handed_off": sorted(settled.handed_off),
        "affinity": settled.affinity,
        "effort_now": int(settled.effort),
        "key": key,
        "delay_ms": settled.delay_ms,
        "reason": settled.reason,
        "result": success.result if success else None,
        "event": EVENTS[settled.job_state].value,
        "release": settled.release,
        # the run of a Celery call that ends with its last word has told the call's result backend itself
        "told": failure is not None and failure.final and not failure.unstarted,
    }


def expired_row(expired: Expired, settled: Settlement) -> dict[str, Any]:
    """The row that ends a locked run whose holder is not asked, because it is gone or has not begun."""
    row = expired.row
    key = settled.requirement(jobs.requirement_of(row)).key
    detail = LOST_DETAIL if expired.started else WITHDRAWN_DETAIL
    return {**end_row((row.id, row.token), settled, key), "detail": detail}


class _Stale(Exception):
    """The token no longer holds the run: the transaction is rolled back and nothing has happened."""


def _succeed(installation: Installation, held: Held, outcome: Success, tail: str | None) -> Settlement | None:
    settled = settlement.settle(held.job, outcome, backoff_ms=0)
    ended = installation.database.statement(
        lambda connection: runs.finish(connection, held.key, held.job.job_id, held.account, outcome, tail)
    )
    if not ended:
        return _in_full(installation, held, outcome, tail)
    if held.session:
        _keep_warm(installation, held)
    return settled


def _in_full(installation: Installation, held: Held, outcome: Outcome, tail: str | None) -> Settlement | None:
    try:
        settled = installation.database.run(
            lambda connection: _settle_in(connection, installation, held, outcome, tail)
        )
    except _Stale:
        return None
    if held.session and settled.job_state is JobState.SUCCEEDED:
        _keep_warm(installation, held)
    return settled


def _settle_in(
    connection: Connection, installation: Installation, held: Held, outcome: Outcome, tail: str | None
) -> Settlement:
    _tell_engines(connection, held, outcome)
    _tell_engine(connection, installation, held, outcome)
    early = _tell_account(connection, installation, held, outcome)
    locked = jobs.LOCK.first(connection, id=held.job.job_id)
    if locked is None:
        raise _Stale
    job = replace(held.job, cancel_requested=locked.cancel_requested_at is not None)
    settled = settlement.settle(job, outcome, backoff_ms=installation.timing.backoff_ms, early=early)
    # What the job asks is read anew: applying a configuration changes which engines can work in its repository.
    key = settled.requirement(jobs.requirement_of(locked)).key
    row = end_row(held.key, settled, key, outcome, tail)
    if not runs.end(connection, [row]):
        raise _Stale
    return settled


def _tell_engines(connection: Connection, held: Held, outcome: Outcome) -> None:
    """Demote the account's engines when its quota is nearly spent."""
    if not outcome.near_quota_ms:
        return
    demoted = engines.DEMOTE_ACCOUNT.all(connection, account=held.account, ms=outcome.near_quota_ms)
    if demoted:
        data = {"account": held.account, "demoted_until": instant(demoted[0].demoted_until)}
        ledger.append(connection, Event.ENGINE_CHANGED, engine=held.job.engine, run=held.run_id, data=data)


def _tell_engine(connection: Connection, installation: Installation, held: Held, outcome: Outcome) -> None:
    if settlement.is_busy(outcome):
        engines.SET_BUSY.run(connection, engine=held.job.engine, ms=installation.timing.poll_ms)
    if settlement.is_misconfigured(outcome) and isinstance(outcome, Failure):
        engines.SET_HEALTH.run(
            connection, engine=held.job.engine, installed=True, conformant=False, detail=outcome.detail
        )
        data = {"conformant": False, "detail": outcome.detail}
        ledger.append(connection, Event.ENGINE_CHANGED, engine=held.job.engine, run=held.run_id, data=data)


def _tell_account(connection: Connection, installation: Installation, held: Held, outcome: Outcome) -> bool:
    """Let the account's circuit hear of it; whether that was a look ahead of the account's known reset."""
    if not settlement.concerns_circuit(outcome):
        return False
    circuit, now_ms, widest = engines.locked_circuit(connection, held.account)
    heard = outcome.dated(now_ms) if isinstance(outcome, Failure) else outcome
    timing = installation.timing
    after = settlement.feed(circuit, heard, now_ms, timing.half_life_ms, widest, recheck_ms=timing.recheck_ms)
    engines.set_circuit(connection, after)
    data = _told(after)
    if data != _told(circuit):
        ledger.append(connection, Event.CIRCUIT_CHANGED, engine=held.job.engine, run=held.run_id, data=data)
    return circuit.early_for(now_ms) is not None


def _told(circuit: Circuit) -> dict[str, object]:
    """What the ledger tells of an account's circuit."""
    known = {} if circuit.resets_at_ms is None else {"resets_at_ms": circuit.resets_at_ms}
    return {"account": circuit.account, "open": circuit.open_reason, "probe_at_ms": circuit.probe_at_ms, **known}


def _keep_warm(installation: Installation, held: Held) -> None:
    seconds = installation.settings.engines.session_ttl_seconds
    name = conversation(held.requirement.project, held.session)
    installation.database.statement(lambda connection: runs.KEEP_WARM.run(connection, session=name, ttl_s=seconds))
