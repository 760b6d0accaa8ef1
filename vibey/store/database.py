"""The connection to Postgres: one engine per process, whole transactions retried, drivers' errors translated.

A connection is never shared across a fork: each process that touches the database makes its own engine on
first use, keyed by its pid. One that has been idle for some seconds is closed (`vibey.store.pool`). No transaction
spans outside work, and the server ends one that idles.

The driver is in autocommit mode throughout and transactions are begun in SQL: switching a connection between
the driver's modes would cost a question to the server each time, and such questions are most of what a job costs.

Retried are deadlocks, serialisation failures, lock time-outs and lost connections, always as a whole
transaction, so what is passed to `run` must be safe to repeat even when its first try did commit and only
the answer was lost. Work that is not safe to repeat uses `begin`, which tries once.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from vibey.domain.errors import Contended, ServiceUnavailable, UnsuitableService
from vibey.domain.faults import fault_of_sql, first_line
from vibey.store.connecting import make_engine
from vibey.store.pool import IdleClosingPool
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.engine.interfaces import DBAPIConnection

T = TypeVar("T")

# Serialisation failure, deadlock, lock time-out.
RETRIED_STATES = frozenset({"40001", "40P01", "55P03"})
PING = Statement("ping", "whether the server answers", "select 1")
MAX_CONNECTIONS = Statement(
    "max-connections",
    "how many connections the server takes of everybody together",
    "select current_setting('max_connections')::int",
)
IDENTITY = Statement(
    "identity",
    "what tells these very tables from any others: the server, the database, and each table a job is enqueued with",
    """select (select system_identifier from pg_control_system())::text as server,
              (select oid from pg_database where datname = current_database())::bigint as database,
              to_regclass('jobs')::oid::bigint as jobs, to_regclass('ledger')::oid::bigint as ledger,
              to_regclass('projects')::oid::bigint as projects, to_regclass('engines')::oid::bigint as engines,
              to_regclass('pools')::oid::bigint as pools,
              to_regclass('installation')::oid::bigint as installation""",
)
BEGIN = Statement("begin", "begin a transaction", "begin isolation level read committed")
COMMIT = Statement("commit", "commit a transaction", "commit")
ROLLBACK = Statement("rollback", "undo a transaction", "rollback")
REMEDY = "check that it runs and that database_url is right, or run: vibey up"
TRIES = 4
PAUSE_SECONDS = 0.05


__all__ = ["Connection", "Database", "identity_of", "is_undone", "translated"]


class Database:
    """A Postgres database by URL. Cheap to make; connects on first use; safe across fork."""

    def __init__(self, url: str, *, pool_size: int = 5, max_connections: int | None = None) -> None:
        """Remember the URL; nothing is opened yet. `max_connections` is the server's, if known: else it is asked."""
        self.url = url
        self._pool_size = pool_size
        self._max_connections = max_connections
        self._engines: dict[int, Engine] = {}
        self._identity: tuple[object, ...] | None = None

    def identity(self) -> tuple[object, ...]:
        """What `identity_of` says of a connection to this very database; asked once."""
        if self._identity is None:
            self._identity = self.statement(identity_of)
        return self._identity

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction, committed on leaving and rolled back on an error; tried once, so on a tried connection."""
        with self._translated(), self._answering() as connection, _transaction(connection):
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """A connection on which every statement is a transaction of its own: one round trip each."""
        with self._translated(), self._engine().connect() as connection:
            yield connection

    def once(self, work: Callable[[Connection], T]) -> T:
        """Run work that must not be repeated once it may have been committed.

        Tried again only when the database has undone it for sure; a connection lost on the way is told to the caller.
        """
        return _retrying(self.begin, work, even_if_lost=False)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run repeatable work in one transaction, trying the whole again when the database asks for it."""
        return _retrying(self._begin_untried, work)

    def statement(self, work: Callable[[Connection], T]) -> T:
        """Run one repeatable statement as its own transaction, trying again when the database asks for it."""
        return _retrying(self.autocommit, work)

    def dispose(self) -> None:
        """Close this process's connections; those of a parent process are only forgotten."""
        for pid, engine in self._engines.items():
            engine.dispose(close=pid == os.getpid())
        self._engines = {}

    @contextmanager
    def _begin_untried(self) -> Iterator[Connection]:
        with self._translated(), self._engine().connect() as connection, _transaction(connection):
            yield connection

    def _answering(self) -> Connection:
        """A connection that answers: one from the pool may have died with the server before this one."""
        connection = self._engine().connect()
        try:
            PING.run(connection)
        except DBAPIError as error:
            connection.close()
            if not error.connection_invalidated:
                raise
            connection = self._engine().connect()
        return connection

    def _engine(self) -> Engine:
        pid = os.getpid()
        if pid not in self._engines:
            for inherited in self._engines.values():
                inherited.dispose(close=False)
            self._engines = {pid: self._new_engine()}
        return self._engines[pid]

    def _new_engine(self) -> Engine:
        engine = make_engine(
            self.url,
            poolclass=IdleClosingPool,
            pool_size=self._pool_size,
            max_overflow=20,
            isolation_level="AUTOCOMMIT",
        )
        if self._max_connections is None:
            # A server that takes no more connections does not tell how many it takes.
            event.listen(engine, "first_connect", self._learn_max_connections)
        return engine

    def _learn_max_connections(self, connection: DBAPIConnection, _: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(MAX_CONNECTIONS.sql)
            (self._max_connections,) = cursor.fetchone() or (None,)

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._max_connections)


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    BEGIN.run(connection)
    try:
        yield
    except BaseException:
        _roll_back(connection)
        raise
    COMMIT.run(connection)


