"""A database that answers but does not allow what is needed, and addresses with parameters of the operator's."""

from __future__ import annotations

import re
import socket
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg2
import pytest
from psycopg2.extensions import parse_dsn

from tests.support.databases import drop, query, renamed
from tests.support.installation import Bench, noop
from vibey.domain.errors import OutOfResources, SchemaOutdated, UnsuitableService
from vibey.services.doctor import State, check
from vibey.services.installation import Installation
from vibey.settings import Source, settings_of
from vibey.settings.urls import DATABASE_KEYS
from vibey.store import migrate, suitability
from vibey.store.connecting import SESSION_OPTIONS, libpq_url
from vibey.store.database import Database
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vibey import embedded

SETTING = Statement("setting", "a setting of the session", "select current_setting(%(name)s)")


def _with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))


def _with_parameters(url: str, **parameters: str) -> str:
    added = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return f"{url}{'&' if urlsplit(url).query else '?'}{added}"


def _setting(url: str, name: str) -> str:
    database = Database(url, pool_size=1)
    try:
        return str(database.statement(lambda connection: SETTING.scalar(connection, name=name)))
    finally:
        database.dispose()


@pytest.fixture
def role(services: embedded.Services, database_url: str) -> Iterator[str]:  # noqa: ARG001  goes before the role does
    """The name of a role that may log in with the password `pw` and owns nothing."""
    name = f"role_{uuid.uuid4().hex[:12]}"
    query(services.database_url, f"create role {name} login password 'pw'")
    yield name
    query(services.database_url, f"drop role {name}")


@pytest.fixture
def make_database(services: embedded.Services) -> Iterator[Callable[[str], str]]:
    """A function that makes a database with these options of `create database`, and gives its URL."""
    made: list[str] = []

    def make(options: str) -> str:
        name = f"vibey_odd_{uuid.uuid4().hex}"
        query(renamed(services.database_url, "postgres"), f'create database "{name}" template template0 {options}')
        made.append(name)
        return renamed(services.database_url, name)

    yield make
    for name in made:
        drop(services.database_url, name)


def test_every_known_parameter_is_one_of_libpq() -> None:
    """The installed libpq takes each key that an address may have; `ssl` is an alias with one value."""
    for key in DATABASE_KEYS - {"ssl"}:
        assert key in parse_dsn(f"postgresql://h/d?{key}=1")
    assert parse_dsn("postgresql://h/d?ssl=true") == {"host": "h", "dbname": "d", "sslmode": "require"}


def test_options_of_the_address_are_kept_and_ours_are_added(empty_database_url: str) -> None:
    """The operator's come last, so that they count where both set one."""
    url = _with_parameters(
        empty_database_url, options="-csearch_path=fleet -c lock_timeout=7s", application_name="mine"
    )
    assert [_setting(url, name) for name in ("search_path", "lock_timeout", "enable_seqscan", "application_name")] == [
        "fleet",
        "7s",
        "off",
        "mine",
    ]


def test_no_statement_starts_parallel_workers_or_the_jit_compiler(database_url: str) -> None:
    """A plan of a disabled scan counts as enormously expensive before release 18, however small the table is."""
    statement = Statement("plan", "a plan", "explain select * from installation")
    database = Database(database_url, pool_size=1)
    plan = "\n".join(row[0] for row in database.statement(statement.all))
    database.dispose()
    assert "Seq Scan on installation" in plan
    assert "Gather" not in plan
    assert "JIT" not in plan


def test_the_page_sets_for_a_role_what_sessions_set_themselves() -> None:
    """Behind a pooler that ignores start-up parameters, the role has the same settings."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "several-machines.md").read_text(encoding="utf-8")
    on_page = re.findall(r"^alter role vibey in database vibey set (\w+) = '?([^';]+)'?;$", page, re.MULTILINE)
    assert dict(on_page) == dict(re.findall(r"-c (\w+)=(\S+)", SESSION_OPTIONS))


def test_an_installation_lives_in_the_schema_the_address_names(
    empty_database_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Migration, router, enqueueing and a caller's own connection all use the schema of `search_path`."""
    query(empty_database_url, "create schema fleet")
    url = _with_parameters(empty_database_url, options="-csearch_path=fleet")
    migrate.upgrade(url)
    assert query(empty_database_url, "select count(*) from pg_tables where schemaname = 'public'") == [(0,)]
    bench = Bench(url, redis_url, tmp_path, {"engine": {"desk": noop()}})
    try:
        assert migrate.current(bench.installation.database) == migrate.HEAD
        assert bench.enqueue() == [1]
        assert query(empty_database_url, "select count(*) from fleet.jobs") == [(1,)]
    finally:
        bench.close()


