"""Connections that nobody uses are given back to the server, and those in use are kept."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from tests.support.databases import leave, query, renamed
from tests.support.wait import until
from vibey.store.database import PING, Database
from vibey.store.pool import IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKEND = "select pg_backend_pid()"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The test's database, to which nothing else is connected."""
    leave(database_url)
    opened = Database(database_url)
    yield opened
    opened.dispose()


def backends(database: Database) -> set[int]:
    """The server's processes for this database, asked by way of another one."""
    name = database.url.rpartition("/")[2].partition("?")[0]
    rows = query(renamed(database.url, "postgres"), f"select pid from pg_stat_activity where datname = '{name}'")
    return {int(str(pid)) for (pid,) in rows}


def backend(database: Database) -> int:
    """The server's process that answers one statement."""
    with database.autocommit() as connection:
        return int(connection.exec_driver_sql(BACKEND).scalar_one())


def use(database: Database, count: int) -> None:
    """Use so many connections at the same time."""
    together = threading.Barrier(count)

    def work() -> None:
        with database.begin() as connection:
            PING.run(connection)
            together.wait(30)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def closers() -> int:
    """How many threads of this process close idle connections."""
    return sum(thread.name == "vibey-idle" for thread in threading.enumerate())


def test_every_idle_connection_is_closed_the_last_one_included(database: Database) -> None:
    """Five were open at once; some seconds later none is, and the next statement opens another."""
    before = closers()
    use(database, 5)
    assert len(backends(database)) == 5
    assert closers() == before + 1
    until(lambda: not backends(database), seconds=3 * IDLE_SECONDS, what="the end of all idle connections")
    until(lambda: closers() <= before, what="the end of the thread that closed them")
    assert {backend(database)} == backends(database)
    database.dispose()
    until(lambda: closers() <= before, what="the end of the thread once there is nothing to close")


def test_what_is_used_stays_open_in_each_process(database: Database) -> None:
    """One that is used now and then, one in a long transaction; a forked child closes its own connection alone."""
    use(database, 5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(backend(database)).encode())
            threading.Event().wait(10 * IDLE_SECONDS)
        finally:
            os._exit(0)
    try:
        childs = int(os.read(reading, 20))
        with database.begin() as connection:
            long = connection.exec_driver_sql(BACKEND).scalar_one()
            often = backend(database)
            assert {long, often, childs} < backends(database)

            def only_those_in_use_are_left() -> bool:
                assert backend(database) == often
                return backends(database) == {long, often}

            until(only_those_in_use_are_left, seconds=3 * IDLE_SECONDS, what="two connections alone")
            assert connection.exec_driver_sql(BACKEND).scalar_one() == long
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child ended, which closes everything"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
