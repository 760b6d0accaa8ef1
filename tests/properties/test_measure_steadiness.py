"""How steady `auto` is: over sixteen weeks of a constant load, with daily measurements, the mode hardly changes."""

from __future__ import annotations

import pytest

from tests.support.weeks import MINUTE, Weeks
from vibey.domain.offer import Mode

LOADS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def lived(load: float) -> Weeks:
    """Sixteen weeks of two local slots and half-hour runs."""
    weeks = Weeks(load, seed=79, slots=2, mean_ms=30 * MINUTE)
    weeks.live(16)
    return weeks


@pytest.mark.parametrize("load", LOADS)
def test_a_constant_load_keeps_its_mode(load: float) -> None:
    """Whatever the load, hybrid relieving the slots never takes away its own evidence."""
    assert lived(load).changes <= 3


def test_little_load_stays_singleton_and_much_becomes_hybrid() -> None:
    """Steady is not stuck: the ends of the scale differ, and a full fleet is found out within days."""
    assert set(lived(0.1).modes) == {Mode.SINGLETON}
    busy = lived(0.9).modes
    assert set(busy[7:]) == {Mode.HYBRID}
