"""Migrations: bring a database to this version's schema, or refuse to start on another one."""

from __future__ import annotations

from pathlib import Path

from vibey.domain.errors import SchemaOutdated
from vibey.store.database import Database, translated
from vibey.store.statement import Statement

HEAD = "0002"
"""The schema revision this version of the code needs; a test holds it against the migrations."""

HAS_VERSION = Statement(
    "schema-has-version",
    "whether the database was ever migrated",
    "select to_regclass('alembic_version') is not null",
)
VERSION = Statement("schema-version", "the schema's revision", "select version_num from alembic_version")


def upgrade(url: str) -> None:
    """Apply every missing migration; safe to repeat and safe when two processes do it at once."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["url"] = url
    with translated():
        command.upgrade(config, "head")


def current(database: Database) -> str | None:
    """The schema revision the database is at; None for an empty one."""
    with database.autocommit() as connection:
        if not HAS_VERSION.scalar(connection):
            return None
        found = VERSION.scalar(connection)
    return None if found is None else str(found)


def require_current(database: Database) -> None:
    """Raise `SchemaOutdated`, with the command that mends it, unless the schema is the one needed."""
    found = current(database)
    if found != HEAD:
        raise SchemaOutdated(found, HEAD)
