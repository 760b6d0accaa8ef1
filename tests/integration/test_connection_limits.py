"""A server that takes few connections: who finds none says so, who needs too many is warned of or refused."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import psycopg2
import pytest

from tests.support.commandline import CommandLine
from tests.support.databases import leave, plain
from tests.support.installation import Bench, noop
from vibey import embedded
from vibey.domain.errors import Refused, TooManyConnections
from vibey.services import connections
from vibey.services.apply import plan
from vibey.services.checks import State
from vibey.services.doctor import check
from vibey.services.exposition import Scraper
from vibey.services.pulse import Worker, appear
from vibey.settings import Source, settings_of
from vibey.store import migrate
from vibey.store.database import PING, Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vibey.services.installation import Installation

TAKEN, ALLOWED = 33, 30
"""The server's `max_connections`, and how many of them are not kept for superusers."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Services]:
    """Servers of which Postgres takes few connections; migrated."""
    data_dir = tmp_path_factory.mktemp("small") / "data"
    embedded.ensure(data_dir, connections=TAKEN)
    try:
        found = embedded.ensure(data_dir)
        migrate.upgrade(found.database_url)
        yield found
    finally:
        embedded.destroy(data_dir)


@pytest.fixture
def vibey(small: embedded.Services, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line on the small server."""
    line = CommandLine(small.database_url, small.redis_url, tmp_path)
    yield line
    line.bench.close()


@contextmanager
def all_taken(url: str) -> Iterator[int]:
    """Hold every connection that the server gives the role; how many these are."""
    leave(url)
    with ExitStack() as held:
        count = 0
        while True:
            try:
                held.enter_context(closing(psycopg2.connect(plain(url))))
            except psycopg2.OperationalError:
                break
            count += 1
        yield count


def connection_checks(installation: Installation) -> list[tuple[State, str, str]]:
    """What doctor says of connections."""
    return [(each.state, each.detail, each.fix) for each in check(installation) if each.name == "connections"]


def test_every_way_in_names_a_server_that_takes_no_more_connections(vibey: CommandLine) -> None:
    """Commands with exit code 4, doctor, the exporter: with the number, and what to do."""
    url = vibey.bench.url
    with closing(psycopg2.connect(plain(url))):
        vibey.bench.installation.database.dispose()
        leave(url)
        scraper = Scraper(vibey.bench.installation)
        with all_taken(url):
            said = vibey("status", "--json")
            assert said.code == 4
            told = said.json["error"]
            assert told["kind"] == "too_many_connections"
            assert "takes no more connections" in told["message"]
            assert "raise max_connections" in told["fix"]
            for command in (("enqueue", "{}"), ("cancel", "1"), ("jobs",), ("apply", "--check")):
                said = vibey(*command)
                assert said.code == 4, command
                assert "takes no more connections" in said.complaint
            found = [each for each in vibey("doctor", "--json").json["checks"] if each["name"] == "postgres"]
            assert [each["state"] for each in found] == ["fail"]
            assert "takes no more connections" in found[0]["detail"]
            with pytest.raises(TooManyConnections):
                scraper.text()
    assert vibey("status").code == 0


def test_the_number_is_known_to_who_was_connected_before_and_of_an_embedded_server(small: embedded.Services) -> None:
    """A full server does not tell its limit; the record of an embedded one has it."""
    assert small.connections == TAKEN
    before, fresh = Database(small.database_url), Database(small.database_url, max_connections=small.connections)
    before.statement(PING.all)
    before.dispose()
    with all_taken(small.database_url):
        for database in (before, fresh):
            with pytest.raises(TooManyConnections, match=rf"all {TAKEN} of max_connections are in use") as caught:
                database.statement(PING.all)
            assert caught.value.allowed == TAKEN


def test_doctor_counts_the_slots_in_force_and_every_live_worker(vibey: CommandLine) -> None:
    """Of all machines; what is needed, what is allowed, and what to do about it."""
    bench = vibey.bench
    (state, detail, fix) = connection_checks(bench.installation)[0]
    assert f"{ALLOWED} allowed by max_connections" in detail
    needed = int(detail.split()[2])
    # `Bench` has one live worker with 64 processes
    assert needed > 64
    assert state is State.WARN
    assert f"raise max_connections by {needed - ALLOWED}" in fix
    appear(bench.installation, Worker("worker@elsewhere", (), 100))
    assert int(connection_checks(bench.installation)[0][1].split()[2]) == needed + 102


def test_a_worker_that_cannot_have_its_own_connections_is_refused(vibey: CommandLine) -> None:
    """What others need besides is for a warning: they may be idle."""
    installation = vibey.bench.installation
    connections.require_room(installation, "build@here", ALLOWED - 2)
    with pytest.raises(Refused, match=rf"build@here needs up to 31 connections .*{ALLOWED}.*raise max_connections by"):
        connections.require_room(installation, "build@here", ALLOWED - 1)


def test_applying_more_slots_than_the_server_has_connections_for_says_so(vibey: CommandLine) -> None:
    """In the preview, as every other effect."""
    bench = vibey.bench
    assert not [effect for effect in plan(bench.installation).effects if "connections" in effect]
    tables = {**bench.tables, "engines": {**bench.tables["engines"], "slots": {"near": 40}}}
    more = bench.installation.reread(settings_of(Source(None, vibey.config.parent, tables), {}))
    found = [effect for effect in plan(more).effects if "connections" in effect]
    assert len(found) == 1
    assert f"max_connections allows {ALLOWED}" in found[0]


def test_an_embedded_server_is_sized_by_the_slots(tmp_path: Path) -> None:
    """So many that a fleet of this file fits; a floor for few slots."""
    tables = {"engine": {"desk": noop()}, "services": {"data_dir": str(tmp_path)}, "engines": {"slots": {"desk": 2}}}
    assert connections.server_size(settings_of(Source(None, tmp_path, tables), {})) == 200
    tables["engines"] = {"slots": {"desk": 300}}
    many = settings_of(Source(None, tmp_path, tables), {})
    assert connections.build_processes(many) == 301
    assert connections.server_size(many) > 320


def test_the_limit_of_a_role_counts(small: embedded.Services, tmp_path: Path) -> None:
    """Where it is less than the server's."""
    bench = Bench(small.database_url, small.redis_url, tmp_path, {"engine": {"desk": noop()}})
    database = bench.installation.database
    with database.autocommit() as connection:
        connection.exec_driver_sql("alter database vibey connection limit 12")
    try:
        assert "12 allowed by the connection limit of the database" in connection_checks(bench.installation)[0][1]
    finally:
        with database.autocommit() as connection:
            connection.exec_driver_sql("alter database vibey connection limit -1")
        bench.close()
