"""Alembic's entry: run the migrations in one transaction, one process at a time."""

from __future__ import annotations

from alembic import context
from sqlalchemy import text

from vibey.store.connecting import MIGRATION_OPTIONS, make_engine
from vibey.store.schema import metadata

MIGRATION_LOCK = 7_204_391


def _migrate() -> None:
    engine = make_engine(context.config.attributes["url"], MIGRATION_OPTIONS)
    with engine.begin() as connection:
        connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
        context.run_migrations()
    engine.dispose()


_migrate()
