"""What holds of settlements for every job and every way to end."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import efforts
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Outcome, Success
from vibey.domain.settlement import Attempted, JobState, RunState, Settlement, lost, settle, withdrawn

if TYPE_CHECKING:
    from vibey.domain.effort import Effort

failures = st.sampled_from(
    [
        *(Failure(each, "a detail") for each in FailureClass if each is not FailureClass.CAPACITY),
        *(Failure(FailureClass.CAPACITY, "", kind) for kind in CapacityKind),
    ]
)
outcomes: st.SearchStrategy[Outcome] = failures | st.just(Success())
jobs = st.builds(
    Attempted,
    job_id=st.integers(1, 10**12),
    engine=st.sampled_from(["e0", "e1"]),
    attempt=st.integers(1, 9),
    max_attempts=st.integers(1, 9),
    effort=efforts,
    refunds=st.integers(0, 5),
    handoffs=st.integers(0, 3),
    avoided=st.frozensets(st.sampled_from(["e0", "e1", "e2"])),
    handed_off=st.frozensets(st.sampled_from(["e0", "e1", "e2"])),
    cancel_requested=st.booleans(),
)
ENDS = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


def requeued(job: Attempted, settled: Settlement) -> Attempted:
    """The job as its next run meets it."""
    return replace(
        job,
        attempt=settled.attempts + 1,
        effort=settled.effort,
        refunds=settled.refunds,
        handoffs=settled.handoffs,
        avoided=settled.avoided,
        handed_off=settled.handed_off,
    )


@given(jobs, outcomes, st.integers(0, 10**6))
def test_every_ending_has_one_settlement_within_bounds(job: Attempted, outcome: Outcome, backoff: int) -> None:
    """It never raises; attempts, refunds, handoffs, effort and pause keep their limits."""
    settled = settle(job, outcome, backoff_ms=backoff)
    assert settled.run_state in {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}
    assert settled.job_state in ENDS | {JobState.QUEUED}
    assert settled.attempts in {job.attempt, job.attempt - 1}
    assert 0 <= settled.refunds <= 5
    assert job.handoffs <= settled.handoffs <= 3
    assert settled.effort >= job.effort
    assert 0 <= settled.delay_ms <= min(900_000, backoff * 2**job.attempt)
    if settled.job_state in ENDS:
        assert settled.delay_ms == 0
    else:
        assert settled.attempts < max(job.max_attempts, job.attempt)


@given(jobs, outcomes)
def test_success_wins_over_cancelling_and_cancelling_over_failure(job: Attempted, outcome: Outcome) -> None:
    """Work that was done stays done; work that failed while being cancelled is cancelled."""
    settled = settle(replace(job, cancel_requested=True), outcome, backoff_ms=1000)
    expected = JobState.SUCCEEDED if isinstance(outcome, Success) else JobState.CANCELLED
    assert settled.job_state is expected
    assert settled.attempts == job.attempt


@given(efforts, st.integers(1, 9), st.lists(failures | st.none(), min_size=1, max_size=15))
def test_any_run_of_failures_ends(asked: Effort, most: int, endings: list[Failure | None]) -> None:
    """A job that only ever fails, or is lost, is over after at most six runs an attempt and three handoffs."""
    job = Attempted(1, "e0", 1, most, asked)
    for number, ending in enumerate(islice(cycle(endings), 6 * most + 3), start=1):
        settled = settle(job, ending, backoff_ms=1000) if ending else lost(job, backoff_ms=1000)
        if settled.job_state in ENDS:
            assert settled.job_state is JobState.FAILED
            assert number >= most
            return
        job = requeued(job, settled)
    raise AssertionError(f"still queued after {number} runs")


@given(jobs, st.sampled_from(["withdrawn: no worker started it in time", "x"]))
def test_a_withdrawn_grant_is_as_if_it_had_not_been_made(job: Attempted, reason: str) -> None:
    """Its attempt, refunds, handoffs and avoided engines are what they were, and it is due at once."""
    settled = withdrawn(job, reason)
    assert settled.run_state is RunState.WITHDRAWN
    if job.cancel_requested:
        assert settled.job_state is JobState.CANCELLED
        return
    assert settled.job_state is JobState.QUEUED
    assert (settled.attempts, settled.refunds, settled.handoffs) == (job.attempt - 1, job.refunds, job.handoffs)
    assert (settled.avoided, settled.handed_off) == (job.avoided, job.handed_off)
    assert (settled.delay_ms, settled.reason) == (0, reason)


@given(jobs, failures)
def test_a_retry_likes_its_engine_unless_the_effort_rises(job: Attempted, failure: Failure) -> None:
    """A counted retry has affinity to the engine it ran on, unless that handed it off or the effort rose."""
    settled = settle(replace(job, cancel_requested=False), failure, backoff_ms=1000)
    if settled.job_state is JobState.QUEUED and settled.attempts == job.attempt:
        rose = settled.effort > max(job.effort, [1, 1, 2, 2, 3][min(job.attempt, 5) - 1])
        back = failure.failure_class is FailureClass.HANDOFF
        assert settled.affinity == (None if rose or back else job.engine)
        assert settled.avoided == ({job.engine} if rose else frozenset())
        assert settled.handed_off == (job.handed_off | {job.engine} if back else job.handed_off)


@given(jobs, failures)
def test_only_a_handoff_is_free_and_only_once_an_engine(job: Attempted, failure: Failure) -> None:
    """Three a job, each by another engine; what was handed off stays so until the job ends."""
    settled = settle(replace(job, cancel_requested=False), failure, backoff_ms=1000)
    assert settled.handed_off >= job.handed_off
    free = settled.handoffs > job.handoffs
    back = failure.failure_class is FailureClass.HANDOFF
    assert free == (back and job.handoffs < 3 and job.engine not in job.handed_off)
    assert back == (job.engine in settled.handed_off - job.handed_off or (back and job.engine in job.handed_off))
