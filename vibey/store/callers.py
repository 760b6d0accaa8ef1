"""Callers: the transaction of a program that uses SQLAlchemy itself, so that a job commits or vanishes with its work.

The caller's connection must reach the very tables of the installation: same server, same database, same schema. That
is asked each time, because a pool may lead elsewhere and a search path may change.

The wake-up follows the commit. SQLAlchemy tells of a commit before it is done, and of nothing after it, so a call is
kept beside the connection: `commit` marks it as due, `rollback` drops it, and it is made when the connection goes back
to its pool or begins its next transaction, whichever is first. A savepoint changes nothing: what it takes back is a
row, and a wake-up without a row is one look for nothing. Whoever keeps an idle connection after its commit, or dies
right after it, leaves the job to the next tick.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, scoped_session

from vibey.domain.errors import InvalidInput, Refused
from vibey.store.database import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from vibey.store.database import Database

log = logging.getLogger("vibey.callers")

DRIVERS = frozenset({"psycopg", "psycopg2"})
EXPECTED = "an open SQLAlchemy Connection or Session on psycopg2 or psycopg"
HOPING, DUE = "vibey.hoping", "vibey.due"


def connection_of(caller: object) -> Connection:
    """The connection behind what a caller passed; InvalidInput when its statements cannot be ours."""
    if isinstance(caller, scoped_session | Session):
        caller = caller.connection()
    if not isinstance(caller, Connection):
        raise InvalidInput("connection", type(caller).__name__, EXPECTED)
    if caller.dialect.driver not in DRIVERS or caller.dialect.is_async:
        raise InvalidInput("connection", f"{caller.dialect.name}+{caller.dialect.driver}", EXPECTED)
    return caller


def require_same(database: Database, connection: Connection) -> None:
    """Refused unless the connection reaches the tables of this database."""
    if identity_of(connection) != database.identity():
        address = connection.engine.url
        raise Refused(
            f"the connection leads to {address.database!r} on {address.host or 'this host'}, not to the installation's "
            "tables, so no job can be part of its transaction",
            "pass a connection to the installation's database with its schema in the search path, or none",
        )


def after_commit(connection: Connection, call: Callable[[], None]) -> None:
    """Make the call once the connection's transaction has been committed, and never if it is rolled back."""
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
    _make(connection.info)


def _returned(_: object, record: Any) -> None:  # noqa: ANN401  SQLAlchemy's record of a pooled connection
    record.info.pop(HOPING, None)
    _make(record.info)


def _make(info: MutableMapping[Any, Any]) -> None:
    for call in info.pop(DUE, ()):
        try:
            call()
        except Exception as error:  # noqa: BLE001  the caller's work is committed: the tick does what is left
            log.warning("could not wake the router: %s", error)
