"""Clocks set wrong: what is stored and compared goes by the database's clock, and what is sent by nobody's for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.chaos.crew import Clocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fleet import Fleet

pytestmark = pytest.mark.slow

HOUR = 3600.0
TICKED = "select last_tick_at > '{}' from installation"


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    """Clocks that can be moved, each a process's own."""
    found = Clocks.of(tmp_path)
    if found is None:
        pytest.skip("no C compiler (cc): the library that moves a process's clock cannot be made")
    return found


def _ticked_since(fleet: Fleet) -> None:
    now = fleet.value("select clock_timestamp()")
    fleet.until(TICKED.format(now), what="a tick from now on")


def test_beat_goes_on_when_its_clock_is_set_forward_and_back(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None], clocks: Clocks
) -> None:
    """It sends its ticks as ever, not only once the time it had believed in has come."""
    fleet = open_fleet(engine={"near": {}})
    fleet.control()
    fleet.build()
    fleet.beat(environment=clocks.environment("beat"))
    _ticked_since(fleet)
    clocks.move("beat", 2 * HOUR)
    _ticked_since(fleet)
    clocks.move("beat", 0)
    _ticked_since(fleet)
    clocks.move("beat", -25 * HOUR)
    _ticked_since(fleet)
    fleet.enqueue(3)
    assert fleet.until_ended() == {"succeeded": 3}
    sound(fleet)


def test_a_control_worker_whose_clock_is_ahead_takes_ticks(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None], clocks: Clocks
) -> None:
    """Ten minutes between two machines' clocks do not make every tick look expired, nor any lease."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    fleet.control(environment=clocks.environment("control"))
    fleet.build(environment=clocks.environment("build"))
    fleet.beat()
    clocks.move("control", HOUR / 6)
    clocks.move("build", -HOUR / 6)
    _ticked_since(fleet)
    fleet.enqueue(4, payload={"seconds": 1})
    assert fleet.until_ended() == {"succeeded": 4}
    assert fleet.rows("select count(*)::int from runs where state <> 'succeeded'") == [(0,)]
    sound(fleet)
