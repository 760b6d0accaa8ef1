"""Postgres without a free connection: no message is lost, and what is idle is given back."""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import psycopg2
import pytest

from tests.support.databases import plain
from tests.support.fleet import Fleet
from tests.support.wait import HANGING, until
from vibey import embedded
from vibey.store import migrate
from vibey.store.database import PING
from vibey.store.pool import IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SLOTS = 8
# Of these Postgres keeps 3 for superusers. The build worker alone may need 11, the whole fleet over 30.
MAX_CONNECTIONS = 20
# Of the main processes of both workers, of the two that tick, of beat, and of two that note canaries.
AT_REST = 7
OTHERS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@pytest.fixture
def fleet(data_dir: Path, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet that needs more connections at its peak than its server takes."""
    migrate.upgrade(embedded.ensure(data_dir, connections=MAX_CONNECTIONS).database_url)
    engines = {"slots": {"near": SLOTS}, "lease_seconds": 6}
    opened = Fleet(tmp_path, None, "test:", {"engine": {"near": {}}, "engines": engines})
    yield opened
    opened.close()


@pytest.mark.slow
def test_no_build_message_is_lost_and_idle_connections_are_given_back(
    fleet: Fleet, sound: Callable[[Fleet], None]
) -> None:
    """Grants that find no connection start once there is one; at rest the fleet has a few, whatever its slots are.

    A worker that could never have its own connections is refused at its start, and one that can is warned.
    """
    (build,) = fleet.muster()
    until(lambda: "connections: up to " in build.text(), seconds=HANGING, what="the warning of the build worker")
    fleet.enqueue(1, payload={})
    fleet.until_ended()
    gate = fleet.gate("all")
    with ExitStack() as held:

        def take_all() -> None:
            with suppress(psycopg2.OperationalError):
                while True:
                    held.enter_context(closing(psycopg2.connect(plain(fleet.url))))

        # This process has a connection to enqueue with; so has one that routes, as it ticks.
        fleet.installation.database.statement(PING.all)
        take_all()
        fleet.enqueue(SLOTS, payload={"gate": str(gate)})

        def a_message_found_no_connection() -> bool:
            take_all()
            return "task build: Postgres: the database server takes no more connections" in build.text()

        until(a_message_found_no_connection, seconds=HANGING, what="a message that finds no connection")
        assert f"all {MAX_CONNECTIONS} of max_connections are in use" in build.text()
    fleet.until_working(SLOTS)
    gate.touch()
    assert fleet.until_ended() == {"succeeded": SLOTS + 1}
    assert fleet.value("select max(attempt) from jobs") == 1
    assert fleet.labour_log.read_text(encoding="utf-8").count("start ") == SLOTS + 1
    until(lambda: fleet.value(OTHERS) <= AT_REST, seconds=4 * IDLE_SECONDS, what="idle connections to be given back")
    refused = fleet.build("many", "--concurrency", "16")
    assert refused.ended() != 0
    assert "worker many@" in refused.text()
    assert (
        "needs up to 18 connections to Postgres for its 16 processes, and max_connections allows 17" in refused.text()
    )
    sound(fleet)
