"""The settlement table, row by row."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from vibey.domain.circuit import Circuit, OpenReason
from vibey.domain.effort import Effort
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.domain.settlement import (
    Attempted,
    JobState,
    RunState,
    Settlement,
    cancelled,
    concerns_circuit,
    feed,
    is_busy,
    is_misconfigured,
    lost,
    settle,
    withdrawn,
)

JOB = Attempted(job_id=7, engine="e0", attempt=1, max_attempts=7, effort=Effort.LOW, avoided=frozenset({"e9"}))
BASE = 2000
CAPACITY = [Failure(FailureClass.CAPACITY, "no", kind) for kind in CapacityKind]
REFUNDED = [*CAPACITY, Failure(FailureClass.MISCONFIGURED, "no")]
COUNTED = [Failure(each, "no") for each in (FailureClass.WORK, FailureClass.ENGINE, FailureClass.VIBEY)]
HANDOFF = Failure(FailureClass.HANDOFF, "saved")


def settled(failure: Failure, **changes: object) -> Settlement:
    """The settlement of this failure for the job, but for the changes."""
    return settle(replace(JOB, **changes), failure, backoff_ms=BASE)  # type: ignore[arg-type]


def name_of(failure: Failure) -> str:
    """The row's name."""
    return failure.capacity_kind.value if failure.capacity_kind else failure.failure_class.value


def test_success_ends_the_job() -> None:
    """Succeeded, the attempt counted."""
    done = settle(JOB, Success({"ok": True}, Decimal("0.10")), backoff_ms=BASE)
    assert (done.run_state, done.job_state, done.attempts) == (RunState.SUCCEEDED, JobState.SUCCEEDED, 1)
    assert done.reason == "succeeded"


@pytest.mark.parametrize("failure", COUNTED, ids=name_of)
def test_a_counted_failure_is_retried_after_backoff(failure: Failure) -> None:
    """The attempt is used, refunds start afresh, the next one is drawn to the same engine, and waits its turn."""
    again = settled(failure, refunds=4)
    assert (again.run_state, again.job_state, again.attempts) == (RunState.FAILED, JobState.QUEUED, 1)
    assert (again.refunds, again.affinity, again.avoided) == (0, "e0", frozenset())
    assert 0 <= again.delay_ms <= 2 * BASE
    assert again.reason == f"{failure.failure_class.value}: no"


@pytest.mark.parametrize("failure", COUNTED, ids=name_of)
def test_the_last_attempt_fails_the_job(failure: Failure) -> None:
    """No attempt left: failed, at once, saying which attempt it was."""
    ended = settled(failure, attempt=7)
    assert (ended.run_state, ended.job_state, ended.attempts) == (RunState.FAILED, JobState.FAILED, 7)
    assert ended.delay_ms == 0
    assert ended.reason.endswith("(attempt 7 of 7)")


@pytest.mark.parametrize("failure", CAPACITY, ids=name_of)
@pytest.mark.parametrize("refunds", [0, 5])
def test_a_look_ahead_of_a_reset_costs_the_job_nothing(failure: Failure, refunds: int) -> None:
    """Its refusal is refunded beyond the allowance and takes nothing of it; a crash there is a crash."""
    job = replace(JOB, refunds=refunds, attempt=7)
    again = settle(job, failure, backoff_ms=0, early=True)
    assert (again.job_state, again.attempts, again.refunds, again.delay_ms) == (JobState.QUEUED, 6, refunds, 0)
    crashed = Failure(FailureClass.ENGINE, "crashed")
    assert settle(job, crashed, backoff_ms=0, early=True) == settle(job, crashed, backoff_ms=0)


def test_a_final_failure_ends_the_job_at_once() -> None:
    """With attempts left or not: failed, for the reason given."""
    ended = settled(Failure(FailureClass.WORK, "never", final=True))
    assert (ended.run_state, ended.job_state, ended.attempts) == (RunState.FAILED, JobState.FAILED, 1)
    assert (ended.reason, ended.delay_ms) == ("work: never", 0)