def _roll_back(connection: Connection) -> None:
    """End a failed transaction; a connection that cannot even do that is thrown away."""
    if connection.invalidated:
        return
    try:
        ROLLBACK.run(connection)
    except DBAPIError:
        connection.invalidate()


def _retrying(
    opened: Callable[[], AbstractContextManager[Connection]],
    work: Callable[[Connection], T],
    *,
    even_if_lost: bool = True,
) -> T:
    for tried in range(1, TRIES + 1):
        try:
            with opened() as connection:
                return work(connection)
        except ServiceUnavailable:
            if not even_if_lost or tried == TRIES:
                raise
        except DBAPIError as error:
            if not is_undone(error):
                raise
            if tried == TRIES:
                raise Contended(str(error.orig).strip().splitlines()[0]) from error
        time.sleep(PAUSE_SECONDS * tried)
    raise AssertionError(TRIES)


def identity_of(connection: Connection) -> tuple[object, ...]:
    """Which server, database and tables the connection's statements reach."""
    return tuple(IDENTITY.all(connection)[0])


def is_undone(error: DBAPIError) -> bool:
    """Whether the database has undone the transaction for a reason that may be gone the next time."""
    return getattr(error.orig, "pgcode", None) in RETRIED_STATES


@contextmanager
def translated(max_connections: int | None = None) -> Iterator[None]:
    """Turn a lost or refused connection, and what the server lacks or does not allow, into `ServiceUnavailable`.

    Other database errors pass as they are. `max_connections` is the server's, where it is known.
    """
    try:
        yield
    except DBAPIError as error:
        code = getattr(error.orig, "pgcode", None)
        text = str(error.orig)
        if fault := fault_of_sql(code, text, max_connections=max_connections):
            raise fault from error
        if code is None and text.startswith("invalid dsn"):
            # What libpq quotes of an address may hold its password.
            problem = first_line(text).partition(': "postgres')[0]
            raise UnsuitableService("Postgres", problem, "correct database_url") from error
        # A connection reset in the middle of an answer is a mere DatabaseError to the driver, without a code.
        gone = error.connection_invalidated or (_is_operational(error) and (not code or code.startswith(("08", "57P"))))
        if not gone:
            raise
        raise ServiceUnavailable("Postgres", first_line(text), REMEDY) from error


def _is_operational(error: DBAPIError) -> bool:
    return type(error).__name__ in {"OperationalError", "InterfaceError", "DisconnectionError", "DBAPIError"}
