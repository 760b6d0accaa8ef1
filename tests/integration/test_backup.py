"""Backup and restore: one file in, the same installation out, and nothing touched where that cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import psycopg2
import pytest
import redis

from tests.support.cli import Cli, write_config
from tests.support.commandline import ENGINES, CommandLine
from tests.support.databases import plain, query
from tests.support.json_output import described
from vibey.domain.errors import Refused
from vibey.embedded import postgres_binary
from vibey.services import backup as service
from vibey.store import backup as store
from vibey.store import migrate
from vibey.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAMAGES = {
    "cut short": (lambda data: data[: len(data) - 100], "incomplete"),
    "one byte changed in the dump": (lambda data: data[:-50] + bytes([data[-50] ^ 1]) + data[-49:], "checksum"),
    "one digit changed in the manifest": (lambda data: data.replace(b'"jobs": 3', b'"jobs": 4', 1), "checksum"),
    "cut within the manifest": (lambda data: data[:60], "manifest"),
    "of a later format": (lambda data: data.replace(b"vibey-backup 1", b"vibey-backup 2", 1), "newer version"),
    "of a later schema": (lambda data: data.replace(b'"schema": "', b'"schema": "9', 1), "does not know"),
    "foreign": (lambda _data: b"PGDMP" + os.urandom(2000), "not a backup"),
    "empty": (lambda _data: b"", "not a backup"),
}
# What a database consists of, apart from its rows: `pg_dump` writes random keys and its own version.
NOISE = ("\\restrict", "\\unrestrict", "--")


@pytest.fixture
def other(empty_database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line of another installation, whose database is empty."""
    folder = tmp_path / "other"
    folder.mkdir()
    services = {"database_url": empty_database_url, "redis_url": redis_url, "data_dir": str(folder / "data")}
    return Cli(write_config(folder / "vibey.toml", services, f'[engines]\nmode = "singleton"\n{ENGINES}'))


def _schema(url: str) -> list[str]:
    command = [postgres_binary("pg_dump"), "--schema-only", "--no-owner", plain(url)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if line and not line.startswith(NOISE)]


def _rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, but of those a restore changes on purpose."""
    names = [row[0] for row in query(url, "select tablename from pg_tables where schemaname = 'public' order by 1")]
    kept = [name for name in names if name not in {"workers", "installation"}]
    return {str(name): query(url, f'select t::text from "{name}" t order by 1') for name in kept}


def _run(*command: str) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_everything_comes_back(vibey: CommandLine, other: Cli, empty_database_url: str, tmp_path: Path) -> None:
    """Rows, sequences, trigger and schema are the original's; the ledger says what was done; an audit is clean."""
    vibey.enqueued(5)
    vibey.route()
    file = tmp_path / "a file.backup"
    made = described("backup", vibey("backup", file, "--json").json)
    assert (made["jobs"], made["open_jobs"], made["live_runs"]) == (5, 5, len(vibey.bench.live()))
    assert file.stat().st_mode & 0o777 == 0o600
    before = _rows(vibey.bench.url)
    said = other("restore", file, "--json")
    assert said.code == 0, said
    restored = described("restore", said.json)
    assert (restored["jobs"], restored["replaced_jobs"]) == (5, 0)
    after = _rows(empty_database_url)
    (event,) = query(empty_database_url, "select kind, data ->> 'backup_at' from ledger order by id desc limit 1")
    assert event == ("BackupRestored", made["at"])
    assert len(after["ledger"]) == len(before["ledger"]) + 1
    assert set(before.pop("ledger")) <= set(after.pop("ledger"))
    assert after == before
    assert _schema(empty_database_url) == _schema(vibey.bench.url)
    with pytest.raises(Exception, match="append-only"):
        query(empty_database_url, "delete from ledger")
    assert other("audit").code == 0
    assert other("replay").code == 0
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_tokens_and_numbers_go_on(vibey: CommandLine, other: Cli, empty_database_url: str, tmp_path: Path) -> None:
    """New jobs and runs get new numbers, and no token that the first installation may have given out meanwhile."""
    vibey.enqueued(3)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    vibey.route()
    given = {token for _, token, _ in vibey.bench.live()}
    assert other("restore", file).code == 0
    assert other("enqueue", "{}", "--json").json["job_id"] == 4
    ((token,),) = query(empty_database_url, "select nextval('run_tokens')")
    assert given
    assert int(str(token)) > max(given) + 1_000_000


