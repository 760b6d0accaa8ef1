"""Callers: the transaction of a program with a connection of its own, so that a job commits or vanishes with its work.

Three kinds of callers are served. SQLAlchemy's `Connection` and `Session`, on psycopg2 or psycopg 3. A connection of
one of these drivers itself. And Django's `connection`, which is a wrapper around one. None of them is imported to be
recognised: a program that has such an object has imported what it needs.

The caller's connection must reach the very tables of the installation: same server, same database, same schema. That
is asked each time, because a pool may lead elsewhere and a search path may change.

**Which transaction.** Inside an open transaction the statements become part of it. A driver's connection outside of
one begins one with its first statement, as drivers do, and the caller commits it; in autocommit mode there is no such
transaction, so one is begun here and committed at once, and a batch is still enqueued whole or not at all.

**The wake-up follows the commit.** SQLAlchemy reports a commit before it is done, and nothing after it, so a call is
kept beside the connection: `commit` marks it as due, `rollback` drops it, and it is made when the connection goes back
to its pool or begins its next transaction, whichever is first. A savepoint changes nothing: what it takes back is a
row, and a wake-up without a row is one pass for nothing. Django's `on_commit` makes the call. A driver reports nothing
at all: there the next tick finds the job, unless the caller wakes the router itself. The same is true of a program that
keeps an idle connection after its commit, or that dies right after it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import namedtuple
from typing import TYPE_CHECKING, Any, cast

from psycopg2.extensions import cursor as psycopg2_cursor
from sqlalchemy import Connection, event
from sqlalchemy.util.concurrency import in_greenlet

from vibey.domain.errors import InvalidInput, Refused
from vibey.store.database import BEGIN, COMMIT, ROLLBACK, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from vibey.store.database import Database

log = logging.getLogger("vibey.callers")

DRIVERS = frozenset({"psycopg", "psycopg2", "psycopg_async"})
EXPECTED = (
    "an open connection on psycopg2 or psycopg: SQLAlchemy's Connection or Session, the driver's own, or Django's "
    "connection; from AsyncVibey also SQLAlchemy's AsyncConnection or AsyncSession on psycopg"
)
HOPING, DUE = "vibey.hoping", "vibey.due"
JSON_TYPES = frozenset({114, 3802})
"""The numbers that Postgres has for the types json and jsonb."""
IDLE = 0
"""The driver's transaction status outside of any transaction (PQTRANS_IDLE of libpq)."""


class CallerTransaction:
    """The transaction of a caller in which jobs are enqueued.

    `connection` takes this project's statements. Use as a context manager around them: what was begun here is
    committed or rolled back at its end; a transaction of the caller's is left open.
    """

    def __init__(self, caller: object) -> None:
        """Recognise the caller's object; InvalidInput when no statement of ours can be part of its transaction."""
        self._django: Any = caller if _is_django(caller) else None
        raw = caller if self._django is None else _raw_connection(self._django)
        self._driver = DriverConnection(raw) if _is_driver(raw) else None
        self.connection = cast("Connection", self._driver) if self._driver else _sqlalchemy_connection(raw)
        self._begun = False

    def __enter__(self) -> Connection:
        raw = self.connection.connection.driver_connection if self._driver is None else self._driver.raw
        if _commits_each_statement(raw):
            BEGIN.run(self.connection)
            self._begun = True
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._begun:
            (COMMIT if kind is None else ROLLBACK).run(self.connection)

    def require_same(self, database: Database) -> None:
        """Refused unless the connection reaches the tables of this database."""
        if identity_of(self.connection) != database.identity():
            name, host = self._driver.address() if self._driver else _address(self.connection)
            raise Refused(
                f"the connection leads to {name!r} on {host or 'this host'}, not to the installation's tables, so no "
                "job can be part of its transaction",
                "pass a connection to the installation's database with its schema in the search path, or none",
            )

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make the call once the transaction has been committed, where that becomes known; never after a rollback."""
        if self._django is not None:
            self._django.on_commit(lambda: _make_calls([call]))
        elif self._begun:
            _make_calls([call])
        elif self._driver is None:
            _call_after_commit(self.connection, call)


class DriverConnection:
    """A connection of psycopg2 or psycopg 3 with what `Statement` asks of a SQLAlchemy connection.

    The caller's own settings of the connection stay as they are, and none of them matters: cursors and rows are the
    driver's plain ones, whatever factories were chosen, and JSON is read here where the caller has the driver leave it
    as text, as Django does. Nothing is prepared on it.
    """

    def __init__(self, raw: Any) -> None:  # noqa: ANN401  either driver's connection
        self.raw = raw
        self.info: dict[str, object] = {"vibey.prepared": None}

    def address(self) -> tuple[str, str | None]:
        """The database's name and its host."""
        return self.raw.info.dbname, self.raw.info.host

    def exec_driver_sql(self, text: str, values: Mapping[str, object] | None = None) -> DriverResult:
        """Run one statement with `%(name)s` parameters."""
        with self._cursor() as cursor:
            cursor.execute(text, values or None)
            if cursor.description is None:
                return DriverResult([], cursor.rowcount)
            row = namedtuple("Row", [column[0] for column in cursor.description], rename=True)  # type: ignore[misc]  # noqa: PYI024
            is_json = [column[1] in JSON_TYPES for column in cursor.description]
            rows = [row(*map(_read_value, found, is_json)) for found in cursor.fetchall()]
            return DriverResult(rows, cursor.rowcount)

    def _cursor(self) -> Any:  # noqa: ANN401  either driver's cursor
        if _is_of(self.raw, "psycopg2"):
            return self.raw.cursor(cursor_factory=psycopg2_cursor)
        return sys.modules["psycopg"].Cursor(self.raw, row_factory=sys.modules["psycopg.rows"].tuple_row)


