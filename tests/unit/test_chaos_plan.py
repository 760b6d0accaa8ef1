"""A chaos run's plan is its seed's, to the letter, and leaves no kind of fault out."""

from __future__ import annotations

from collections import Counter

from tests.support.chaos.plan import KINDS, Plan

FIRST = [
    "   1  kill a control worker, target 0.967, 0 s",
    "   2  kill a router, target 0.786, 0 s",
    "   3  kill an engine's process, target 0.518, 0 s",
]
SUM_OF_TARGETS = 255.6309621014461


def test_the_same_seed_gives_the_same_plan() -> None:
    """Jobs and strikes alike; another seed gives others."""
    first, again, other = Plan.of(7, 200, 60), Plan.of(7, 200, 60), Plan.of(8, 200, 60)
    assert first == again
    assert str(first) == str(again)
    assert first.strikes != other.strikes
    assert first.jobs != other.jobs


def test_a_seed_means_the_same_for_ever() -> None:
    """With the same kinds of faults, what a report of last year calls seed 1 is what seed 1 does today."""
    strikes = Plan.of(1, 0, 520).strikes
    assert [str(strike) for strike in strikes[:3]] == FIRST
    assert sum(strike.target for strike in strikes) == SUM_OF_TARGETS


def test_every_kind_strikes_in_proportion() -> None:
    """At least once each, and together as many as were asked for."""
    struck = Counter(strike.kind for strike in Plan.of(3, 0, 520).strikes)
    assert set(struck) == set(KINDS)
    assert sum(struck.values()) == 520
    assert struck["deliver messages again"] > struck["kill beat"]


def test_jobs_are_of_many_kinds() -> None:
    """A mixed fleet's work: sessions, cancels, deadlines, retries, handoffs, exclusions, families, two projects."""
    jobs = Plan.of(2, 5000, 0).jobs
    assert len({job.key for job in jobs}) == 5000
    assert {job.project for job in jobs} == {"web", "lab"}
    assert {word for job in jobs for word in job.payload} == {"seconds", "family", "fails", "hands_off"}
    assert any(job.session for job in jobs)
    assert any(job.cancelled for job in jobs)
    assert any(job.deadline_seconds for job in jobs)
    assert any(job.exclude for job in jobs)
    assert any(job.max_attempts == 1 for job in jobs)