@pytest.mark.parametrize("failure_class", [each for each in FailureClass if each is not FailureClass.WORK])
def test_only_the_work_has_a_last_word(failure_class: FailureClass) -> None:
    """What is nobody's or the engine's fault may go well another time."""
    kind = CapacityKind.WINDOW if failure_class is FailureClass.CAPACITY else None
    with pytest.raises(ValueError, match="only a failure of the work is final"):
        Failure(failure_class, "no", kind, final=True)


@pytest.mark.parametrize("failure", REFUNDED, ids=name_of)
def test_a_refused_run_is_refunded_and_due_at_once(failure: Failure) -> None:
    """The attempt is given back, even the last, and the job keeps what it avoids."""
    again = settled(failure, attempt=7, refunds=2)
    assert (again.run_state, again.job_state, again.attempts) == (RunState.FAILED, JobState.QUEUED, 6)
    assert (again.refunds, again.delay_ms, again.affinity) == (3, 0, None)
    assert again.avoided == JOB.avoided


@pytest.mark.parametrize("failure", REFUNDED, ids=name_of)
def test_the_sixth_refusal_of_an_attempt_counts(failure: Failure) -> None:
    """Five refunds a job and attempt; after them the ending counts, and the next attempt has five of its own."""
    assert settled(failure, refunds=4).attempts == 0
    counted = settled(failure, refunds=5)
    assert (counted.job_state, counted.attempts, counted.refunds) == (JobState.QUEUED, 1, 0)
    assert settled(failure, refunds=5, attempt=7).job_state is JobState.FAILED


def test_a_handoff_is_refunded_and_its_engine_avoided() -> None:
    """Due at once elsewhere; three a job, and refunds are not touched; what a rise avoids stays avoided."""
    again = settled(HANDOFF, attempt=3, refunds=2, handoffs=2, handed_off=frozenset({"e8"}))
    assert (again.job_state, again.attempts, again.refunds, again.handoffs) == (JobState.QUEUED, 2, 2, 3)
    assert (again.affinity, again.delay_ms) == (None, 0)
    assert (again.avoided, again.handed_off) == ({"e9"}, {"e0", "e8"})


def test_a_second_handoff_by_the_same_engine_counts() -> None:
    """It had the job again only because no other engine was left: retried after a pause, with no liking for it."""
    again = settled(HANDOFF, handoffs=1, handed_off=frozenset({"e0"}))
    assert (again.job_state, again.attempts, again.handoffs) == (JobState.QUEUED, 1, 1)
    assert (again.affinity, again.handed_off) == (None, {"e0"})
    assert settled(HANDOFF, handoffs=1, handed_off=frozenset({"e0"}), attempt=7).job_state is JobState.FAILED


def test_the_fourth_handoff_counts() -> None:
    """Spent allowance: retried as any failure, and the engine is excluded as those before it."""
    counted = settled(HANDOFF, handoffs=3)
    assert (counted.job_state, counted.attempts, counted.handoffs) == (JobState.QUEUED, 1, 3)
    assert (counted.avoided, counted.handed_off, counted.affinity) == (frozenset(), {"e0"}, None)
    assert settled(HANDOFF, handoffs=3, attempt=7).job_state is JobState.FAILED


def test_a_lost_run_is_counted_and_rerun() -> None:
    """As a failure, but the run's state says lost."""
    again = lost(JOB, backoff_ms=BASE)
    assert (again.run_state, again.job_state, again.attempts) == (RunState.LOST, JobState.QUEUED, 1)
    assert lost(replace(JOB, attempt=7), backoff_ms=BASE).job_state is JobState.FAILED


def test_a_lost_run_not_to_be_rerun_ends_the_job() -> None:
    """Paid work may be told to stop here."""
    ended = lost(JOB, backoff_ms=BASE, rerun=False)
    assert (ended.run_state, ended.job_state, ended.attempts) == (RunState.LOST, JobState.FAILED, 1)


def test_cancelled_runs_end_the_job() -> None:
    """Whether stopped, failing, lost or never started; work already done stays done."""
    job = replace(JOB, cancel_requested=True)
    failing = settle(job, COUNTED[0], backoff_ms=BASE)
    for ended in (cancelled(JOB), failing, lost(job, backoff_ms=BASE)):
        assert (ended.run_state, ended.job_state) == (RunState.CANCELLED, JobState.CANCELLED)
    gone = withdrawn(job, "no worker")
    assert (gone.run_state, gone.job_state) == (RunState.WITHDRAWN, JobState.CANCELLED)
    assert settle(job, Success(), backoff_ms=BASE).job_state is JobState.SUCCEEDED