class DriverResult:
    """The rows of one statement, with the methods of SQLAlchemy's result that `Statement` calls."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def all(self) -> list[Any]:
        """Every row."""
        return self._rows

    def first(self) -> Any:  # noqa: ANN401  a row of any columns
        """The first row, or None."""
        return self._rows[0] if self._rows else None

    def scalar(self) -> Any:  # noqa: ANN401  any column type
        """The first column of the first row, or None."""
        return self._rows[0][0] if self._rows else None


def _commits_each_statement(raw: Any) -> bool:  # noqa: ANN401  either driver's connection
    """Whether it is in autocommit mode, and in no transaction that was begun by a statement."""
    return bool(raw.autocommit) and int(raw.info.transaction_status) == IDLE


def _read_value(value: Any, is_json: bool) -> Any:  # noqa: ANN401, FBT001  a column of any type
    return json.loads(value) if is_json and isinstance(value, str | bytes) else value


def _is_django(caller: object) -> bool:
    return getattr(caller, "vendor", None) == "postgresql" and hasattr(caller, "on_commit")


def _raw_connection(django: Any) -> object:  # noqa: ANN401  Django's wrapper
    django.ensure_connection()
    return django.connection


def _is_driver(caller: object) -> bool:
    """Whether it is a blocking connection of one of the drivers."""
    if _is_of(caller, "psycopg2"):
        return not getattr(caller, "async_", False)
    return _is_of(caller, "psycopg") and hasattr(caller, "transaction") and not hasattr(caller, "__aenter__")


def _is_of(caller: object, driver: str) -> bool:
    names = ("connection", "Connection")
    return any(kind.__module__.split(".")[0] == driver and kind.__name__ in names for kind in type(caller).__mro__)


def _sqlalchemy_connection(caller: object) -> Connection:
    orm = sys.modules.get("sqlalchemy.orm")
    if orm is not None and isinstance(caller, (orm.scoped_session, orm.Session)):
        caller = caller.connection()
    if not isinstance(caller, Connection):
        raise InvalidInput("connection", type(caller).__name__, EXPECTED)
    dialect = caller.dialect
    if dialect.driver not in DRIVERS or (dialect.is_async and not in_greenlet()):
        raise InvalidInput("connection", f"{dialect.name}+{dialect.driver}", EXPECTED)
    return caller


def _address(connection: Connection) -> tuple[str | None, str | None]:
    return connection.engine.url.database, connection.engine.url.host


def _call_after_commit(connection: Connection, call: Callable[[], None]) -> None:
    for name, listener in (("commit", _committed), ("rollback", _rolled_back), ("begin", _begun)):
        if not event.contains(connection, name, listener):
            event.listen(connection, name, listener)
    if not event.contains(connection.engine.pool, "checkin", _returned):
        event.listen(connection.engine.pool, "checkin", _returned)
    connection.info.setdefault(HOPING, []).append(call)


def _committed(connection: Connection) -> None:
    info = connection.info
    info.setdefault(DUE, []).extend(info.pop(HOPING, ()))


def _rolled_back(connection: Connection) -> None:
    connection.info.pop(HOPING, None)


def _begun(connection: Connection) -> None:
    _make_calls(connection.info.pop(DUE, ()))


def _returned(_: object, record: Any) -> None:  # noqa: ANN401  SQLAlchemy's record of a pooled connection
    record.info.pop(HOPING, None)
    _make_calls(record.info.pop(DUE, ()))


def _make_calls(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001  the caller's work is committed: the tick does what is left
            log.warning("could not wake the router: %s", error)