def test_a_schema_that_does_not_exist_is_named_with_its_statement(empty_database_url: str) -> None:
    """Nothing is created in another schema instead."""
    with pytest.raises(UnsuitableService, match=r'\(nowhere\) exists .*create schema NAME authorization "vibey"'):
        migrate.upgrade(_with_parameters(empty_database_url, options="-csearch_path=nowhere"))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_another_encoding_is_refused(
    services: embedded.Services, make_database: Callable[[str], str], encoding: str
) -> None:
    """A result with an emoji could never be stored there."""
    url = make_database(f"encoding '{encoding}' lc_collate 'C' lc_ctype 'C' {_provider(services.database_url)}")
    with pytest.raises(UnsuitableService, match=rf"is {encoding}, .*encoding 'UTF8' template template0"):
        migrate.upgrade(url)
    assert query(url, "select count(*) from pg_tables where schemaname = 'public'") == [(0,)]


def _provider(url: str) -> str:
    """The words that choose the C library's locales, where there is a choice."""
    return "locale_provider libc" if query(url, "show server_version_num") >= [("150000",)] else ""


def test_the_encoding_of_the_shell_does_not_count(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PGCLIENTENCODING is somebody else's wish."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert _setting(empty_database_url, "client_encoding") == "UTF8"


def test_a_role_that_may_not_create_tables_is_told_the_grant(empty_database_url: str, role: str) -> None:
    """The grant named suffices."""
    query(empty_database_url, "revoke create on schema public from public")
    url = _with_user(empty_database_url, role, "pw")
    with pytest.raises(UnsuitableService, match=rf'grant usage, create on schema "public" to "{role}"'):
        migrate.upgrade(url)
    query(empty_database_url, f'grant usage, create on schema "public" to "{role}"')
    migrate.upgrade(url)
    assert query(empty_database_url, "select distinct tableowner from pg_tables where schemaname = 'public'") == [
        (role,)
    ]
    query(empty_database_url, f"drop owned by {role}")


def test_a_role_without_rights_on_the_tables_is_told_the_grant(
    database_url: str, redis_url: str, tmp_path: Path, role: str
) -> None:
    """A role that owns nothing works with the rights named, and cannot migrate."""
    # As it is from release 15 on.
    query(database_url, "revoke create on schema public from public")
    url = _with_user(database_url, role, "pw")
    database = Database(url, pool_size=1)
    (lacking,) = suitability.shortcomings(database, migrating=False)
    assert "lacks rights on tables of schema public: " in lacking.detail
    for statement in lacking.remedy.removeprefix("run as their owner: ").split("; "):
        query(database_url, statement)
    query(database_url, f'grant select on alembic_version to "{role}"')
    assert suitability.shortcomings(database, migrating=False) == []
    creating, owning = suitability.shortcomings(database, migrating=True)
    assert "may not create tables" in creating.detail
    assert "does not own tables" in owning.detail
    database.dispose()
    bench = Bench(url, redis_url, tmp_path, {"engine": {"desk": noop()}})
    assert bench.enqueue() == [1]
    bench.close()
    query(database_url, f"drop owned by {role}")


def test_a_read_only_session_is_told_apart(database_url: str, role: str) -> None:
    """As the role's own setting, or as that of a standby."""
    query(database_url, f"alter role {role} set default_transaction_read_only = on")
    database = Database(_with_user(database_url, role, "pw"), pool_size=1)
    assert "read-only" in suitability.shortcomings(database, migrating=False)[0].detail
    with pytest.raises(UnsuitableService, match=r"read-only"):
        database.run(lambda connection: connection.exec_driver_sql("create table t (x int)"))
    database.dispose()


def test_the_limit_of_connections_is_named(database_url: str, role: str) -> None:
    """A server that takes no more sessions is not called unreachable."""
    query(database_url, f"alter role {role} connection limit 1")
    url = _with_user(database_url, role, "pw")
    database = Database(url, pool_size=1)
    with (
        closing(psycopg2.connect(libpq_url(url))),
        pytest.raises(OutOfResources, match=r"takes no more connections .*raise max_connections"),
    ):
        database.statement(lambda connection: SETTING.scalar(connection, name="port"))
    database.dispose()


def test_hosts_are_tried_in_turn_until_one_takes_writes(database_url: str) -> None:
    """As libpq does; one that is down is passed over, and ours asks for a primary."""
    parts = urlsplit(database_url)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    login = parts.netloc.rpartition("@")[0]
    # one numeric address would be all hosts'
    url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port},{parts.hostname}:{parts.port}", query=""))
    database = Database(url, pool_size=1)
    migrate.require_current(database)
    database.dispose()
    migrate.upgrade(url)


