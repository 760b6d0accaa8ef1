"""The schema: migrations arrive at the declared tables, and a wrong schema is refused."""

from __future__ import annotations

from pathlib import Path

import psycopg2
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

import vibey.store
from tests.support.databases import query
from vibey.domain.errors import SchemaOutdated, ServiceUnavailable
from vibey.store import migrate
from vibey.store.database import Database
from vibey.store.schema import metadata


def _constraints(url: str) -> list[tuple[object, ...]]:
    """Checks and indexes word for word, which Alembic's comparison does not look into."""
    return query(
        url,
        "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint "
        "where connamespace = 'public'::regnamespace and conrelid::regclass::text <> 'alembic_version' union all "
        "select tablename, indexname, indexdef from pg_indexes "
        "where schemaname = 'public' and tablename <> 'alembic_version' order by 1, 2, 3",
    )


def test_migrations_arrive_at_the_declared_tables(database_url: str, empty_database_url: str) -> None:
    """A migrated database and one made from the declarations have the same tables, constraints and indexes."""
    declared = create_engine(empty_database_url)
    with declared.begin() as connection:
        metadata.create_all(connection)
    declared.dispose()
    migrated = create_engine(database_url)
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        differences = compare_metadata(context, metadata)
    migrated.dispose()
    assert differences == []
    assert _constraints(database_url) == _constraints(empty_database_url)


def test_the_needed_revision_is_the_last_migration() -> None:
    """The code asks for exactly the revision the migrations end at."""
    config = Config()
    config.set_main_option("script_location", str(Path(vibey.store.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == migrate.HEAD


def test_migrations_can_be_undone_and_applied_again(empty_database_url: str) -> None:
    """Up, down to nothing, and up again."""
    from alembic import command

    migrate.upgrade(empty_database_url)
    config = Config()
    config.set_main_option("script_location", str(Path(vibey.store.__file__).parent / "migrations"))
    config.attributes["url"] = empty_database_url
    command.downgrade(config, "base")
    left = query(empty_database_url, "select tablename from pg_tables where schemaname = 'public'")
    assert left == [("alembic_version",)]
    migrate.upgrade(empty_database_url)
    migrate.upgrade(empty_database_url)


def test_an_empty_database_is_refused_with_the_command_that_mends_it(empty_database_url: str) -> None:
    """Starting on a database without tables names what was found, what is needed and `vibey migrate`."""
    database = Database(empty_database_url)
    with pytest.raises(SchemaOutdated, match=r"at nothing, this version needs .*; run: vibey migrate"):
        migrate.require_current(database)
    database.dispose()


def test_another_revision_is_refused(database_url: str) -> None:
    """Starting on the schema of another version is refused."""
    query(database_url, "update alembic_version set version_num = '9999'")
    database = Database(database_url)
    with pytest.raises(SchemaOutdated, match="9999"):
        migrate.require_current(database)
    database.dispose()


@pytest.mark.parametrize("change", ["update ledger set kind = 'x'", "delete from ledger", "truncate ledger"])
def test_the_ledger_refuses_every_change(database_url: str, change: str) -> None:
    """The database itself refuses to update, delete or truncate events."""
    query(database_url, "insert into ledger (kind) values ('JobEnqueued')")
    with pytest.raises(psycopg2.errors.RestrictViolation, match="append-only"):
        query(database_url, change)
    assert query(database_url, "select kind from ledger") == [("JobEnqueued",)]


def test_an_unreachable_database_is_said_so_in_one_line() -> None:
    """A refused connection becomes ServiceUnavailable with the remedy, not a driver's error."""
    database = Database("postgresql+psycopg2://vibey:wrong@127.0.0.1:1/vibey")
    with pytest.raises(ServiceUnavailable, match=r"Postgres is unreachable .*; check that it runs"):
        migrate.require_current(database)
