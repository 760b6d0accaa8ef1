"""Connections: whether Postgres allows what the fleet may need at once, as `vibey.domain.connections` counts it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from vibey.domain import connections
from vibey.domain.errors import Refused, TooManyConnections, VibeyError
from vibey.engines.moment import Moment
from vibey.services.checks import Check, State
from vibey.services.programs import CONTROL_PROCESSES, SPARE_PROCESSES
from vibey.store import fleet, suitability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from vibey.domain.connections import Allowance
    from vibey.services.installation import Installation
    from vibey.settings import Settings
    from vibey.store.database import Connection

T = TypeVar("T")
PAUSE_SECONDS = 0.5


def server_size(settings: Settings) -> int:
    """The `max_connections` that the embedded server is started with, for the slots that are configured."""
    return connections.of_server((CONTROL_PROCESSES, build_processes(settings)))


def build_processes(settings: Settings) -> int:
    """The processes of a build worker that serves every engine configured."""
    return sum(settings.slots_of(name) for name in settings.engine) + SPARE_PROCESSES


def check(installation: Installation) -> Iterator[Check]:
    """What the fleet may need and what the database allows: all live workers, or the slots in force if that is more."""

    def read(connection: Connection) -> tuple[Allowance | None, int]:
        content = installation.in_force(connection).content
        return suitability.allowance(connection), max(
            connections.of_fleet(_live(connection, installation).values()), 0 if content is None else _needed(content)
        )

    allowance, needed = installation.database.run(read)
    if allowance is None:
        yield Check("connections", State.OK, f"up to {needed} needed, from a pooler with limits of its own")
        return
    left = allowance.allowed - allowance.connected
    detail = f"up to {needed} needed, {allowance.allowed} allowed by {allowance.limit}, {allowance.connected} in use"
    if needed > allowance.allowed or left < connections.COMMANDS:
        yield Check("connections", State.WARN, detail, _fix(allowance, needed, installation.settings))
    else:
        yield Check("connections", State.OK, detail)


def require_room(installation: Installation, worker: str, processes: int) -> None:
    """Refused where a worker with so many processes could never have the connections it needs by itself."""
    allowance = installation.database.statement(suitability.allowance)
    needed = connections.of_worker(processes)
    if allowance is not None and needed > allowance.allowed:
        raise Refused(
            f"worker {worker} needs up to {needed} connections to Postgres for its {processes} processes, and "
            f"{allowance.limit} allows {allowance.allowed}",
            _fix(allowance, needed, installation.settings),
        )


def effects(connection: Connection, wanted: Mapping[str, Any]) -> Iterator[str]:
    """What a generation that is put in force asks of the database beyond what it allows, as a sentence."""
    allowance, needed = suitability.allowance(connection), _needed(wanted)
    if allowance is not None and needed > allowance.allowed:
        yield (
            f"its slots need up to {needed} connections to Postgres, and {allowance.limit} allows {allowance.allowed}: "
            "see: vibey doctor"
        )


def patiently(
    work: Callable[[], T],
    seconds: float,
    *,
    errors: tuple[type[VibeyError], ...] = (TooManyConnections,),
    but: tuple[type[VibeyError], ...] = (),
    note: Callable[[VibeyError], None] | None = None,
) -> T:
    """Do what may be done several times; after one of these `errors` do it again, for so many seconds.

    By default that is while the database takes no more connections: others give theirs back, and a message that was
    taken from its queue is not sent again at once. The errors of `but` end it at once; `note` gets each of the others.
    """
    deadline = Moment.now().plus(seconds)
    while True:
        try:
            return work()
        except errors as error:
            if deadline.has_come() or isinstance(error, but):
                raise
            if note is not None:
                note(error)
        threading.Event().wait(PAUSE_SECONDS)


def _needed(content: Mapping[str, Any]) -> int:
    """What an installation on one machine needs under a generation."""
    return connections.of_fleet(_workers(sum(engine["slots"] for engine in content["engine"].values())))


def _workers(slots: int) -> tuple[int, int]:
    """The processes of the two workers of one machine, with a process for each slot."""
    return CONTROL_PROCESSES, slots + SPARE_PROCESSES


def _live(connection: Connection, installation: Installation) -> dict[str, int]:
    rows = fleet.PROCESSES.all(connection, presence_ms=installation.timing.presence_ms)
    return {row.name: row.concurrency for row in rows}


def _fix(allowance: Allowance, needed: int, settings: Settings) -> str:
    more = max(needed - allowance.allowed, connections.COMMANDS - (allowance.allowed - allowance.connected))
    lower = "or lower the slots of engines, or put a pooler before the server"
    if not settings.services.database_url and allowance.limit == connections.SERVER_LIMIT:
        return (
            f"run: vibey down, then: vibey up, which starts the embedded server with {server_size(settings)} unless "
            f"its own.conf says otherwise; {lower}"
        )
    return f"raise {allowance.limit} by {more}; {lower}"
