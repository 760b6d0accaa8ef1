"""Statement: one piece of SQL with a name and a purpose. All SQL of the project is made of these.

The server parses and plans a statement anew each time it is sent, and for a small one that is most of the work.
One marked `prepared` is parsed once per connection and planned at most a few times. That is for statements that
reach their rows by key, whose plan is right whatever the tables have grown to; the others are better planned for
the tables as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, CursorResult

__all__ = ["Row", "Statement"]

UNKNOWN_STATEMENT = "26000"
KNOWN_STATEMENT = "42P05"
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

    def __post_init__(self) -> None:
        """Compose the text sent to the server once."""
        text = f"/* vibey:{self.name} */ {self.sql}"
        preparation = ""
        if self.prepared:
            # Two versions of the code may share a connection pooler: the name stands for this very text.
            known = f'"vibey:{self.name}:{blake2b(text.encode(), digest_size=4).hexdigest()}"'
            parameters = list(dict.fromkeys(PARAMETER.findall(text)))
            numbered = PARAMETER.sub(lambda match: f"${parameters.index(match[1]) + 1}", text)
            preparation = f"prepare {known} as {numbered}"
            given = ", ".join(f"%({each})s" for each in parameters)
            text = f"execute {known} ({given})" if given else f"execute {known}"
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_preparation", preparation)

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
        if self.prepared:
            # SQLAlchemy keeps `info` as long as the driver's connection, and so the session, lives.
            known = connection.info.setdefault("vibey.prepared", set())
            return self._executed(connection, values, known)
        return connection.exec_driver_sql(self._text, values)

    def _executed(self, connection: Connection, values: dict[str, object], known: set[str]) -> CursorResult[Any]:
        """Prepare if need be, and execute.

        Behind a pooler the server may be another one than before: what it does not know, or knows already, is set
        right here, and the failed transaction is tried again by `Database`.
        """
        try:
            if self._text not in known:
                connection.exec_driver_sql(self._preparation)
                known.add(self._text)
            return connection.exec_driver_sql(self._text, values)
        except DBAPIError as error:
            code = getattr(error.orig, "pgcode", None)
            if code == UNKNOWN_STATEMENT:
                known.discard(self._text)
            elif code == KNOWN_STATEMENT:
                known.add(self._text)
            raise
