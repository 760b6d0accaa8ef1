"""Pulse: how a worker proves that it lives and consumes.

Which engines have a live worker is a Postgres row of the worker, renewed by a thread of its main process.
Being alive is not enough: a worker that reconnected to its broker may consume nothing for ever. So each
worker has a queue of its own, sends itself a canary through it, and a child of its pool writes down when
the canary sang. A worker whose pool has a free child and whose canary has been silent for too long, though
broker and database answer, ends itself; whoever supervises it starts another. A worker whose children are
all at work cannot sing and is not asked to: that each of them is at work on a run that is live is made sure of at every
beat (`vibey.worker.holders`).

Row and queue go by the worker's name. Two live workers with one name would take each other's canaries and write each
other's row, and a deaf one go unnoticed. So a canary carries its worker's mark, and a name is one live worker's: it is
refused to a second one at its start where the first is on another machine, and the one that began later ends at its
next beat where both believe that they are on the same one (containers may share the name of their host). Which of them
began first, the row itself says: its `started_at` is the worker's identity.

An engine without a live worker is full, not gone: a restarting worker never turns into paid fallback.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from vibey import __version__
from vibey.domain.errors import Refused, VibeyError
from vibey.services.connections import patiently
from vibey.store import fleet, jobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from vibey.services.installation import Installation
    from vibey.store.database import Connection

RENAME = "give each worker a name of its own with --hostname"


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


@dataclass(frozen=True, slots=True)
class Presence:
    """A worker's row as its last beat left it: since when it lives, and how long its canary has been silent."""

    started_at: datetime
    silent_ms: int


def require_name(installation: Installation, name: str) -> None:
    """Raise Refused for a worker's name that a live worker on another machine has."""
    presence_ms = installation.timing.presence_ms
    found = installation.database.statement(
        lambda connection: fleet.NAMESAKE.first(
            connection, name=name, host=socket.gethostname(), presence_ms=presence_ms
        )
    )
    if found is not None:
        where = f"process {found.pid} on {found.host}, seen {max(0.0, found.seen_seconds):.0f} s ago"
        raise Refused(
            f"a worker {name} lives already: {where}", f"{RENAME}, or wait {presence_ms / 1000:g} s if it has ended"
        )


def appear(installation: Installation, worker: Worker, since: datetime | None = None) -> Presence | None:
    """Say that a worker lives, and since when by its first beat; that one, with None, takes the name from any other.

    None when a worker that began earlier lives under the same name.
    """

    def work(connection: Connection) -> Presence | None:
        row = fleet.SEE_WORKER.first(
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
            since=since,
            presence_ms=installation.timing.presence_ms,
        )
        return None if row is None else Presence(row.started_at, row.canary_ms)

    return installation.database.statement(work)


def sing(installation: Installation, name: str) -> None:
    """Note that a worker's canary was consumed; waits for a connection, as the lack of one is no deafness."""
    note = partial(fleet.CANARY.run, name=name)
    patiently(lambda: installation.database.statement(note), installation.timing.canary_ms / 1000)


def leave(installation: Installation, worker: Worker, since: datetime) -> None:
    """Take a worker's row away; a database that does not answer lets it expire instead."""
    try:
        installation.database.statement(
            lambda connection: fleet.DROP_WORKER.run(connection, name=worker.name, since=since)
        )
    except VibeyError:
        return


def wake_pools(installation: Installation) -> None:
    """Have every pool with due jobs looked at, because engines have just gained a worker."""
    for row in installation.database.statement(jobs.POOLS_DUE.all):
        installation.wake(row.pool)
