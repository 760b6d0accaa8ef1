"""No stampede: what really ran, by the log of the engines' own processes, when an account with a long queue reopens.

One account has two engines of three slots each, and fifty jobs wait for it behind an open circuit. Instants in the
account's row are moved instead of waited for; everything else is as in production: workers, beat, messages, programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checker import works
from tests.support.wait import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fleet import Fleet

JOBS = 50
SLOTS = {"a": 3, "b": 3}


@pytest.fixture
def fleet(open_fleet: Callable[..., Fleet]) -> Fleet:
    """Two engines of one account, whose circuit is open for an hour."""
    engine = {name: {"account": "x"} for name in SLOTS}
    fleet = open_fleet(engine=engine, engines={"slots": SLOTS})
    fleet.muster("build1", "build2")
    fleet.rows(
        "update accounts set open_reason = 'engine_failures', probes = 1, failures_in_a_row = 3, "
        "probe_at = clock_timestamp() + interval '1 hour' where name = 'x'"
    )
    return fleet


def _nears(fleet: Fleet) -> None:
    """Let the probe be due in a moment."""
    fleet.rows("update accounts set probe_at = clock_timestamp() + interval '300 milliseconds' where name = 'x'")


def _ticks(fleet: Fleet, count: int = 3) -> None:
    """Wait until beat and router have looked at everything so many times more."""
    for _ in range(count):
        last = fleet.value("select last_tick_at::text from installation")
        fleet.until(f"select last_tick_at > '{last}' from installation", what="a tick")


def _waits(fleet: Fleet) -> None:
    """Wait until the router has found that nothing can take the queue."""
    fleet.until("select count(*) > 0 and bool_and(reason = 'no_eligible_engine') from group_states")
    _ticks(fleet)


def _runs(fleet: Fleet) -> tuple[int, int]:
    """How many runs there were, and how many there are."""
    return fleet.rows("select count(*), count(*) filter (where ended_at is null) from runs")[0]


def _room(successes: int) -> int:
    """How many runs the account may have at once, once so many have ended well."""
    return sum(min(slots, successes) for slots in SLOTS.values()) if successes else 1


def _crowds(log: Path) -> list[str]:
    """Every start at which more programs were at work than the ends before it allow, over all and for each engine."""
    found = []
    everything = works(log)
    for begun in everything:
        successes = sum(each.ended and each.last < begun.first for each in everything)
        beside = [each.engine for each in everything if each.first <= begun.first <= each.last]
        if len(beside) > _room(successes):
            found.append(f"run {begun.run}: {len(beside)} at once after {successes} successes")
        if beside.count(begun.engine) > max(1, min(SLOTS[begun.engine], successes)):
            found.append(f"run {begun.run}: {beside.count(begun.engine)} on {begun.engine} after {successes} successes")
    return found


@pytest.mark.slow
def test_an_account_reopens_with_one_run_and_widens_with_each_success(
    fleet: Fleet, sound: Callable[[Fleet], None]
) -> None:
    """One until the probe has ended; then as many on each engine as there were successes; then every slot."""
    gates = {}
    for number in range(JOBS):
        gate = fleet.gate(str(number))
        (job,) = fleet.enqueue(payload={"gate": str(gate)})
        gates[job] = gate
    _waits(fleet)
    assert (_runs(fleet), works(fleet.labour_log)) == ((0, 0), [])
    _nears(fleet)
    for successes, width in enumerate([1, 2, 4, 6, 6]):
        assert len(fleet.until_working(width)) == width
        _ticks(fleet)
        assert _runs(fleet) == (width + successes, width)
        assert fleet.value("select ramp from accounts where name = 'x'") == {1: 1, 2: 2}.get(successes)
        ((job,),) = fleet.rows("select job_id from runs where ended_at is null order by id limit 1")
        gates[job].touch()
        fleet.until(f"select state = 'succeeded' from jobs where id = {job}")
    for gate in gates.values():
        gate.touch()
    assert fleet.until_ended() == {"succeeded": JOBS}
    assert _crowds(fleet.labour_log) == []
    sound(fleet)


@pytest.mark.slow
def test_two_routers_and_two_workers_reopen_an_account_as_one_does(
    fleet: Fleet, sound: Callable[[Fleet], None]
) -> None:
    """Both are asked again and again while the probe comes due, and the queue is gone as soon as all slots are back."""
    fleet.control("control2")
    fleet.until_workers(4)
    gate = fleet.gate("probe")
    fleet.enqueue(JOBS, payload={"seconds": 0.05, "gate": str(gate)})
    _waits(fleet)
    _nears(fleet)
    send = fleet.installation.publisher.route
    until(lambda: send("main") and send("main") and _runs(fleet)[0], what="the probe")
    assert all(send("main") for _ in range(20))
    fleet.until_working()
    _ticks(fleet)
    assert _runs(fleet) == (1, 1)
    gate.touch()
    assert fleet.until_ended() == {"succeeded": JOBS}
    assert _crowds(fleet.labour_log) == []
    assert fleet.value("select open_reason is null and ramp is null from accounts where name = 'x'")
    sound(fleet)


@pytest.mark.slow
def test_a_probe_that_fails_is_the_only_run_until_the_next(fleet: Fleet, sound: Callable[[Fleet], None]) -> None:
    """Two probes crash, each alone, each with a longer wait behind it; the third ends well, and the rest follows it."""
    cure = fleet.gate("cure")
    fleet.enqueue(JOBS, payload={"seconds": 0.05, "needs": str(cure)})
    _waits(fleet)
    waits = []
    for probe in (1, 2):
        _nears(fleet)
        fleet.until(f"select probes = {1 + probe} from accounts where name = 'x'")
        waits.append(fleet.value("select extract(epoch from probe_at - clock_timestamp())::float / 60 from accounts"))
        _ticks(fleet)
        assert _runs(fleet) == (probe, 0)
        assert [work.ended for work in works(fleet.labour_log)] == [False] * probe
    assert [round(wait / 10) * 10 for wait in waits] == [10, 20]
    cure.touch()
    _nears(fleet)
    assert fleet.until_ended() == {"succeeded": JOBS}
    assert _crowds(fleet.labour_log) == []
    sound(fleet)
