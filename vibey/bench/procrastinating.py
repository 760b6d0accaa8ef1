"""Procrastinate beside Vibey: workers of its own, and a database of its own on the same Postgres."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.bench.peers import Dialogue
from vibey.bench.processes import Processes
from vibey.domain.errors import VibeyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.bench.laboratory import Laboratory

SCRIPT = "peer_procrastinate"
# One for each core of the machine the bars are for: its worker is a single process.
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Procrastinate:
    """Running Procrastinate workers and their producer."""

    producer: Dialogue
    processes: Processes

    @classmethod
    @contextmanager
    def running(cls, laboratory: Laboratory, concurrency: int) -> Iterator[Procrastinate]:
        """Start its workers, which share so many jobs at once; ready, and warm, on entering."""
        python = laboratory.peers.python
        if python is None:
            raise VibeyError("procrastinate is not among the peers")
        with laboratory.database("procrastinate") as name:
            environment = {"BENCH_DATABASE_URL": laboratory.url(name).replace("postgresql+psycopg2:", "postgresql:")}
            script = str(Path(__file__).with_name(f"{SCRIPT}.py"))
            with (
                Dialogue.begun(python, SCRIPT, laboratory.folder, environment, ["produce"]) as producer,
                Processes(laboratory.folder) as processes,
            ):
                producer.ask(count=0)
                for number in range(WORKERS):
                    share = str(max(1, concurrency // WORKERS))
                    processes.start(
                        f"procrastinate{number}", ["-I", script, "worker", share], environment, python=str(python)
                    )
                started = cls(producer, processes)
                started.jobs(10 * WORKERS)
                yield started

    def jobs(self, count: int) -> float:
        """No-op jobs a second, from before the first deferral to the last end."""
        return count / float(self.producer.ask(self.processes, count=count)["seconds"])
