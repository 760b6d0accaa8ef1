"""Summaries: peaks of slots in use, and percentiles of waits."""

from __future__ import annotations

import pytest

from vibey.services.summary import JobLine, Summary, peak_use


def line(number: int, waited: float | None, state: str = "succeeded") -> JobLine:
    """A job that waited so long."""
    return JobLine(number, state, 1, 1, "", (), waited, ())


def test_a_slot_handed_over_at_one_instant_is_one_slot() -> None:
    """A hold that begins when another ends does not count as beside it."""
    assert peak_use([("a", 0.0, 1.0), ("a", 1.0, 2.0)]) == {"a": 1}


def test_peaks_are_counted_by_engine() -> None:
    """Overlapping holds of one engine add up; another engine's do not."""
    assert peak_use([("a", 0.0, 3.0), ("a", 1.0, 2.0), ("b", 1.0, 2.0), ("a", 4.0, 5.0)]) == {"a": 2, "b": 1}


@pytest.mark.parametrize(("percent", "expected"), [(1, 1.0), (50, 10.0), (95, 19.0), (100, 20.0)])
def test_waits_by_nearest_rank(percent: int, expected: float) -> None:
    """A percentile is the smallest wait that so many percent did not exceed."""
    jobs = tuple(line(number, float(number)) for number in range(20, 0, -1))
    assert Summary((), jobs).waited(percent) == expected


def test_no_wait_before_any_start() -> None:
    """Jobs that never started have no wait, and are not counted as ended."""
    summary = Summary((), (line(1, None, "queued"),))
    assert summary.waited(50) is None
    assert (summary.ended, summary.succeeded) == (0, 0)