def test_a_withdrawn_grant_is_refunded_without_limit() -> None:
    """It never ran: no allowance is spent."""
    again = withdrawn(replace(JOB, refunds=5, handoffs=3, attempt=7), "no worker")
    assert (again.run_state, again.job_state, again.attempts) == (RunState.WITHDRAWN, JobState.QUEUED, 6)
    assert (again.refunds, again.handoffs, again.reason) == (5, 3, "no worker")


@pytest.mark.parametrize(
    ("attempt", "effort", "rose"),
    [
        (1, Effort.LOW, False),
        (2, Effort.STANDARD, True),
        (3, Effort.STANDARD, False),
        (4, Effort.HIGH, True),
        (5, Effort.HIGH, False),
    ],
)
def test_effort_climbs_the_ladder_and_a_rise_leaves_the_engine(attempt: int, effort: Effort, *, rose: bool) -> None:
    """Low, low, standard, standard, high: a rise avoids the engine that failed, otherwise it is liked."""
    again = settled(COUNTED[0], attempt=attempt)
    assert again.effort is effort
    assert again.avoided == ({"e0"} if rose else set())
    assert again.affinity == (None if rose else "e0")


def test_what_handoffs_exclude_outlives_retries() -> None:
    """An engine excluded by a handoff stays so; one avoided by a rise is given another chance at the next attempt."""
    again = settled(COUNTED[0], handoffs=1, handed_off=frozenset({"e8"}))
    assert (again.avoided, again.handed_off) == (frozenset(), {"e8"})
    risen = settled(COUNTED[0], handoffs=1, handed_off=frozenset({"e8"}), attempt=2)
    assert (risen.avoided, risen.handed_off) == ({"e0"}, {"e8"})


def test_a_job_s_own_effort_is_the_floor() -> None:
    """A job that asked for the most never rises."""
    again = settled(COUNTED[0], attempt=2, effort=Effort.ULTRA)
    assert (again.effort, again.affinity) == (Effort.ULTRA, "e0")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Failure(FailureClass.CAPACITY, "", CapacityKind.WINDOW), OpenReason.WINDOW_EXHAUSTED),
        (Failure(FailureClass.CAPACITY, "", CapacityKind.CREDITS), OpenReason.CREDITS_EXHAUSTED),
        (Failure(FailureClass.CAPACITY, "", CapacityKind.LOGIN), OpenReason.LOGIN_FAILED),
        (Failure(FailureClass.CAPACITY, "", CapacityKind.BUSY), None),
        (Failure(FailureClass.ENGINE, ""), None),
        (Failure(FailureClass.WORK, ""), None),
        (Failure(FailureClass.VIBEY, ""), None),
        (HANDOFF, None),
        (Failure(FailureClass.MISCONFIGURED, ""), None),
    ],
    ids=lambda each: name_of(each) if isinstance(each, Failure) else "",
)
def test_who_else_hears_of_it(failure: Failure, reason: OpenReason | None) -> None:
    """Only the account's own failings reach its circuit, and each opens it for its own reason."""
    before = Circuit("a")
    after = feed(before, failure, 1000, 1_800_000, 1)
    assert after.open_reason is reason
    heard = reason is not None or failure.failure_class is FailureClass.ENGINE
    assert concerns_circuit(failure) == heard == (after != before)
    assert is_busy(failure) == (failure.capacity_kind is CapacityKind.BUSY)
    assert is_misconfigured(failure) == (failure.failure_class is FailureClass.MISCONFIGURED)


def test_success_reaches_the_circuit_and_is_neither_busy_nor_misconfigured() -> None:
    """Success closes."""
    opened = feed(Circuit("a"), CAPACITY[0], 1000, 1_800_000, 1)
    assert feed(opened, Success(), 2000, 1_800_000, 1).open_reason is None
    assert concerns_circuit(Success())
    assert not is_busy(Success())
    assert not is_misconfigured(Success())
