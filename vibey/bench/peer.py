"""Plain Celery beside Vibey: a worker of its own on another numbered database of the same broker.

It runs in the environment of peers where there is one, else in ours: the code, and Celery's version, are the same.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.bench.processes import Processes, surroundings
from vibey.domain.errors import VibeyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vibey.bench.laboratory import Laboratory

MODULE = "vibey.bench.plain_celery"
DATABASE = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A running plain Celery worker."""

    folder: Path
    environment: dict[str, str]
    python: str
    processes: Processes

    @classmethod
    @contextmanager
    def running(cls, laboratory: Laboratory, concurrency: int, database: str = "postgres") -> Iterator[Peer]:
        """Start its worker with so many pool processes; ready, and warm, on entering.

        `database` is where tasks of the kind `noted` find their table.
        """
        environment = {
            "BENCH_BROKER_URL": laboratory.redis_url(DATABASE),
            "BENCH_DATABASE_URL": laboratory.url(database),
        }
        arguments = ["-m", "celery", "-A", MODULE, "worker", "--concurrency", str(concurrency)]
        with Processes(laboratory.folder) as processes:
            python = laboratory.peers.celery
            processes.start("celery", [*arguments, "--loglevel", "WARNING"], environment, python=python)
            peer = cls(laboratory.folder, environment, python, processes)
            peer.jobs(10 * concurrency)
            yield peer

    def jobs(self, count: int) -> float:
        """No-op tasks a second, from the first send to the last end."""
        return self._rate("jobs", count)

    def noted(self, count: int) -> float:
        """As `jobs`, each task with its start and its end committed."""
        return self._rate("noted", count)

    def relay(self, count: int) -> list[float]:
        """Milliseconds from one task's send to the next one's start, `count` times."""
        return [float(each) for each in self._measured("relay", count)["milliseconds"]]

    def _rate(self, what: str, count: int) -> float:
        return count / float(self._measured(what, count)["seconds"])

    def _measured(self, what: str, count: int) -> dict[str, Any]:
        said = subprocess.run(
            [self.python, "-m", MODULE, what, str(count), str(self.folder)],
            capture_output=True,
            check=False,
            env=surroundings(self.environment),
            text=True,
        )
        if said.returncode != 0:
            raise VibeyError(f"plain Celery failed: {said.stderr.strip()[-500:]}")
        measured: dict[str, Any] = json.loads(said.stdout)
        return measured
