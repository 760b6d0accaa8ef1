"""Migrations: bring a database to this version's schema, or refuse to start on another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.errors import SchemaOutdated, UnsuitableService
from vibey.store.database import Database, translated
from vibey.store.statement import Statement
from vibey.store.suitability import require_suitable

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0009"
"""The schema revision this version of the code needs; a test holds it against the migrations."""

HAS_VERSION = Statement(
    "schema-has-version",
    "whether the database was ever migrated",
    "select to_regclass('alembic_version') is not null",
)
VERSION = Statement("schema-version", "the schema's revision", "select version_num from alembic_version")
# Duplicate table, function or object: something of that name is there already.
TAKEN_STATES = frozenset({"42P07", "42723", "42710"})


def upgrade(url: str, revision: str = "head") -> None:
    """Apply every missing migration up to a revision; safe to repeat and safe when two processes do it at once.

    Raises `UnsuitableService` where the database does not allow what is needed, and `SchemaOutdated` where its schema
    is of a newer program, or of another one.
    """
    _require_upgradable(url)
    from alembic import command
    from sqlalchemy.exc import DBAPIError

    config = _configuration()
    config.attributes["url"] = url
    try:
        with translated():
            command.upgrade(config, revision)
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) not in TAKEN_STATES:
            raise
        detail = f"its schema is used by another program ({str(error.orig).splitlines()[0]})"
        remedy = "give Vibey a database of its own, or a schema: ?options=-csearch_path%3DSCHEMA in database_url"
        raise UnsuitableService("Postgres", detail, remedy) from error


def revisions() -> frozenset[str]:
    """Every schema revision this version of the code knows."""
    from alembic.script import ScriptDirectory

    return frozenset(script.revision for script in ScriptDirectory.from_config(_configuration()).walk_revisions())


def current(database: Database) -> str | None:
    """The schema revision the database is at; None for an empty one."""
    with database.autocommit() as connection:
        if not HAS_VERSION.scalar(connection):
            return None
        found = VERSION.scalar(connection)
    return None if found is None else str(found)


def require_current(database: Database) -> None:
    """Raise `SchemaOutdated`, with what mends it, unless the schema is the one needed."""
    found = current(database)
    if found != HEAD:
        raise SchemaOutdated(found, HEAD)


def _require_upgradable(url: str) -> None:
    database = Database(url)
    try:
        found = current(database)
        if found is not None and not (found.isdigit() and found <= HEAD):
            raise SchemaOutdated(found, HEAD)
        require_suitable(database, migrating=found != HEAD)
    finally:
        database.dispose()


def _configuration() -> Config:
    from alembic.config import Config

    config = Config()
    # Its values expand percent signs.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
