"""Postgres gone and back: healthy work survives it, and whoever cannot be served is told so at once."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.fleet import Fleet
from tests.support.wait import until
from vibey import embedded
from vibey.domain.errors import ServiceUnavailable
from vibey.publisher import ENQUEUE_QUEUE, ENQUEUE_TASK, make_app
from vibey.services.installation import celery_configuration, service_urls
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def _send_enqueue(fleet: Fleet, **payload: float) -> None:
    """Ask for a job by message, as a producer without access to the database does."""
    app = make_app("producer", celery_configuration(fleet.settings, service_urls(fleet.settings)))
    app.send_task(ENQUEUE_TASK, kwargs={"payload": payload}, queue=ENQUEUE_QUEUE)
    app.close()


@pytest.fixture
def open_own_fleet(data_dir: Path, tmp_path: Path) -> Iterator[Callable[[int], Fleet]]:
    """A function that makes a fleet with a lease of so many seconds on servers of its own."""
    opened: list[Fleet] = []

    def opener(lease_seconds: int) -> Fleet:
        migrate.upgrade(embedded.ensure(data_dir).database_url)
        engines = {"slots": {"near": 4}, "lease_seconds": lease_seconds}
        opened.append(Fleet(tmp_path, None, "test:", {"engine": {"near": {}}, "engines": engines}))
        return opened[-1]

    yield opener
    for fleet in opened:
        fleet.close()


def _crash(data_dir: Path) -> None:
    """End the server at once, without a checkpoint, as a power cut would."""
    pid = embedded.status(data_dir)[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    until(lambda: embedded.status(data_dir)[0].pid is None, what="the end of Postgres")


def test_postgres_is_restarted_under_running_jobs(
    open_own_fleet: Callable[[int], Fleet], data_dir: Path, sound: Callable[[Fleet], None]
) -> None:
    """Running work goes on and settles, even what ended meanwhile; no lease is judged; enqueueing says why not."""
    fleet = open_own_fleet(12)
    fleet.muster()
    gates = [fleet.gate(str(number)) for number in range(3)]
    for gate in gates:
        fleet.enqueue(payload={"gate": str(gate)})
    fleet.until_working(3)
    fleet.enqueue(3, payload={"seconds": 0.05})
    _crash(data_dir)
    gates[0].touch()
    with pytest.raises(ServiceUnavailable, match=r"Postgres is unreachable .*vibey up"):
        fleet.enqueue()
    _send_enqueue(fleet, seconds=0.02)
    until(lambda: "end 1 1 near" in fleet.labour_log.read_text(encoding="utf-8"), what="the first job's end")
    embedded.ensure(data_dir)
    fleet.until("select state = 'succeeded' from jobs where id = 1", what="the job that ended meanwhile to settle")
    fleet.enqueue()
    fleet.until("select count(*) = 6 from jobs where state = 'succeeded'", what="queued jobs to be run")
    gates[1].touch()
    gates[2].touch()
    assert fleet.until_ended() == {"succeeded": 8}
    assert fleet.rows("select distinct state from runs") == [("succeeded",)]
    sound(fleet)


@pytest.mark.slow
def test_an_outage_outlasts_the_lease_of_work_that_is_done(
    open_own_fleet: Callable[[int], Fleet], data_dir: Path, sound: Callable[[Fleet], None]
) -> None:
    """An outage counts little of a lease: the holder has time to hand in what ended meanwhile."""
    fleet = open_own_fleet(3)
    fleet.muster()
    gate = fleet.gate("all")
    fleet.enqueue(4, payload={"gate": str(gate)})
    fleet.until_working(4)
    _crash(data_dir)
    gate.touch()
    until(lambda: fleet.labour_log.read_text(encoding="utf-8").count("end ") == 4, what="the programs' end")
    over = time.monotonic() + fleet.settings.engines.lease_seconds
    until(lambda: time.monotonic() > over, what="the end of every lease")
    embedded.ensure(data_dir)
    assert fleet.until_ended() == {"succeeded": 4}
    assert fleet.rows("select distinct state from runs") == [("succeeded",)]
    sound(fleet)


@pytest.mark.slow
def test_a_result_that_comes_after_its_run_was_taken_away_is_refused(
    open_own_fleet: Callable[[int], Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A holder whose connection hangs hands its success in too late: the job has long been run again."""
    fleet = open_own_fleet(6)
    (build,) = fleet.muster()
    gate = fleet.gate("all")
    (job,) = fleet.enqueue(payload={"gate": str(gate)})
    ((run, _, holder),) = fleet.until_working()
    fleet.until(f"select renewed_at > started_at from runs where id = {run}", what="a renewal, the next being far")
    backends = fleet.rows(f"select pid from pg_stat_activity where application_name = 'vibey-{holder}'")
    for (pid,) in backends:
        os.kill(pid, signal.SIGSTOP)
    gate.touch()
    try:
        fleet.until(f"select count(*) = 2 from runs where job_id = {job} and state in ('lost', 'succeeded')")
        before = fleet.rows("select * from runs order by id")
    finally:
        for (pid,) in backends:
            os.kill(pid, signal.SIGCONT)
    until(lambda: f"run {run}: ended too late" in build.text(), what="the refusal")
    assert fleet.rows("select * from runs order by id") == before
    assert fleet.states() == {"succeeded": 1}
    sound(fleet)
