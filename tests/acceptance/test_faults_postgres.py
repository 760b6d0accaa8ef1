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
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def fleet(data_dir: Path, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on embedded servers of its own, with a lease that is longer than a restart."""
    services = embedded.ensure(data_dir)
    migrate.upgrade(services.database_url)
    tables = {"engine": {"near": {}}, "engines": {"slots": {"near": 4}, "lease_seconds": 12}}
    fleet = Fleet(tmp_path, None, "test:", tables)
    yield fleet
    fleet.close()


def _crash(data_dir: Path) -> None:
    """End the server at once, without a checkpoint, as a power cut would."""
    pid = embedded.status(data_dir)[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    until(lambda: embedded.status(data_dir)[0].pid is None, what="the end of Postgres")


def test_postgres_is_restarted_under_running_jobs(
    fleet: Fleet, data_dir: Path, sound: Callable[[Fleet], None]
) -> None:
    """Running work goes on and settles, the one that ended meanwhile too; no lease is judged; enqueueing says why not."""
    fleet.muster()
    gates = [fleet.gate(str(number)) for number in range(3)]
    for gate in gates:
        fleet.enqueue(payload={"gate": str(gate)})
    fleet.until_working(3)
    fleet.enqueue(3, payload={"seconds": 0.05})
    _crash(data_dir)
    gates[0].touch()
    before = time.monotonic()
    with pytest.raises(ServiceUnavailable, match=r"Postgres is unreachable .*vibey up"):
        fleet.enqueue()
    assert time.monotonic() - before < 2
    until(lambda: "end 1 1 near" in fleet.labour_log.read_text(encoding="utf-8"), what="the first job's end")
    embedded.ensure(data_dir)
    fleet.until("select state = 'succeeded' from jobs where id = 1", what="the job that ended meanwhile to settle")
    fleet.until("select count(*) = 4 from jobs where state = 'succeeded'", what="queued jobs to be run")
    gates[1].touch()
    fleet.until("select judge_after < clock_timestamp() from installation")
    gates[2].touch()
    assert fleet.until_ended() == {"succeeded": 6}
    assert fleet.rows("select distinct state from runs") == [("succeeded",)]
    sound(fleet)
