"""Workers killed with -9 at their work: nothing is lost, nothing runs twice at once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support import trees
from tests.support.checker import violations, works
from tests.support.fleet import gone
from tests.support.wait import until
from vibey.services.control import cancel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Fleet


def test_the_control_worker_is_killed_while_it_routes(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Routing goes on where it stopped: with the pool's next child, or with the next control worker."""
    fleet = open_fleet(engine={"near": {}, "side": {}}, engines={"slots": {"near": 2, "side": 1}})
    fleet.muster()
    control = fleet.members[0]
    for burst in range(2):
        fleet.enqueue(10, payload={"seconds": 0.02})
        fleet.until(f"select count(*) >= {10 * burst + 3} from runs")
        for child in control.pool():
            os.kill(child, signal.SIGKILL)
    assert control.running
    fleet.enqueue(10, payload={"seconds": 0.02})
    fleet.until("select count(*) >= 23 from runs")
    control.kill()
    fleet.enqueue(10, payload={"seconds": 0.02})
    fleet.control("control2")
    assert fleet.until_ended() == {"succeeded": 40}
    sound(fleet)


def test_a_whole_build_worker_is_killed(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """Its trees die with it, its leases expire, and another worker runs the jobs again, once each."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 3}})
    first, _ = fleet.muster("build1", "build2")
    gate = fleet.gate("all")
    fleet.enqueue(3, payload={"gate": str(gate)})
    fleet.until_working(3)
    killed = {run for run, _, pid in fleet.until_working(3) if pid in first.pool()}
    first.kill()
    if not killed:
        pytest.fail("the killed worker had no run")
    fleet.until(f"select count(*) = {len(killed)} from runs where state = 'lost'")
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 3}
    assert {run for (run,) in fleet.rows("select id from runs where state = 'lost'")} == killed
    sound(fleet)


def test_one_child_of_a_build_worker_is_killed(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Only its own run is lost; its siblings and the worker go on, and the job is run again."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    (build,) = fleet.muster()
    gate = fleet.gate("all")
    fleet.enqueue(2, payload={"gate": str(gate)})
    (lost, _, holder), (kept, _, _) = fleet.until_working(2)
    os.kill(holder, signal.SIGKILL)
    fleet.until(f"select state = 'lost' from runs where id = {lost}")
    assert build.running
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 2}
    assert fleet.rows(f"select state from runs where id = {kept}") == [("succeeded",)]
    sound(fleet)


@pytest.mark.slow
def test_only_the_main_process_of_a_build_worker_is_killed(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Whatever its orphaned children still do, they hold their leases or lose them, and then they go."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    (build,) = fleet.muster()
    gate = fleet.gate("all")
    fleet.enqueue(4, payload={"gate": str(gate)})
    fleet.until_working(2)
    children = build.pool()
    build.signal(signal.SIGKILL)
    build.ended()
    fleet.build("build2")
    fleet.until("select count(*) = 1 from workers where name like 'build2@%'")
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 4}
    for child in children:
        until(gone(child), what=f"the orphaned child {child} to end")
    sound(fleet)


@pytest.mark.slow
def test_a_supervisor_is_killed(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """The holder sees it, kills the rest of the tree, and settles the run as Vibey's own failure."""
    fleet = open_fleet(engine={"near": {}})
    fleet.muster()
    gate = fleet.gate("all")
    fleet.enqueue(payload={"gate": str(gate)})
    ((run, _, holder),) = fleet.until_working()
    (guard,) = psutil.Process(holder).children()
    guard.kill()
    fleet.until(f"select state = 'failed' and failure_class = 'vibey' from runs where id = {run}")
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 1}
    sound(fleet)


@pytest.mark.parametrize("killed", ["guard", "both"])
def test_nothing_of_a_job_that_kills_its_supervisor_outlives_its_run(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None], killed: str
) -> None:
    """What it left behind without a mark is dead before the run has ended, and no second run is beside it.

    It is killed by the holder, or by the worker's main process where the job has killed the holder, too.
    """
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    fleet.muster()
    (job,) = fleet.enqueue(payload={"escapes": True, "kill": killed, "seconds": 30}, max_attempts=2)
    assert fleet.until_ended() == {"failed": 1}
    works_of_job = [work for work in works(fleet.labour_log) if work.job == job]
    assert len(works_of_job) == 2
    sound(fleet)


@pytest.mark.slow
def test_worker_and_supervisor_are_killed_together(open_fleet: Callable[..., Fleet]) -> None:
    """What then escapes of a tree is killed by the machine's next worker, before anything of the job runs again."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 2}})
    (build,) = fleet.muster()
    gate = fleet.gate("again")
    (again,) = fleet.enqueue(payload={"family": True, "gate": str(gate)})
    (dropped,) = fleet.enqueue(payload={"family": True, "seconds": 600})
    fleet.until_working(2)
    until(lambda: len(trees.living(fleet.installation.identity)) == 4, what="two trees of two")
    build.signal_all(signal.SIGSTOP)
    for guard in trees.supervisors(fleet.installation.identity):
        os.kill(guard, signal.SIGKILL)
    build.kill()
    fleet.until("select count(*) = 2 from runs where state = 'lost'")
    cancel(fleet.installation, dropped)
    assert len(trees.living(fleet.installation.identity)) == 2
    gate.touch()
    fleet.build("build2")
    assert fleet.until_ended() == {"succeeded": 1, "cancelled": 1}
    fleet.until_nothing_runs()
    first, second = (work for work in works(fleet.labour_log) if work.job == again)
    assert first.last < second.first
    found = violations(fleet.url, fleet.labour_log)
    assert all("was at work outside its time" in violation for violation in found), found


@pytest.mark.slow
def test_a_job_that_kills_its_worker_ends_failed(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Poison is tried as often as it may be, and meanwhile everybody else's jobs are run."""
    fleet = open_fleet(engine={"near": {}, "side": {}}, engines={"slots": {"near": 2, "side": 1}})
    (build,) = fleet.muster()
    (poison,) = fleet.enqueue(payload={"kill": "holder", "seconds": 30}, max_attempts=2)
    fleet.enqueue(20, payload={"seconds": 0.2})
    assert fleet.until_ended() == {"succeeded": 20, "failed": 1}
    assert fleet.rows(f"select state, attempt, reason from jobs where id = {poison}") == [
        ("failed", 2, "lost: the lease expired (attempt 2 of 2)")
    ]
    assert build.running
    assert len([work for work in works(fleet.labour_log) if work.job == poison]) == 2
    sound(fleet)


def test_memory_running_out_in_a_job_leaves_the_worker_as_it_is(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A MemoryError is the job's own failure; the worker's main process and its pool stay the same."""
    python = {"kind": "python", "callable": "tests.support.callables:work"}
    fleet = open_fleet(engine={"near": python}, engines={"slots": {"near": 2}})
    (build,) = fleet.muster()
    pool = build.pool()
    fleet.enqueue(2, payload={"how": "memory"}, max_attempts=2)
    fleet.enqueue(2, payload={"how": "plain"})
    assert fleet.until_ended() == {"succeeded": 2, "failed": 2}
    reasons = fleet.rows("select distinct reason from jobs where state = 'failed'")
    assert reasons == [("work: MemoryError: (attempt 2 of 2)",)]
    assert build.running
    assert build.pool() == pool
    sound(fleet)
