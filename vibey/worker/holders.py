"""Holders: the processes of a worker's pool, and the end of those that do nothing any more.

A process that holds a run may hang, or be stopped by the job itself, which runs as the same user. Its supervisor then
kills the work, the lease ends, and the job is run elsewhere; but the process stays, and each such process is one less
for the runs to come. That a process is busy is therefore no proof that it is well. At every beat the main process looks
for processes of its pool

- that are stopped;
- whose task is a build of a run that is not live any more, or that another process holds;
- whose task is a canary, which is one statement of a database that has just answered;
- that have not begun the task they were given.

One that is found again and again for longer than an orderly end takes, and than a lease lasts, is killed with whatever
is below it, and Celery starts another one. Nothing is run twice by that: a build message was acknowledged when it was
taken, and starts nothing without the run's token; a message that no process had begun is given to another one.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from billiard.process import current_process
from celery import signals
from celery.worker import state

from vibey.engines import orphans, processes, proctable
from vibey.publisher import BUILD_TASK, CANARY_TASK
from vibey.services.run import held_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.services.installation import Installation

log = logging.getLogger("vibey.holders")

# How long an orderly end may take at least: a supervisor tries for ten seconds to kill what it guards.
ENDING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Task:
    """A task that a process of the pool was given; `number` is the pool's own, `accepted` whether it was begun."""

    number: int
    pid: int
    name: str
    id: str
    accepted: bool

    @property
    def run(self) -> int | None:
        """The run that a build is about."""
        word = self.id.removeprefix("run-")
        return int(word) if self.name == BUILD_TASK and word.isdecimal() else None


class Holders:
    """The processes of one worker's pool, looked at by the worker's main process."""

    def __init__(self, pool: Any) -> None:  # noqa: ANN401  Celery's pool
        """Look at this pool; one that is not of processes has none to look at."""
        self._pool = pool
        self._seen: set[int] = set()
        self._idle: Counter[tuple[int, str]] = Counter()

    @property
    def busy(self) -> int:
        """How many processes have a task."""
        return max(len(state.active_requests), len(self._tasks()))

    def end_idle(self, installation: Installation, interval_seconds: float) -> None:
        """Kill processes that have done nothing for a lease, fifteen seconds at least, as looks this far apart show.

        Counted in looks, not in time: what happens while this process is stopped, or the database is away, is no fault
        of a holder. Raises VibeyError when the database does not answer.
        """
        found = {*self._stopped(), *self._over(installation)}
        self._idle = Counter({each: self._idle[each] + 1 for each in found})
        patience = max(ENDING_SECONDS, installation.timing.lease_ms / 1000)
        for (pid, why), looks in self._idle.items():
            if looks * interval_seconds > patience:
                _end(pid, why)

    def _stopped(self) -> Iterator[tuple[int, str]]:
        for process in list(getattr(self._processes, "_pool", ())):
            row = proctable.read(process.pid) if process.pid else None
            if row is not None and row.state == "T":
                yield row.pid, "is stopped"

    def _over(self, installation: Installation) -> Iterator[tuple[int, str]]:
        tasks = self._tasks()
        # Most tasks are shorter than a look is from the next: these cost no question.
        lasting = [task for task in tasks if task.number in self._seen]
        self._seen = {task.number for task in tasks}
        builds = [(task.run, task.pid) for task in lasting if task.accepted and task.run is not None]
        held = held_by(installation, builds) if lasting else set()
        for task in lasting:
            if not task.accepted:
                yield task.pid, f"has not begun task {task.id} (number {task.number})"
            elif task.name == CANARY_TASK:
                yield task.pid, f"is at work on canary {task.id}"
            elif task.run is not None and (task.run, task.pid) not in held:
                yield task.pid, f"is at work on run {task.run} (task {task.number}), which is not live here"

    def _tasks(self) -> list[Task]:
        """What the pool has given to its processes and not got back; Celery offers no other way to learn of all."""
        tasks = []
        for job in list(getattr(self._processes, "_cache", {}).values()):
            process = job._write_to or job._scheduled_for  # noqa: SLF001
            request = getattr(job._callback, "__self__", None)  # noqa: SLF001
            if process is not None and process.pid and request is not None and not job.ready():
                tasks.append(Task(job._job, process.pid, request.name, request.id, accepted=job.accepted()))  # noqa: SLF001
        return tasks

    @property
    def _processes(self) -> Any:  # noqa: ANN401  billiard's pool, below Celery's
        return getattr(self._pool, "_pool", None)


def _end(pid: int, why: str) -> None:
    row = proctable.read(pid)
    if row is None or row.parent != os.getpid():
        return  # it has ended meanwhile
    log.error("killing process %d of the pool: it %s", pid, why)
    processes.kill_descendants(pid)
    proctable.send(row, signal.SIGKILL)


@signals.worker_process_init.connect
def adopt_orphans(**_: object) -> None:
    """Have the orphans of a killed supervisor become children of this process of the pool."""
    if current_process().daemon:
        orphans.adopt()
