"""Settlement: what the end of a run means for its job, its account's circuit and its engine.

| how it ended | the job | attempt | who else hears of it |
|---|---|---|---|
| success | succeeded | counted | circuit: success |
| WORK, the job's own fault | retried after backoff | counted | nobody |
| WORK, declared final | failed | counted | nobody |
| ENGINE: crash, timeout, stall | retried after backoff | counted | circuit: engine failure |
| CAPACITY: window, credits, login | requeued at once | refunded, at most 5 times a job and attempt | circuit: refused |
| CAPACITY: busy | requeued at once | refunded, as above | the engine counts as full for a poll |
| VIBEY, our own fault | retried after backoff | counted | nobody |
| HANDOFF, wound down and saved its state | requeued at once, engine excluded | refunded, at most 3 a job | nobody |
| HANDOFF beyond those, or a second one by one engine | retried after backoff, engine excluded | counted | nobody |
| MISCONFIGURED | requeued at once | refunded, as capacity | the engine is gone until `doctor` is good |
| deadline reached while running | failed | counted | nobody |
| lost: lease expired after the start | retried after backoff | counted | nobody |
| cancelled | cancelled | counted | nobody |
| withdrawn: granted, never started | requeued at once | refunded | a unit of the cap is given back |

A retry needs an attempt left; without one the job has failed. A spent refund allowance makes the ending count. Not so
where an account is looked at ahead of its known reset (see `circuit`): that is done for the operator, not for the job,
and as often as the operator likes, so a refusal there is refunded however many there were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from vibey.domain.backoff import delay_ms
from vibey.domain.effort import Effort, effort_of, rises
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Outcome, Success

if TYPE_CHECKING:
    from vibey.domain.circuit import Circuit
    from vibey.domain.requirement import Requirement

REFUNDS_PER_ATTEMPT = 5
HANDOFFS_PER_JOB = 3


class JobState(StrEnum):
    """A job's state; the last three are ends."""

    QUEUED = "queued"
    GRANTED = "granted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """A run's state; a run in one of the first two holds its slot."""

    GRANTED = "granted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Attempted:
    """The job behind a run, as far as its settlement needs it. `attempt` is the number this run carries."""

    job_id: int
    engine: str
    attempt: int
    max_attempts: int
    effort: Effort
    refunds: int = 0
    handoffs: int = 0
    avoided: frozenset[str] = frozenset()
    handed_off: frozenset[str] = frozenset()
    affinity: str | None = None
    cancel_requested: bool = False

    @property
    def may_hand_off(self) -> bool:
        """Whether a handoff now is free: one of few, and by an engine the job had not been handed off from."""
        return self.handoffs < HANDOFFS_PER_JOB and self.engine not in self.handed_off


@dataclass(frozen=True, slots=True)
class Settlement:
    """What to write: the run's and the job's new state, and the job's next requirement if it is queued again.

    `attempts` is how many count as used from now on; `delay_ms` 0 means due at once. `release` gives a unit of the cap
    back, if the run had taken one: only when it provably did no work.
    """

    run_state: RunState
    job_state: JobState
    attempts: int
    refunds: int
    handoffs: int
    avoided: frozenset[str]
    handed_off: frozenset[str]
    affinity: str | None
    effort: Effort
    delay_ms: int = 0
    reason: str = ""
    release: bool = False

    def requirement(self, before: Requirement) -> Requirement:
        """What the job asks from now on; `before` is what it asked for the run that was settled."""
        return replace(before, effort=self.effort, avoided=self.avoided, handed_off=self.handed_off)


def settle(job: Attempted, outcome: Outcome, *, backoff_ms: int, early: bool = False) -> Settlement:
    """The settlement of a run that ended with an outcome; `early`: it looked at its account ahead of a known reset."""
    if isinstance(outcome, Success):
        return _ended(job, RunState.SUCCEEDED, JobState.SUCCEEDED, "succeeded")
    settled = cancelled(job) if job.cancel_requested else _failed(job, outcome, backoff_ms, early=early)
    return replace(settled, release=outcome.did_no_work)


def _failed(job: Attempted, outcome: Failure, backoff_ms: int, *, early: bool) -> Settlement:
    reason = f"{outcome.failure_class.value}: {outcome.detail}"
    if outcome.failure_class is FailureClass.HANDOFF:
        left = replace(job, handed_off=job.handed_off | {job.engine})
        if job.may_hand_off:
            return _handed_off(left, reason)
        return replace(_retried(left, RunState.FAILED, reason, backoff_ms), affinity=None)
    if early and outcome.failure_class is FailureClass.CAPACITY:
        return _again(job, RunState.FAILED, job.attempt - 1, reason, refunds=job.refunds)
    if outcome.final:
        return _ended(job, RunState.FAILED, JobState.FAILED, reason)
    refundable = outcome.failure_class in {FailureClass.CAPACITY, FailureClass.MISCONFIGURED}
    if refundable and job.refunds < REFUNDS_PER_ATTEMPT:
        return _again(job, RunState.FAILED, job.attempt - 1, reason, refunds=job.refunds + 1)
    return _retried(job, RunState.FAILED, reason, backoff_ms)


