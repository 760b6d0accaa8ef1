"""Scratch databases on the tests' Postgres server."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg2

from vibey import embedded
from vibey.embedded.home import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg2 import extensions

MAINTENANCE = "postgres"
MEMORY = Path("/dev/shm")  # noqa: S108  a folder of a random name is made in it
ENOUGH_BYTES = 2 * 1024**3
# What only keeps commits through a power cut.
DURABILITY = ("fsync", "full_page_writes", "synchronous_commit")


class _Kept(threading.local):
    """One open connection per database for each thread: tests ask again and again, and opening costs most."""

    def __init__(self) -> None:
        self.connections: dict[str, extensions.connection] = {}


_kept = _Kept()


def renamed(url: str, database: str) -> str:
    """Return the URL with another database in it."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def plain(url: str) -> str:
    """The URL as the driver itself takes it."""
    return url.replace("postgresql+psycopg2://", "postgresql://", 1)


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement by itself, outside any transaction, and return its rows, if it has any."""
    kept = _kept.connections.pop(url, None)
    if kept is not None:
        try:
            return _answer(url, kept, statement)
        except psycopg2.Error:
            # One that the server has ended since it was last used says nothing about the statement.
            if not kept.closed:
                kept.close()
                raise
    return _answer(url, psycopg2.connect(plain(url)), statement)


def _answer(url: str, connection: extensions.connection, statement: str) -> list[tuple[object, ...]]:
    """Ask; a connection is kept only when all went well, so that no state of a failure is."""
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
    _kept.connections[url] = connection
    return rows


@contextmanager
def memory() -> Iterator[Path | None]:
    """A folder in memory for as long as it is needed; None on a machine that has no file system there."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH_BYTES:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="vibey-tests-", dir=MEMORY) as folder:
        yield Path(folder)


def forgetful(data_dir: Path, folder: Path | None) -> embedded.Services:
    """Start servers that are destroyed after the tests: they may lose in a power cut what they have, and answer sooner.

    New databases lie in `folder`, if there is one: each is four hundred files, and some file systems make a file
    slowly after many others were removed. The role of the tests may make roles, and do to their objects what it likes.
    """
    embedded.ensure(data_dir)
    embedded.stop(data_dir)
    statements = [f"ALTER SYSTEM SET {setting} = off" for setting in DURABILITY]
    statements += ["ALTER ROLE vibey CREATEROLE", "ALTER ROLE vibey SET createrole_self_grant = 'set, inherit'"]
    # A database is removed while autovacuum may be at work in it.
    statements.append("GRANT pg_signal_backend TO vibey")
    if folder is not None:
        if (owner := Owner.of((data_dir / "postgres").resolve())).ids is not None:
            os.chown(folder, *owner.ids)
        statements.append(f"CREATE TABLESPACE memory LOCATION '{folder}'")
        # A copy lies where its template does.
        statements.append("ALTER DATABASE template1 SET TABLESPACE memory")
    embedded.administer(data_dir, *statements)
    return embedded.ensure(data_dir)


def create(server_url: str, name: str, *, template: str = "template1") -> str:
    """Make a database as a copy of `template`, to which nobody may be connected; return its URL."""
    server = renamed(server_url, MAINTENANCE)
    ((version,),) = query(server, "SELECT current_setting('server_version_num')::int")
    # Before release 15 files were always copied, and nobody could say so.
    strategy = "STRATEGY file_copy" if int(str(version)) >= 150_000 else ""
    query(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')
    return renamed(server_url, name)


def leave(url: str) -> None:
    """Close the connection that is kept to a database, so that it can be a template or be removed."""
    if (kept := _kept.connections.pop(url, None)) is not None:
        kept.close()


def drop(server_url: str, name: str) -> None:
    """Remove a database, ending whatever is still connected to it."""
    leave(renamed(server_url, name))
    query(renamed(server_url, MAINTENANCE), f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
