"""Learned factors: what a record of runs says about an engine's weight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.learning import History, learned


@pytest.mark.parametrize(
    ("runs", "failed", "factor"),
    [
        (0, 0, None),
        (4, 4, None),
        (5, 0, None),
        (6, 1, None),
        (5, 1, 500_000),
        (9, 4, 500_000),
        (10, 5, 100_000),
        (5, 5, 100_000),
        (1000, 199, None),
        (1000, 200, 500_000),
        (1000, 499, 500_000),
        (1000, 500, 100_000),
    ],
)
def test_the_steps(runs: int, failed: int, factor: int | None) -> None:
    """Five runs at least; of a fifth failed the half, of a half failed a tenth is left, the bounds included."""
    assert learned(History("a", runs, failed)) == factor


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_it_only_lowers_and_never_for_fewer_failures(runs: int, one: int, other: int) -> None:
    """More failures never weigh more, and no record raises a weight."""
    fewer, more = sorted((min(one, runs), min(other, runs)))
    factors = [learned(History("a", runs, failed)) or 1_000_000 for failed in (fewer, more)]
    assert 0 < factors[1] <= factors[0] <= 1_000_000