def lost(job: Attempted, *, backoff_ms: int, rerun: bool = True) -> Settlement:
    """The settlement of a run whose lease expired after it had started; without `rerun` the job stops here."""
    if job.cancel_requested:
        return cancelled(job)
    if not rerun:
        return _ended(job, RunState.LOST, JobState.FAILED, "lost, and not to be rerun")
    return _retried(job, RunState.LOST, "lost: the lease expired", backoff_ms)


def withdrawn(job: Attempted, reason: str) -> Settlement:
    """The settlement of a grant that never started: as if it had not been made."""
    if job.cancel_requested:
        undone = replace(job, attempt=job.attempt - 1)
        settled = _ended(undone, RunState.WITHDRAWN, JobState.CANCELLED, "cancelled")
    else:
        settled = _again(job, RunState.WITHDRAWN, job.attempt - 1, reason, refunds=job.refunds)
    return replace(settled, release=True)


def overdue(job: Attempted) -> Settlement:
    """The settlement of a run that reached its job's deadline: the job has failed, and nobody is to blame."""
    if job.cancel_requested:
        return cancelled(job)
    return _ended(job, RunState.FAILED, JobState.FAILED, "the deadline passed while it ran")


def cancelled(job: Attempted) -> Settlement:
    """The settlement of a run that was stopped because its job was cancelled."""
    return _ended(job, RunState.CANCELLED, JobState.CANCELLED, "cancelled")


def feed(
    circuit: Circuit, outcome: Outcome, now_ms: int, half_life_ms: int, widest: int, *, recheck_ms: int = 0
) -> Circuit:
    """The account's circuit after this outcome; `widest` is the most slots any of its engines has.

    `recheck_ms` above 0 has a reset that is further away than that looked at ahead of its time.
    """
    if isinstance(outcome, Success):
        return circuit.succeeded(now_ms, half_life_ms, widest)
    if not concerns_circuit(outcome):
        return circuit
    if outcome.capacity_kind is None:
        return circuit.engine_failed(now_ms, half_life_ms, recheck_ms=recheck_ms)
    named_ms = outcome.resets_at_ms
    return circuit.refused(outcome.capacity_kind, named_ms, now_ms, half_life_ms, recheck_ms=recheck_ms)


def concerns_circuit(outcome: Outcome) -> bool:
    """Whether the account's circuit hears of this outcome."""
    if isinstance(outcome, Success) or outcome.failure_class is FailureClass.ENGINE:
        return True
    return outcome.failure_class is FailureClass.CAPACITY and outcome.capacity_kind is not CapacityKind.BUSY


def is_busy(outcome: Outcome) -> bool:
    """Whether the engine's server answered that it is full."""
    return isinstance(outcome, Failure) and outcome.capacity_kind is CapacityKind.BUSY


def is_misconfigured(outcome: Outcome) -> bool:
    """Whether the engine cannot work until a person has mended it."""
    return isinstance(outcome, Failure) and outcome.failure_class is FailureClass.MISCONFIGURED


def _ended(job: Attempted, run: RunState, state: JobState, reason: str) -> Settlement:
    return Settlement(
        run, state, job.attempt, job.refunds, job.handoffs, job.avoided, job.handed_off, None, job.effort, reason=reason
    )


def _retried(job: Attempted, run: RunState, reason: str, backoff_ms: int) -> Settlement:
    if job.attempt >= job.max_attempts:
        return _ended(job, run, JobState.FAILED, f"{reason} (attempt {job.attempt} of {job.max_attempts})")
    following = job.attempt + 1
    effort = effort_of(following, job.effort)
    forced = rises(following, job.effort)
    return Settlement(
        run,
        JobState.QUEUED,
        attempts=job.attempt,
        refunds=0,
        handoffs=job.handoffs,
        avoided=frozenset({job.engine} if forced else ()),
        handed_off=job.handed_off,
        affinity=None if forced else job.engine,
        effort=effort,
        delay_ms=delay_ms(job.job_id, job.attempt, backoff_ms),
        reason=reason,
    )


def _again(job: Attempted, run: RunState, attempts: int, reason: str, *, refunds: int) -> Settlement:
    effort = effort_of(attempts + 1, job.effort)
    return Settlement(
        run,
        JobState.QUEUED,
        attempts,
        refunds,
        job.handoffs,
        job.avoided,
        job.handed_off,
        job.affinity,
        effort,
        reason=reason,
    )


def _handed_off(job: Attempted, reason: str) -> Settlement:
    effort = effort_of(job.attempt, job.effort)
    return Settlement(
        RunState.FAILED,
        JobState.QUEUED,
        job.attempt - 1,
        job.refunds,
        job.handoffs + 1,
        job.avoided,
        job.handed_off,
        None,
        effort,
        reason=reason,
    )