def test_a_parameter_that_an_old_libpq_does_not_know_is_named_without_the_password() -> None:
    """The address itself is not repeated."""
    database = Database("postgresql+psycopg2://vibey:hunter2@127.0.0.1:1/vibey?no_such_key=5")
    with pytest.raises(UnsuitableService, match=r"no_such_key.*correct database_url") as caught:
        migrate.require_current(database)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("revision", "remedy"),
    [
        ("9999", r"this program knows \d+; the program is older than the schema: upgrade vibey"),
        ("a1b2c3d4", "it belongs to another program: give Vibey a database or a schema of its own"),
        ("0001", "run: vibey migrate"),
    ],
)
def test_who_is_too_old_is_said(database_url: str, revision: str, remedy: str) -> None:
    """A newer schema is not to be migrated; one of another program is not touched."""
    query(database_url, f"update alembic_version set version_num = '{revision}'")
    database = Database(database_url, pool_size=1)
    with pytest.raises(SchemaOutdated, match=remedy):
        migrate.require_current(database)
    database.dispose()
    if revision != "0001":
        with pytest.raises(SchemaOutdated, match=remedy):
            migrate.upgrade(database_url)


def test_tables_of_another_program_are_left_alone(empty_database_url: str) -> None:
    """A schema in use is refused with the way to another one."""
    query(empty_database_url, "create table jobs (id int)")
    with pytest.raises(UnsuitableService, match=r"used by another program .*options=-csearch_path%3DSCHEMA"):
        migrate.upgrade(empty_database_url)
    assert query(empty_database_url, "select tablename from pg_tables where schemaname = 'public'") == [("jobs",)]


def test_doctor_names_everything_a_database_does_not_allow(
    services: embedded.Services, make_database: Callable[[str], str], redis_url: str, tmp_path: Path
) -> None:
    """One line each, and no word of migrations that could not help."""
    url = make_database(f"encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' {_provider(services.database_url)}")
    tables = {"services": {"database_url": url, "redis_url": redis_url, "data_dir": str(tmp_path)}}
    installation = Installation.open(settings_of(Source(None, tmp_path, tables), {}))
    try:
        found = [each for each in check(installation, staff=False) if each.name in {"postgres", "schema"}]
    finally:
        installation.close()
    assert [(each.name, each.state) for each in found] == [("postgres", State.FAIL)]
    assert "LATIN1" in found[0].detail


def test_an_installation_is_told_apart_by_its_tables_and_not_by_its_address(
    services: embedded.Services, database_url: str, empty_database_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Two spellings of one address are one installation; one address that leads to other tables is another."""

    def identity(url: str) -> str:
        tables = {"services": {"database_url": url, "redis_url": redis_url, "data_dir": str(tmp_path)}}
        installation = Installation.open(settings_of(Source(None, tmp_path, tables), {}))
        try:
            return installation.identity
        finally:
            installation.close()

    before = identity(database_url)
    assert before == identity(_with_parameters(database_url, application_name="other"))
    migrate.upgrade(empty_database_url)
    assert before != identity(empty_database_url)
    # As if the same address led to another database, from another network namespace.
    name = urlsplit(database_url).path[1:]
    drop(services.database_url, name)
    query(renamed(services.database_url, "postgres"), f'create database "{name}"')
    migrate.upgrade(database_url)
    assert before != identity(database_url)
