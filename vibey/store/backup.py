"""Backup: what of a database belongs to Vibey, and the SQL around a restore.

Other programs may keep tables in the same database, so a backup names each table of ours. Functions are not tables:
`pg_dump` leaves them out of such a dump, so the definitions of those our triggers call are read here and written into
the backup beside it.

A restore is one transaction of one `psql` session: `restore_head`, the dump, `restore_tail`. Nothing of the database
is changed unless all of it succeeds.

After a restore the tokens of runs go on far above the highest one in the backup. The installation the backup was made
from went on giving out tokens after it, and a worker or a message from that time must not fit a run made after the
restore. The lease clock goes on from where it stood in the backup, with the first two ticks after the restore.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg2.extensions import make_dsn, parse_dsn

from vibey.store.connecting import libpq_url
from vibey.store.ledger import Event
from vibey.store.schema import metadata
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

# No installation gives out so many tokens between a backup and its restore, and a bigint has room for as many restores.
TOKEN_GAP = 2**32
REVISION_TABLE = "alembic_version"

SNAPSHOT = Statement(
    "backup-snapshot",
    "fix what the rest of this transaction sees; it may idle while pg_dump reads the same snapshot",
    "set transaction isolation level repeatable read, read only; set local idle_in_transaction_session_timeout = 0",
)
EXPORT = Statement(
    "backup-export",
    "name this transaction's snapshot for pg_dump, and say what is in it",
    """select pg_export_snapshot() as snapshot, transaction_timestamp() as at,
              (select count(*)::bigint from jobs) as jobs,
              (select count(*)::bigint from jobs where ended_at is null) as open_jobs,
              (select count(*)::bigint from runs where ended_at is null) as live_runs""",
)
OBJECTS = Statement(
    "backup-objects",
    "the tables of ours that exist here, and the sequences that their defaults draw from",
    """with ours as (
         select c.oid, n.nspname as schema, c.relname as name
         from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where c.relkind = 'r' and c.relname = any(%(tables)s)
           and c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('alembic_version')))
       select 'table' as kind, schema, name from ours
       union
       select 'sequence', n.nspname, s.relname
       from ours join pg_attrdef d on d.adrelid = ours.oid
       join pg_depend p on p.classid = 'pg_attrdef'::regclass and p.objid = d.oid
       join pg_class s on s.oid = p.refobjid and p.refclassid = 'pg_class'::regclass and s.relkind = 'S'
       join pg_namespace n on n.oid = s.relnamespace
       order by kind desc, schema, name""",
)
FUNCTIONS = Statement(
    "backup-functions",
    "the definitions of the functions that triggers of our tables call",
    """select distinct pg_get_functiondef(t.tgfoid) as definition from pg_trigger t
       join pg_class c on c.oid = t.tgrelid
       where not t.tgisinternal and c.relname = any(%(tables)s)
         and c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('alembic_version'))
       order by 1""",
)
SERVER = Statement(
    "backup-server",
    "the server's version, and the schema that new tables go to",
    "select current_setting('server_version_num')::int / 10000 as major, current_schema() as schema",
)
JOBS = Statement("backup-jobs", "how many jobs there are", "select count(*)::bigint from jobs")
SESSIONS = Statement(
    "backup-sessions",
    "sessions of other Vibey processes in this database",
    """select coalesce(host(client_addr), 'a local socket') as host, count(*)::int as n from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid()
         and (application_name like 'vibey-%%' or application_name = current_setting('application_name'))
       group by 1 order by 1""",
)


@dataclass(frozen=True, slots=True)
class Name:
    """A table or sequence with its schema."""

    schema: str
    name: str

    @property
    def quoted(self) -> str:
        """The name as SQL, which `pg_dump --table` takes as well."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def own_tables() -> list[str]:
    """The names of every table of this version's schema."""
    return [*sorted(metadata.tables), REVISION_TABLE]


def tables_and_sequences(connection: Connection, tables: Iterable[str] = ()) -> tuple[list[Name], list[Name]]:
    """Our tables (and those named besides) that exist, and sequences that belong to none of them."""
    rows = OBJECTS.all(connection, tables=[*own_tables(), *tables])
    found = [(row.kind, Name(row.schema, row.name)) for row in rows]
    return [name for kind, name in found if kind == "table"], [name for kind, name in found if kind == "sequence"]


def trigger_functions(connection: Connection) -> list[str]:
    """The definitions of the functions that our triggers call, each ready to be run."""
    return [row.definition for row in FUNCTIONS.all(connection, tables=own_tables())]


def restore_head(schema: str, tables: Sequence[Name], sequences: Sequence[Name], functions: Sequence[str]) -> str:
    """SQL to run before the dump: begin, drop what of ours is there, and make what the dump needs."""
    lines = ["begin;", "set local lock_timeout = '10s';", "set local client_min_messages = warning;"]
    if schema != "public":
        lines.append(f"create schema if not exists {quoted(schema)};")
    if tables:
        lines.append(f"drop table {', '.join(each.quoted for each in tables)};")
    lines.extend(f"drop sequence if exists {each.quoted};" for each in sequences)
    lines.extend(f"{definition};" for definition in functions)
    return "\n".join(lines) + "\n"


def restore_tail(schema: str, event: Mapping[str, object]) -> str:
    """SQL to run after the dump: what must not be taken over as it was, a ledger event with these data, and commit."""
    return f"""
set search_path = {quoted(schema)};
update installation set last_tick_at = null;
delete from workers;
select setval('run_tokens', (select last_value from run_tokens) + {TOKEN_GAP});
insert into ledger (kind, data) values ('{Event.BACKUP_RESTORED.value}', {_literal(json.dumps(dict(event)))});
commit;
"""  # noqa: S608  names and texts are quoted


def quoted(identifier: str) -> str:
    """An identifier as SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def client_address(url: str) -> tuple[str, str | None]:
    """A database's address as libpq's programs take it on a command line, without its password; and the password."""
    given = parse_dsn(libpq_url(url))
    password = given.pop("password", None)
    return make_dsn(**given), password
