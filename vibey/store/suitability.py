"""Whether a database that answers allows what Vibey needs: its version, encoding, role, schema and rights.

Asked before a migration, by `vibey doctor` and by every worker at its start: what is wrong here would otherwise show
late, with the result of a job that has run for an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.domain.connections import Allowance
from vibey.domain.errors import UnsuitableService
from vibey.store.statement import Statement, is_pooled

if TYPE_CHECKING:
    from vibey.store.database import Connection, Database

LEAST_VERSION = 140_000
LEAST_NAME = "PostgreSQL 14"
SERVICE = "Postgres"

SERVER = Statement(
    "suitability-server",
    "the server's version and state, the encodings, and whose session it is in which schema",
    """select current_setting('server_version_num')::int as number,
              split_part(current_setting('server_version'), ' ', 1) as version,
              current_setting('server_encoding') as encoding, current_setting('client_encoding') as client_encoding,
              pg_is_in_recovery() as standby, current_setting('transaction_read_only')::bool as read_only,
              current_user::text as role, current_database()::text as database, current_schema()::text as schema,
              current_setting('search_path') as search_path,
              coalesce(has_schema_privilege(current_schema(), 'create'), false) as may_create""",
)
# `reserved_connections` exists since release 16.
ALLOWANCE = Statement(
    "suitability-connections",
    "how many connections the server, the role and the database allow (-1: no limit), and how many there are of all",
    """select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
              - coalesce(current_setting('reserved_connections', true)::int, 0) as server,
              (select rolconnlimit from pg_roles where rolname = current_user) as role,
              (select datconnlimit from pg_database where datname = current_database()) as database,
              (select coalesce(sum(numbackends), 0)::int from pg_stat_database) as connected""",
)
TABLES = Statement(
    "suitability-tables",
    "those of these tables and sequences that exist: whose they are, and which right on them the role lacks",
    """select c.relname::text as name, pg_has_role(c.relowner, 'usage') as owned,
              case when c.relkind = 'S' then case when not has_sequence_privilege(c.oid, 'usage') then 'usage' end
                   else nullif(concat_ws(', ', case when not has_table_privilege(c.oid, 'select') then 'select' end,
                                         case when not has_table_privilege(c.oid, 'insert') then 'insert' end,
                                         case when not has_table_privilege(c.oid, 'update') then 'update' end,
                                         case when not has_table_privilege(c.oid, 'delete') then 'delete' end), '')
              end as lacking
       from pg_class c
       where c.relnamespace = to_regnamespace(quote_ident(current_schema())) and c.relkind in ('r', 'p', 'S')
         and c.relname = any(%(names)s)
       order by 1""",
)
SEQUENCES = ("run_tokens",)


def shortcomings(database: Database, *, migrating: bool) -> list[UnsuitableService]:
    """Everything about the database that Vibey cannot work with; `migrating` asks for rights to change tables, too."""
    with database.autocommit() as connection:
        server = SERVER.first(connection)
        found = _of_server(server) + _of_schema(server, migrating=migrating)
        if server is not None and server.schema is not None:
            found += _of_tables(connection, server, migrating=migrating)
    return found


def require_suitable(database: Database, *, migrating: bool) -> None:
    """Raise the first of the shortcomings, if there is any."""
    for shortcoming in shortcomings(database, migrating=migrating):
        raise shortcoming


def allowance(connection: Connection) -> Allowance | None:
    """How many connections the database allows; None behind a pooler, which has limits of its own."""
    if is_pooled(connection):
        return None
    (row,) = ALLOWANCE.all(connection)
    return Allowance.of(row.server, row.role, row.database, row.connected)


def _of_server(server: Any) -> list[UnsuitableService]:  # noqa: ANN401  a database row
    found = []
    if server.number < LEAST_VERSION:
        found.append(UnsuitableService(SERVICE, f"its version is {server.version}", f"use {LEAST_NAME} or newer"))
    if server.encoding != "UTF8":
        detail = f"the encoding of database {server.database} is {server.encoding}, which cannot hold every result"
        remedy = (
            "make another one, create database NAME encoding 'UTF8' template template0, and name it in database_url"
        )
        found.append(UnsuitableService(SERVICE, detail, remedy))
    if server.client_encoding != "UTF8":
        detail = f"client_encoding is {server.client_encoding}, which cannot carry every result"
        found.append(UnsuitableService(SERVICE, detail, "leave client_encoding out of database_url"))
    if server.standby or server.read_only:
        what = "the server is a read-only standby" if server.standby else "sessions of this role are read-only"
        remedy = "name the primary in database_url, or all hosts: postgresql://user@h1,h2/db"
        if not server.standby:
            remedy = f'run: alter role "{server.role}" reset default_transaction_read_only (of the database, too)'
        found.append(UnsuitableService(SERVICE, what, remedy))
    return found


def _of_schema(server: Any, *, migrating: bool) -> list[UnsuitableService]:  # noqa: ANN401  a database row
    if server.schema is None:
        detail = f"no schema of the search path ({server.search_path}) exists and is open to role {server.role}"
        remedy = f'run as its owner: create schema NAME authorization "{server.role}"'
        return [UnsuitableService(SERVICE, detail, remedy)]
    if migrating and not server.may_create:
        detail = f"role {server.role} may not create tables in schema {server.schema} of database {server.database}"
        remedy = f'run as its owner: grant usage, create on schema "{server.schema}" to "{server.role}"'
        return [UnsuitableService(SERVICE, detail, remedy)]
    return []


def _of_tables(connection: Connection, server: Any, *, migrating: bool) -> list[UnsuitableService]:  # noqa: ANN401
    from vibey.store.schema import metadata

    tables = TABLES.all(connection, names=[*metadata.tables, *SEQUENCES])
    lacking = [f"{table.name} ({table.lacking})" for table in tables if table.lacking]
    foreign = [table.name for table in tables if not table.owned]
    if lacking:
        detail = f"role {server.role} lacks rights on tables of schema {server.schema}: {_some(lacking)}"
        remedy = (
            f'run as their owner: grant select, insert, update, delete on all tables in schema "{server.schema}" '
            f'to "{server.role}"; grant usage on all sequences in schema "{server.schema}" to "{server.role}"'
        )
        return [UnsuitableService(SERVICE, detail, remedy)]
    if migrating and foreign:
        detail = f"role {server.role} does not own tables that a migration changes: {_some(foreign)}"
        return [UnsuitableService(SERVICE, detail, "migrate as their owner")]
    return []


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
