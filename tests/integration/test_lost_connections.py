"""Connections to Postgres that are reset: lost ones, whatever the driver calls the error."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.support.chaos.proxy import Proxy
from tests.support.databases import query
from tests.support.wait import until
from vibey import embedded
from vibey.domain.errors import ServiceUnavailable
from vibey.store.database import Connection, Database
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOW = Statement("test-slow", "an answer that takes a while", "select pg_sleep(0.5), 7 as seven")
ONE = Statement("test-one", "an answer, prepared like those of every job", "select 1", prepared=True)
ASLEEP = "select count(*) from pg_stat_activity where query like '%test-slow%' and query not like '%pg_stat%'"


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A way to the database that can be cut."""
    proxy = Proxy(urlsplit(database_url).port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def database(proxy: Proxy, database_url: str) -> Iterator[Database]:
    """The database through the proxy."""
    database = Database(_through(proxy, database_url))
    yield database
    database.dispose()


def _through(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}"))


def _cut_once(proxy: Proxy, database_url: str) -> threading.Thread:
    def cut() -> None:
        until(lambda: query(database_url, ASLEEP) != [(0,)], what="the statement at work")
        proxy.cut(1.0)

    thread = threading.Thread(target=cut)
    thread.start()
    return thread


def _sevens(connection: Connection) -> int:
    row = SLOW.first(connection)
    assert row is not None
    return int(row.seven)


def test_repeatable_work_is_tried_again(proxy: Proxy, database: Database, database_url: str) -> None:
    """Nobody hears of a reset under a statement, or under a transaction, that may be repeated."""
    for work in (database.statement, database.run):
        cutter = _cut_once(proxy, database_url)
        assert work(_sevens) == 7
        cutter.join()


def test_work_that_must_not_be_repeated_says_that_postgres_is_away(
    proxy: Proxy, database: Database, database_url: str
) -> None:
    """What became of it is not known: the caller is told in the words of every other outage."""
    cutter = _cut_once(proxy, database_url)
    with pytest.raises(ServiceUnavailable, match="Postgres"):
        database.once(_sevens)
    cutter.join()


def test_connections_reset_while_they_were_idle_are_replaced(proxy: Proxy, database: Database) -> None:
    """Neither work that may be repeated nor work that must not hears of it."""
    for work in (database.statement, database.run, database.once):
        assert work(_ones) == 1
        assert proxy.cut(1.0) >= 1
        assert work(_ones) == 1


def _ones(connection: Connection) -> int:
    return int(ONE.scalar(connection))


def test_a_server_that_says_it_ends_before_a_reset_is_an_outage_too(data_dir: Path) -> None:
    """Its last word lies unread on the idle connection: then the driver calls the loss a mere DatabaseError."""
    servers = embedded.ensure(data_dir)
    proxy = Proxy(urlsplit(servers.database_url).port or 5432)
    database = Database(_through(proxy, servers.database_url))
    try:
        for work in (database.statement, database.run, database.once):
            assert work(_ones) == 1
            postgres = embedded.status(data_dir)[0].pid
            assert postgres is not None
            os.kill(postgres, signal.SIGQUIT)
            until(lambda: embedded.status(data_dir)[0].pid is None, what="the server's end")
            assert embedded.ensure(data_dir) == servers
            assert work(_ones) == 1
    finally:
        database.dispose()
        proxy.close()