def test_what_is_no_whole_backup_changes_nothing(vibey: CommandLine, tmp_path: Path) -> None:
    """It is refused with a reason before anything is touched, even with --replace."""
    vibey.enqueued(3)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    whole, before = file.read_bytes(), _rows(vibey.bench.url)
    for kind, (damage, reason) in DAMAGES.items():
        file.write_bytes(damage(whole))
        said = vibey("restore", file, "--replace", "--yes")
        assert (said.code, reason in said.complaint) == (3, True), (kind, said)
    assert _rows(vibey.bench.url) == before


def test_a_database_with_jobs_is_replaced_only_when_told(vibey: CommandLine, tmp_path: Path) -> None:
    """Without --replace, or without a yes, nothing is changed; with both, the backup is what there is."""
    vibey.enqueued(2)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    vibey.enqueued(1)
    vibey.bench.close()
    assert "already holds 3 jobs" in vibey("restore", file).complaint
    assert "--yes" in vibey("restore", file, "--replace").complaint
    assert vibey.bench.value("select count(*) from jobs") == 3
    vibey.bench.close()
    assert vibey("restore", file, "--replace", "--yes", "--json").json["replaced_jobs"] == 3
    assert vibey.bench.value("select count(*) from jobs") == 2


def test_not_while_somebody_is_connected(vibey: CommandLine, tmp_path: Path) -> None:
    """A process of Vibey at work on the database, on whatever machine, is named, and nothing is changed."""
    vibey.enqueued(2)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    vibey.bench.close()
    # As from another machine: a session that carries another process's name.
    held = psycopg2.connect(plain(vibey.bench.url), application_name="vibey-1")
    said = vibey("restore", file, "--replace", "--yes")
    held.close()
    assert said.code == 3
    assert "127.0.0.1 (1)" in said.complaint


def test_tables_of_others_stay(vibey: CommandLine, other: Cli, empty_database_url: str, tmp_path: Path) -> None:
    """Of a database shared with other programs, only our tables are backed up and replaced."""
    query(vibey.bench.url, "create table customers as select 1 as secret")
    query(empty_database_url, "create table customers as select 2 as secret")
    vibey.enqueued(1)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    assert other("restore", file).code == 0
    assert query(empty_database_url, "select secret from customers") == [(2,)]
    assert other("restore", file, "--replace", "--yes").code == 0
    assert query(empty_database_url, "select secret from customers") == [(2,)]


def test_a_restore_that_fails_changes_nothing(vibey: CommandLine, tmp_path: Path) -> None:
    """A view of somebody else's on a table of ours forbids to drop it: the whole restore is undone, and says why."""
    vibey.enqueued(2)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    query(vibey.bench.url, "create view report as select state from jobs")
    before = _rows(vibey.bench.url)
    vibey.bench.close()
    said = vibey("restore", file, "--replace", "--yes")
    assert said.code == 3
    assert "view report depends on table jobs" in said.complaint
    assert _rows(vibey.bench.url) == before


def test_old_messages_are_gone(vibey: CommandLine, tmp_path: Path) -> None:
    """What is queued in Redis names runs as they were: it is removed, and nothing that is not ours."""
    vibey.enqueued(2)
    file = tmp_path / "file.backup"
    vibey("backup", file)
    client = redis.Redis.from_url(vibey.bench.redis_url)
    client.set("somebody:else", "1")
    assert client.keys("vibey:*")
    vibey.bench.close()
    assert vibey("restore", file, "--replace", "--yes").code == 0
    assert [name for name in client.keys("*") if name.startswith(b"vibey:")] == []
    assert client.get("somebody:else") == b"1"
    client.close()


