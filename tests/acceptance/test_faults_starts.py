"""How workers start and end: refusing what cannot work, letting running jobs finish."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.fleet import Fleet
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def unmigrated(empty_database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on a database without any table."""
    services = embedded.Services(empty_database_url, redis_url)
    fleet = Fleet(tmp_path, services, "test:", {"engine": {"near": {}}}, migrated=False)
    yield fleet
    fleet.close()


def test_a_worker_refuses_too_few_processes(open_fleet: Callable[..., Fleet]) -> None:
    """Fewer processes than slots would let granted runs wait for nothing; the message says how many are needed."""
    fleet = open_fleet(engine={"near": {}, "side": {}}, engines={"slots": {"near": 3}})
    worker = fleet.build("small", "--concurrency", "4")
    assert worker.ended() != 0
    assert "has --concurrency 4, but needs 5" in worker.text()
    assert "Traceback" not in worker.text()


def test_of_two_workers_with_one_name_the_second_ends(open_fleet: Callable[..., Fleet]) -> None:
    """On one machine at its next beat, or where the first is on another one before it starts; the first goes on."""
    fleet = open_fleet(engine={"near": {}})
    fleet.control("first")
    fleet.until_workers(1)
    first = fleet.value("select started_at from workers")
    name = str(fleet.value("select name from workers"))
    second = fleet.control("second", hostname=name)
    assert second.ended() == 0
    assert f"a worker {name} that began earlier lives: ending this one" in second.text()
    assert fleet.rows("select name, started_at from workers") == [(name, first)]
    fleet.rows("insert into workers (name, host, pid) values ('away@far', 'far', 7) returning name")
    third = fleet.control("third", hostname="away@far")
    assert third.ended() != 0
    assert "a worker away@far lives already: process 7 on far" in third.text()
    assert "Traceback" not in third.text()


def test_a_worker_refuses_a_wrong_schema(unmigrated: Fleet) -> None:
    """It starts nothing and names the command that mends it."""
    worker = unmigrated.control()
    assert worker.ended() != 0
    assert "run: vibey migrate" in worker.text()
    assert "Traceback" not in worker.text()


@pytest.mark.slow
def test_a_worker_told_to_end_lets_its_jobs_finish(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """It takes nothing new, its running job keeps its lease to the end, and the rest waits for the next worker."""
    fleet = open_fleet(engine={"near": {}})
    (build,) = fleet.muster()
    gate = fleet.gate("all")
    fleet.enqueue(2, payload={"gate": str(gate)})
    ((run, *_),) = fleet.until_working()
    build.signal(signal.SIGTERM)
    fleet.until("select count(*) = 0 from workers where name like 'build@%'")
    fleet.until(f"select lease_expires_at > started_at + interval '5 seconds' from runs where id = {run}")
    gate.touch()
    assert build.ended() == 0
    assert fleet.rows(f"select state from runs where id = {run}") == [("succeeded",)]
    assert fleet.states() == {"succeeded": 1, "queued": 1}
    fleet.build("build2")
    assert fleet.until_ended() == {"succeeded": 2}
    sound(fleet)
