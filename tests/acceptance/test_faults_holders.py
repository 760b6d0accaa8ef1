"""Holders that come too late, or twice, and stops that must not come late."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.chaos.crew import stopped
from tests.support.checker import works
from tests.support.fleet import gone
from tests.support.wait import until
from vibey.publisher import Build
from vibey.services import control

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Fleet


pytestmark = pytest.mark.slow


def test_a_holder_is_stopped_past_its_lease(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """Its work is killed without it, another worker runs the job; awake again, it changes nothing and is of use."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    (stopped,) = fleet.muster("build1")
    gates = fleet.gate("kept-open"), fleet.gate("opened-meanwhile")
    jobs = [fleet.enqueue(payload={"gate": str(gate)})[0] for gate in gates]
    runs = [run for run, *_ in fleet.until_working(2)]
    stopped.signal_all(signal.SIGSTOP)
    gates[1].touch()
    fleet.build("build2")
    fleet.until("select count(*) = 2 from runs where state = 'lost'")
    fleet.until(f"select state = 'succeeded' from jobs where id = {jobs[1]}")
    before = fleet.rows("select * from runs where state = 'lost' order by id")
    stopped.signal_all(signal.SIGCONT)
    for run in runs:
        until(lambda run=run: f"run {run}: " in stopped.text(), what=f"the late holder of run {run}")  # type: ignore[misc]
    gates[0].touch()
    fleet.enqueue(6, payload={"seconds": 0.1})
    assert fleet.until_ended() == {"succeeded": 8}
    assert fleet.rows("select * from runs where state = 'lost' order by id") == before
    sound(fleet)


def test_processes_that_jobs_stop_for_good_are_replaced(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """The worker kills a holder whose run is over and which does not end, so that its slots come back."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    (build,) = fleet.muster()
    fleet.enqueue(3, payload={"stop": "holder", "seconds": 600}, max_attempts=1)
    fleet.enqueue(4)
    fleet.until("select count(*) = 3 from jobs where state = 'failed'")
    assert fleet.until_ended() == {"failed": 3, "succeeded": 4}
    until(lambda: not any(stopped(pid) for pid in build.pool()), what="the end of all stopped processes")
    assert build.running
    sound(fleet)


def test_processes_that_are_stopped_while_they_wait_are_replaced(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Also those of the worker that routes, and those that are given a run, and never begin it."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    (build,) = fleet.muster()
    struck = [*build.pool(), *fleet.members[0].pool()]
    for pid in struck:
        os.kill(pid, signal.SIGSTOP)
    fleet.enqueue(4)
    assert fleet.until_ended() == {"succeeded": 4}
    for pid in struck:
        until(gone(pid), what=f"the end of the stopped process {pid}")
    sound(fleet)


def test_a_worker_that_ends_does_not_wait_for_a_stopped_holder(open_fleet: Callable[..., Fleet]) -> None:
    """One that is asked to end lets runs at work end, and kills what does nothing."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 1}})
    (build,) = fleet.muster()
    fleet.enqueue(payload={"stop": "holder", "seconds": 600}, max_attempts=1)
    fleet.until("select count(*) = 1 from jobs where state = 'failed'")
    assert build.end() == 0
    fleet.until_nothing_runs()


def test_a_build_message_is_delivered_again_and_again(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Copies that come while the run is at work, and after it, start nothing."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 3}})
    (build,) = fleet.muster()
    gate = fleet.gate("all")
    (job,) = fleet.enqueue(payload={"gate": str(gate)})
    ((run, *_),) = fleet.until_working()
    token = int(fleet.value(f"select token from runs where id = {run}"))
    copies = [Build(run, token, "near", job, "default", 1)] * 3
    refusal = f"run {run}: not started here"
    assert fleet.installation.publisher.builds(copies) == 3
    until(lambda: build.text().count(refusal) == 3, what="three refusals while it runs")
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 1}
    assert fleet.installation.publisher.builds(copies) == 3
    until(lambda: build.text().count(refusal) == 6, what="three refusals after its end")
    assert len(works(fleet.labour_log)) == 1
    sound(fleet)


def test_cancelling_ends_whole_trees_at_once(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """The holder is told by a nudge, long before its next renewal; one that ignores TERM is killed after the grace."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}, "lease_seconds": 90})
    fleet.muster()
    (mild,) = fleet.enqueue(payload={"seconds": 600})
    (stubborn,) = fleet.enqueue(payload={"seconds": 600, "family": True})
    fleet.until_working(2)
    until(lambda: len(_processes(fleet, stubborn)) == 2, what="both processes of the stubborn tree")
    assert control.cancel(fleet.installation, mild).state == "running"
    assert control.cancel(fleet.installation, stubborn).state == "running"
    fleet.until(f"select state = 'cancelled' from jobs where id = {mild}")
    assert fleet.until_ended() == {"cancelled": 2}
    assert fleet.rows("select distinct state from runs") == [("cancelled",)]
    sound(fleet)


def _processes(fleet: Fleet, job: int) -> set[str]:
    lines = (line.split() for line in fleet.labour_log.read_text(encoding="utf-8").splitlines())
    return {words[4] for words in lines if int(words[2]) == job}


def test_jobs_are_cancelled_while_every_worker_is_down(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Queued and granted jobs end at once; one whose holder died ends when its lease is found over."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}, "lease_seconds": 6})
    (build,) = fleet.muster()
    (running,) = fleet.enqueue(payload={"seconds": 600})
    fleet.until_working()
    build.kill()
    granted, queued = fleet.enqueue(2)
    fleet.until(f"select state = 'granted' from jobs where id = {granted}")
    for member in fleet.members:
        member.clear()
    assert fleet.states() == {"running": 1, "granted": 1, "queued": 1}
    for job, state in ((running, "running"), (granted, "cancelled"), (queued, "cancelled")):
        assert control.cancel(fleet.installation, job).state == state
        assert fleet.rows(f"select state from jobs where id = {job}") == [(state,)]
    fleet.control("control2")
    fleet.beat("beat2")
    assert fleet.until_ended() == {"cancelled": 3}
    sound(fleet)
