"""How many connections to Postgres a fleet may need at once, and how many a server allows.

Connections that are not used are given back (`vibey.store.pool`), so a fleet that waits has a handful. What is counted
here is the peak: every process at work in the same second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A process of a worker's pool settles, routes and renews through one connection. The worker's main process renews its
# row while it cleans up after dead runs.
A_PROCESS = 1
A_WORKER = 2
BEAT = 1
FLOWER = 4
EXPORTER = 1
# For commands, clients and whatever else looks.
COMMANDS = 10
SERVER_LIMIT = "max_connections"
# An embedded server takes as many however few the slots are; Postgres keeps some of them for superusers.
LEAST_SERVER = 200
RESERVED = 3


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many connections the database allows Vibey, and the least of its limits, which says so.

    `connected` of all that the server takes are in use.
    """

    allowed: int
    limit: str
    connected: int

    @classmethod
    def of(cls, server: int, role: int, database: int, connected: int) -> Allowance:
        """The least of what the server takes of those without privileges, its role and its database; -1: no limit."""
        limits = {
            SERVER_LIMIT: server,
            "the connection limit of the role": role,
            "the connection limit of the database": database,
        }
        name, allowed = min(((name, n) for name, n in limits.items() if n >= 0), key=lambda each: each[1])
        return cls(allowed, name, connected)


def of_worker(processes: int) -> int:
    """What a worker with so many processes in its pool may need."""
    return A_PROCESS * processes + A_WORKER


def of_fleet(workers: Iterable[int]) -> int:
    """What workers with so many processes each may need together, with beat, Flower, the exporter and commands."""
    return sum(map(of_worker, workers)) + BEAT + FLOWER + EXPORTER + COMMANDS


def of_server(workers: Iterable[int]) -> int:
    """The `max_connections` of a server that one installation has for itself."""
    return max(LEAST_SERVER, of_fleet(workers) + RESERVED)
