"""Statement: one piece of SQL with a name and a purpose. All SQL of the project is made of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


__all__ = ["Row", "Statement"]


@dataclass(frozen=True)
class Statement:
    """SQL with `%(name)s` parameters. The name leads it as a comment, so that the server's views show it."""

    name: str
    purpose: str
    sql: str
    _text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compose the text sent to the server once."""
        object.__setattr__(self, "_text", f"/* vibey:{self.name} */ {self.sql}")

    def all(self, connection: Connection, **values: object) -> Sequence[Row[Any]]:
        """Run it and return every row."""
        return connection.exec_driver_sql(self._text, values).all()

    def first(self, connection: Connection, **values: object) -> Row[Any] | None:
        """Run it and return the first row, or None when there is none."""
        return connection.exec_driver_sql(self._text, values).first()

    def scalar(self, connection: Connection, **values: object) -> Any:  # noqa: ANN401  any column type
        """Run it and return the first column of the first row, or None."""
        return connection.exec_driver_sql(self._text, values).scalar()

    def run(self, connection: Connection, **values: object) -> int:
        """Run it for its effect and return how many rows it touched."""
        return connection.exec_driver_sql(self._text, values).rowcount
