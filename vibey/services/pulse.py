"""Pulse: how a worker proves that it lives and consumes.

Which engines have a live worker is a Postgres row of the worker, renewed by a thread of its main process.
Being alive is not enough: a worker that reconnected to its broker may consume nothing for ever. So each
worker has a queue of its own, sends itself a canary through it, and a child of its pool writes down when
the canary sang. A worker whose pool has a free child and whose canary has been silent for too long, though
broker and database answer, ends itself; whoever supervises it starts another. A worker whose children are
all at work cannot sing and is not asked to: its runs renew their leases.

An engine without a live worker is full, not gone: a restarting worker never turns into paid fallback.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibey import __version__
from vibey.domain.errors import VibeyError
from vibey.store import fleet, jobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.services.installation import Installation
    from vibey.store.database import Connection


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's identity and what it serves.

    `slots` says how many runs of each engine it can have at work, None for as many as the engine may have at once;
    `generation` is the one it has read its file for, None for any. `problems` say why it does not serve some engines;
    one without a name is about the whole worker.
    """

    name: str
    engines: tuple[str, ...]
    concurrency: int
    slots: tuple[int, ...] | None = None
    generation: int | None = None
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The machine it runs on."""
        return socket.gethostname()


def appear(installation: Installation, worker: Worker) -> int:
    """Say that a worker lives; returns for how many milliseconds its canary has been silent."""

    def work(connection: Connection) -> int:
        return int(
            fleet.SEE_WORKER.scalar(
                connection,
                name=worker.name,
                host=worker.host,
                pid=os.getpid(),
                engines=list(worker.engines),
                slots=None if worker.slots is None else list(worker.slots),
                generation=worker.generation,
                version=__version__,
                problems=json.dumps(dict(worker.problems)),
                concurrency=worker.concurrency,
            )
        )

    return installation.database.statement(work)


def sing(installation: Installation, name: str) -> None:
    """Note that a worker's canary was consumed."""
    installation.database.statement(lambda connection: fleet.CANARY.run(connection, name=name))


def leave(installation: Installation, worker: Worker) -> None:
    """Take a worker's row away; a database that does not answer lets it expire instead."""
    try:
        installation.database.statement(
            lambda connection: fleet.DROP_WORKER.run(connection, name=worker.name, pid=os.getpid())
        )
    except VibeyError:
        return


def wake_pools(installation: Installation) -> None:
    """Have every pool with due jobs looked at, because engines have just gained a worker."""
    for row in installation.database.statement(jobs.POOLS_DUE.all):
        installation.wake(row.pool)
