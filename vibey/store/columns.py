"""Columns: the kinds of columns the tables are made of, and the names that constraints and indexes get."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Boolean, Column, DateTime, Integer, Text, text

CONVENTION = {
    "ix": "%(table_name)s_%(column_0_N_name)s",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}


def instant(name: str, *, required: bool = False, now: bool = False, clock: str | None = None) -> Column[object]:
    """An instant; with `now`, by default that of its writing, with a `clock`, the one that clock shows then."""
    default = text(clock or "clock_timestamp()") if now or clock else None
    return Column(name, DateTime(timezone=True), nullable=not (required or now or clock), server_default=default)


def words(name: str, default: str | None = None, *, required: bool = False) -> Column[str]:
    """A text, which may be null unless it has a default or is required."""
    server_default = None if default is None else text(f"'{default}'")
    return Column(name, Text, nullable=not (required or default is not None), server_default=server_default)


def count(name: str, default: int | None = 0) -> Column[int]:
    """A count that stays small; null where it has no default."""
    server_default = None if default is None else text(str(default))
    return Column(name, Integer, nullable=default is None, server_default=server_default)


def tally(name: str) -> Column[int]:
    """A count that only grows, from 0."""
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def flag(name: str, *, default: bool) -> Column[bool]:
    """A truth with its default."""
    return Column(name, Boolean, nullable=False, server_default=text(str(default).lower()))


def names(name: str) -> Column[object]:
    """A list of names, empty by default."""
    return Column(name, ARRAY(Text), nullable=False, server_default=text("'{}'"))
