"""Scratch databases on the tests' Postgres server."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit, urlunsplit

import psycopg2

MAINTENANCE = "postgres"


def renamed(url: str, database: str) -> str:
    """Return the URL with another database in it."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def plain(url: str) -> str:
    """The URL as the driver itself takes it."""
    return url.replace("postgresql+psycopg2://", "postgresql://", 1)


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement by itself, outside any transaction, and return its rows, if it has any."""
    with closing(psycopg2.connect(plain(url))) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


def create(server_url: str, name: str, *, template: str = "template1") -> str:
    """Make a database as a copy of `template`, to which nobody may be connected; return its URL."""
    query(renamed(server_url, MAINTENANCE), f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return renamed(server_url, name)


def drop(server_url: str, name: str) -> None:
    """Remove a database, ending whatever is still connected to it."""
    query(renamed(server_url, MAINTENANCE), f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