def test_a_full_disk_leaves_no_half_file(vibey: CommandLine, tmp_path: Path) -> None:
    """The disk is named, the earlier backup stays, and nothing half-written does."""
    small = tmp_path / "small"
    small.mkdir()
    if shutil.which("mount") is None or _run("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)) != 0:
        pytest.skip("a small tmpfs cannot be mounted here")
    try:
        query(
            vibey.bench.url,
            "insert into ledger (kind, data) select 'ProjectChanged', jsonb_build_object('x', md5(n::text)) "
            "from generate_series(1, 20000) n",
        )
        said = vibey("backup", small / "file.backup")
        assert said.code == 4
        assert f"writing {small / 'file.backup'}: the disk is full" in said.complaint
        assert list(small.iterdir()) == []
    finally:
        _run("umount", str(small))


def test_other_files_are_not_overwritten(vibey: CommandLine, tmp_path: Path) -> None:
    """An earlier backup is replaced as a whole; any other file in the way is refused."""
    file = tmp_path / "file.backup"
    assert vibey("backup", file).code == 0
    vibey.enqueued(1)
    assert vibey("backup", file).code == 0
    assert service.read_manifest(file).jobs == 1
    assert "not a backup" in vibey("backup", tmp_path / "vibey.toml").complaint
    assert vibey("backup", tmp_path / "nowhere" / "file").code == 2
    assert vibey("backup", tmp_path).code == 2
    assert vibey("restore", tmp_path / "none").code == 2


def test_an_older_schema_is_brought_up_to_date(
    empty_database_url: str, vibey: CommandLine, redis_url: str, tmp_path: Path
) -> None:
    """A backup made before an upgrade is restored as it was and then migrated; every table there ever was is in it."""
    services = {"database_url": empty_database_url, "redis_url": redis_url, "data_dir": str(tmp_path / "data")}
    before = Cli(write_config(tmp_path / "old.toml", services, ENGINES))
    file = tmp_path / "file.backup"
    assert before("backup", file).code == 4
    for revision in sorted(migrate.revisions()):
        migrate.upgrade(empty_database_url, revision)
        tables = query(empty_database_url, "select tablename from pg_tables where schemaname = 'public'")
        assert {name for (name,) in tables} <= set(store.own_tables())
        if revision == min(migrate.revisions()):
            query(empty_database_url, "insert into projects (name) values ('kept')")
            assert before("backup", file, "--json").json["schema"] == revision
    vibey.bench.close()
    assert vibey("restore", file, "--json").code == 0
    database = Database(vibey.bench.url)
    assert migrate.current(database) == migrate.HEAD
    database.dispose()
    assert vibey.bench.rows("select name from projects where name = 'kept'") == [("kept",)]
    assert _schema(vibey.bench.url) == _schema(empty_database_url)


def test_client_programs_must_be_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of the PATH are taken for a server of one's own if they are as new; too old ones are named."""
    own = postgres_binary("pg_dump").parent
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, release in ((old, "12.3"), (new, "30.1")):
        folder.mkdir()
        for name in service.PROGRAMS:
            program = folder / name
            program.write_text(
                f"#!/bin/sh\necho '{name} (PostgreSQL) {release} (Debian {release}-1)'\n", encoding="utf-8"
            )
            program.chmod(0o755)
    monkeypatch.setenv("PATH", str(old))
    assert service.client_programs(14, is_embedded=False)[0] == own
    with pytest.raises(Refused, match=r"version 25 or newer are needed; found: 12 in .*old, .*postgresql-client-25"):
        service.client_programs(25, is_embedded=False)
    monkeypatch.setenv("PATH", f"{old}{os.pathsep}{new}")
    assert service.client_programs(25, is_embedded=False) == (new, 30)
    assert service.client_programs(14, is_embedded=True)[0] == own
    assert shutil.which("pg_dump", path=str(new))
