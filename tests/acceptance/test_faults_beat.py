"""Beat killed, replaced, and doubled: the safety net is only ever late."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Fleet


def test_beat_is_killed_and_another_started(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """Without beat jobs still flow; a lost run is found by the next beat."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    fleet.muster()
    beat = fleet.members[1]
    gate = fleet.gate("all")
    beat.kill()
    fleet.enqueue(6, payload={"seconds": 0.02})
    fleet.until("select count(*) = 6 from jobs where state = 'succeeded'")
    fleet.enqueue(payload={"gate": str(gate)})
    ((run, _, holder),) = fleet.until_working()
    os.kill(holder, signal.SIGKILL)
    fleet.until(f"select lease_expires_at < clock_timestamp() - interval '1 second' from runs where id = {run}")
    assert fleet.rows(f"select state from runs where id = {run}") == [("running",)]
    fleet.beat()
    fleet.until(f"select state = 'lost' from runs where id = {run}")
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 7}
    sound(fleet)


@pytest.mark.slow
def test_two_beats_at_once(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """Twice the ticks find the same lost run once, and grant nothing twice."""
    fleet = open_fleet(engine={"near": {}, "side": {}}, engines={"slots": {"near": 2, "side": 1}})
    fleet.muster()
    fleet.beat("beat2")
    fleet.enqueue(payload={"kill": "holder", "seconds": 30}, max_attempts=1)
    fleet.enqueue(30, payload={"seconds": 0.05})
    assert fleet.until_ended() == {"succeeded": 30, "failed": 1}
    assert fleet.rows("select count(*)::int from runs where state = 'lost'") == [(1,)]
    sound(fleet)
