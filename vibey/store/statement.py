"""Statement: one piece of SQL with a name and a purpose. All SQL of the project is made of these.

The server parses and plans a statement anew each time it is sent, and for a small one that is most of the work.
One marked `prepared` is parsed once per connection and planned at most a few times. That is for statements that
reach their rows by key, whose plan is right whatever the tables have grown to; the others are better planned for
the tables as they are.

A prepared statement lives in one server process. A pooler such as PgBouncer may put another one behind the same
connection with each transaction, which does not know the statement, or knows it from somebody else; and a transaction
that trips over it is lost. So nothing is prepared behind one. It gives itself away: the number of the server process
that the connection was promised at its start is not that of the process that answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, CursorResult

__all__ = ["Row", "Statement", "is_pooled"]

PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class Statement:
    """SQL with `%(name)s` parameters. The name leads it as a comment, so that the server's views show it."""

    name: str
    purpose: str
    sql: str
    prepared: bool = False
    _text: str = field(init=False, repr=False)
    _preparation: str = field(init=False, repr=False)
    _execution: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compose the texts sent to the server once."""
        text = f"/* vibey:{self.name} */ {self.sql}"
        known = f'"vibey:{self.name}"'
        parameters = list(dict.fromkeys(PARAMETER.findall(text)))
        numbered = PARAMETER.sub(lambda match: f"${parameters.index(match[1]) + 1}", text)
        given = ", ".join(f"%({each})s" for each in parameters)
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_preparation", f"prepare {known} as {numbered}")
        object.__setattr__(self, "_execution", f"execute {known} ({given})" if given else f"execute {known}")

    def all(self, connection: Connection, **values: object) -> Sequence[Row[Any]]:
        """Run it and return every row."""
        return self._sent(connection, values).all()

    def first(self, connection: Connection, **values: object) -> Row[Any] | None:
        """Run it and return the first row, or None when there is none."""
        return self._sent(connection, values).first()

    def scalar(self, connection: Connection, **values: object) -> Any:  # noqa: ANN401  any column type
        """Run it and return the first column of the first row, or None."""
        return self._sent(connection, values).scalar()

    def run(self, connection: Connection, **values: object) -> int:
        """Run it for its effect and return how many rows it touched."""
        return self._sent(connection, values).rowcount

    def _sent(self, connection: Connection, values: dict[str, object]) -> CursorResult[Any]:
        known = _prepared(connection) if self.prepared else None
        if known is None:
            return connection.exec_driver_sql(self._text, values)
        if self.name not in known:
            connection.exec_driver_sql(self._preparation)
            known.add(self.name)
        return connection.exec_driver_sql(self._execution, values)


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between this connection and the server.

    SQLAlchemy keeps `info` as long as the driver's connection, and so the session, lives.
    """
    if "vibey.pooled" not in connection.info:
        promised = getattr(getattr(connection.connection.dbapi_connection, "info", None), "backend_pid", None)
        answering = connection.exec_driver_sql("/* vibey:backend */ select pg_backend_pid()").scalar()
        connection.info["vibey.pooled"] = answering != promised
    return bool(connection.info["vibey.pooled"])


def _prepared(connection: Connection) -> set[str] | None:
    """What is prepared on this connection; None where nothing is: behind a pooler, and on a caller's connection."""
    if "vibey.prepared" not in connection.info:
        connection.info["vibey.prepared"] = None if is_pooled(connection) else set()
    known: set[str] | None = connection.info["vibey.prepared"]
    return known
