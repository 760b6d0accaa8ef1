"""Backup: one file that holds an installation's database, and the way back from it.

The file begins with a line that names its format and a line of JSON, the *manifest*: version and schema of the program
that made it, the installation and the instant, what is in it, and a checksum over manifest and dump. After them comes
what `pg_dump --format=custom` wrote. Everything is read and compared with the checksum before a restore touches
anything, so a file that is cut short, damaged or not a backup at all changes nothing.

*Backup.* A read-only transaction fixes a snapshot; `pg_dump` reads that same snapshot, so the file is consistent and
the manifest's numbers are those of the dump, whatever the workers do meanwhile. The file is written under another name
and appears under its own in one step.

*Restore.* Nothing of the installation may be at work. Drop, dump and what follows are one transaction
(`vibey.store.backup`): until it commits, the database is as it was. Then missing migrations are applied, and the keys
of this installation in Redis are removed: messages there name runs that the restored database does not know. They
could not start anything either way, as tokens go on far above the backup's.

Runs that were live in the backup have no holder any more. They are judged as after any outage: once ticks have counted
their lease to its end, those that had started count as lost and their jobs run again, the others are withdrawn.

*Programs.* `pg_dump` refuses a server newer than itself. For the embedded server its own programs are used; for
another one those on the PATH if they are new enough, else the embedded ones, which speak no TLS.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vibey import __version__
from vibey.domain.errors import InvalidInput, Refused, SchemaOutdated, ServiceUnavailable, VibeyError
from vibey.domain.faults import fault_of_os
from vibey.embedded import postgres_binary
from vibey.services import machine
from vibey.services.installation import Installation
from vibey.services.owner import owner
from vibey.services.wording import instant
from vibey.store import backup as store
from vibey.store import migrate

if TYPE_CHECKING:
    from vibey.settings import Settings

MAGIC = b"vibey-backup "
FORMAT = 1
LONGEST_MANIFEST = 4 * 1024 * 1024
# Room for the number of bytes and the checksum, which are known only after the dump.
SPARE_BYTES = 64
CHUNK_BYTES = 1024 * 1024
PROGRAMS = ("pg_dump", "pg_restore", "psql")
_RELEASE = re.compile(r"\b(\d+)(?:\.\d+|\w*)")

# What is told of the progress: what is being done, the bytes done, and of how many, if that is known.
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says about itself. `server` and `client` are major versions of Postgres."""

    version: str
    schema: str
    database_schema: str
    installation: str
    at: str
    server: int
    client: int
    jobs: int
    open_jobs: int
    live_runs: int
    tables: tuple[str, ...]
    functions: tuple[str, ...]
    bytes: int = 0
    sha256: str = "0" * 64


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did; `replaced_jobs` were in the database before, `redis_cleared` is False if Redis was away."""

    manifest: Manifest
    replaced_jobs: int
    redis_cleared: bool


@dataclass(frozen=True, slots=True)
class Target:
    """The database a backup is restored into, as it is before."""

    major: int
    schema: str
    jobs: int
    tables: tuple[store.Name, ...]
    sequences: tuple[store.Name, ...]


def back_up(settings: Settings, file: Path, progress: Progress) -> Manifest:
    """Write a backup of the installation's database; the installation may be at work, and its schema an older one.

    Refused, with no file written, when the file is in the way, the disk is full or no usable `pg_dump` is found.
    """
    _check_place(file)
    with machine.servers_running(settings):
        installation = Installation.open(settings)
        try:
            schema = migrate.current(installation.database)
            if schema not in migrate.revisions():
                raise SchemaOutdated(schema, migrate.HEAD)
            return _written(installation, schema, file, progress)
        finally:
            installation.close()


def restore(
    settings: Settings, file: Path, *, replace_jobs: bool, confirm: Callable[[Target], bool], progress: Progress
) -> Restored:
    """Put a backup in force in the installation's own database.

    Refused while processes of the installation run, and for a database that holds jobs unless `replace_jobs`; then
    `confirm` is asked as well. Everything about the file is checked first.
    """
    with _opened(file) as source:
        manifest = _read_manifest(file, source)
        _check_schema(manifest)
        start = source.tell()
        _verify(file, source, manifest, progress)
        with machine.installation_stopped(settings):
            installation = Installation.open(settings)
            try:
                target = _inspect(installation, manifest)
                if target.jobs and not replace_jobs:
                    raise Refused(
                        f"the database already holds {target.jobs} jobs",
                        "back it up if you need it, then use --replace to restore over it",
                    )
                if target.jobs and not confirm(target):
                    raise Refused("not confirmed", "nothing was changed")
                source.seek(start)
                _load(installation, source, manifest, target, progress)
                migrate.upgrade(installation.database.url)
                return Restored(manifest, target.jobs, _clear_redis(installation))
            finally:
                installation.close()


def read_manifest(file: Path) -> Manifest:
    """What a backup says about itself, its dump unread."""
    with _opened(file) as source:
        return _read_manifest(file, source)


def summary(manifest: Manifest) -> dict[str, Any]:
    """What people and programs are told of a backup."""
    names = ("at", "version", "schema", "installation", "server", "bytes", "sha256", "jobs", "open_jobs", "live_runs")
    return {name: getattr(manifest, name) for name in names}


# --- Writing


def _check_place(file: Path) -> None:
    """Refuse to put a backup where something else is, or where nothing can be."""
    if file.is_dir():
        raise InvalidInput("FILE", str(file), "the name of a file, not of a folder")
    if not file.parent.is_dir():
        raise InvalidInput("FILE", str(file), "a file in a folder that exists")
    if file.exists():
        with _opened(file) as found:
            if found.read(len(MAGIC)) != MAGIC:
                raise Refused(f"{file} exists and is not a backup", "give another name; nothing was written")


def _written(installation: Installation, schema: str, file: Path, progress: Progress) -> Manifest:
    draft = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        # Payloads and results are in it: nobody else may read it.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as sink:
            manifest = _dump(installation, schema, sink, progress)
            sink.flush()
            os.fsync(sink.fileno())
        draft.replace(file)
    except OSError as error:
        raise _unwritable(file, error) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return manifest


def _unwritable(file: Path, error: OSError) -> VibeyError:
    known = fault_of_os(error, f"writing {file.absolute()}")
    return known or Refused(f"{file} cannot be written: {error.strerror or error}", "choose another file")


def _dump(installation: Installation, schema: str, sink: IO[bytes], progress: Progress) -> Manifest:
    """Write header and dump; the header is written again once size and checksum are known."""
    database = installation.database
    with database.begin() as connection:
        store.SNAPSHOT.run(connection)
        facts = store.EXPORT.all(connection)[0]
        server = store.SERVER.all(connection)[0]
        tables, sequences = store.tables_and_sequences(connection)
        folder, client = client_programs(server.major, is_embedded=_is_embedded(installation))
        manifest = Manifest(
            version=__version__,
            schema=schema,
            database_schema=tables[0].schema,
            installation=installation.identity,
            at=str(instant(facts.at)),
            server=server.major,
            client=client,
            jobs=facts.jobs,
            open_jobs=facts.open_jobs,
            live_runs=facts.live_runs,
            tables=tuple(each.name for each in tables),
            functions=tuple(store.trigger_functions(connection)),
        )
        room = len(_header(manifest)) + SPARE_BYTES
        sink.write(_header(manifest, room))
        names = [f"--table={each.quoted}" for each in (*tables, *sequences)]
        address, environment = _connection(installation)
        command = [
            str(folder / "pg_dump"),
            "--format=custom",
            "--no-owner",
            "--no-privileges",
            "--no-password",
            "--lock-wait-timeout=20000",
            f"--snapshot={facts.snapshot}",
            *names,
            f"--dbname={address}",
        ]
        digest, size = hashlib.sha256(), 0
        with _running(command, environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None  # noqa: S101  for the type checker: it is a pipe
            while chunk := process.stdout.read(CHUNK_BYTES):
                sink.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                progress("backing up", size, None)
    manifest = replace(manifest, bytes=size)
    digest.update(_facts(manifest))
    manifest = replace(manifest, sha256=digest.hexdigest())
    sink.seek(0)
    sink.write(_header(manifest, room))
    return manifest


def _header(manifest: Manifest, room: int = 0) -> bytes:
    text = json.dumps(asdict(manifest), ensure_ascii=True).encode()
    head = b"%s%d\n" % (MAGIC, FORMAT)
    return head + text.ljust(room - len(head) - 1) + b"\n"


def _facts(manifest: Manifest) -> bytes:
    """What the checksum covers besides the dump."""
    return json.dumps(asdict(replace(manifest, sha256="")), ensure_ascii=True, sort_keys=True).encode()


# --- Reading


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    try:
        source = file.open("rb")
    except FileNotFoundError as error:
        raise InvalidInput("FILE", str(file), "a file that exists") from error
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", "give a file that vibey backup wrote") from error
    with source:
        yield source


def _read_manifest(file: Path, source: IO[bytes]) -> Manifest:
    head = source.readline(64)
    if not head.startswith(MAGIC) or not head.endswith(b"\n"):
        raise Refused(f"{file} is not a backup of Vibey", "give a file that vibey backup wrote")
    if head.strip() != MAGIC + str(FORMAT).encode():
        raise Refused(f"{file} was written by a newer version of Vibey", "restore it with that version or a later one")
    try:
        values = json.loads(source.readline(LONGEST_MANIFEST))
        lists = {name: tuple(map(str, values[name])) for name in ("tables", "functions")}
        return Manifest(**{**values, **lists})
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"{file} is damaged: its manifest cannot be read", "use another backup") from error


def _check_schema(manifest: Manifest) -> None:
    if manifest.schema not in migrate.revisions():
        raise Refused(
            f"the backup was made by Vibey {manifest.version} with schema {manifest.schema}, which this version "
            f"({__version__}) does not know",
            f"install Vibey {manifest.version} or a later one",
        )


def _verify(file: Path, source: IO[bytes], manifest: Manifest, progress: Progress) -> None:
    start = source.tell()
    size = os.fstat(source.fileno()).st_size - start
    if size != manifest.bytes:
        raise Refused(
            f"{file} is incomplete: {size} of {manifest.bytes} bytes of its dump are there", "use another backup"
        )
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        done += len(chunk)
        progress("checking", done, manifest.bytes)
    digest.update(_facts(manifest))
    if digest.hexdigest() != manifest.sha256:
        raise Refused(f"{file} is damaged: its checksum does not match", "use another backup")


# --- Loading


def _inspect(installation: Installation, manifest: Manifest) -> Target:
    """What is in the database; Refused where a restore cannot or must not begin."""
    database = installation.database
    found = migrate.current(database)
    if found is not None and found not in migrate.revisions():
        raise Refused(
            f"the database has schema {found}, which this version of Vibey does not know",
            "restore with the version that made it, or into another database",
        )
    with database.autocommit() as connection:
        server = store.SERVER.all(connection)[0]
        sessions = [f"{row.host} ({row.n})" for row in store.SESSIONS.all(connection)]
        tables, sequences = store.tables_and_sequences(connection, manifest.tables)
        jobs = int(store.JOBS.scalar(connection)) if found is not None else 0
    if sessions:
        raise Refused(
            f"processes of Vibey are connected to this database from {', '.join(sessions)}",
            "stop every worker, beat and other command of this installation first",
        )
    if server.major < manifest.server:
        raise Refused(
            f"the backup comes from PostgreSQL {manifest.server}, and this server is version {server.major}",
            f"restore into PostgreSQL {manifest.server} or newer",
        )
    schema = tables[0].schema if tables else server.schema
    if schema != manifest.database_schema:
        raise Refused(
            f"the backup's tables are in schema {manifest.database_schema!r}, this installation's go to {schema!r}",
            "restore with a database_url that has the same search_path",
        )
    return Target(server.major, schema, jobs, tuple(tables), tuple(sequences))


def _load(
    installation: Installation, source: IO[bytes], manifest: Manifest, target: Target, progress: Progress
) -> None:
    """Replace our tables by those of the dump, in one transaction."""
    least = max(target.major, manifest.client)
    folder, _ = client_programs(least, is_embedded=_is_embedded(installation))
    address, environment = _connection(installation)
    event = {"backup_at": manifest.at, "version": manifest.version, "by": owner()}
    head = store.restore_head(target.schema, target.tables, target.sequences, manifest.functions)
    tail = store.restore_tail(target.schema, event)
    start = source.tell()
    # The child reads from where the file's descriptor stands, not from where our buffer does.
    os.lseek(source.fileno(), start, os.SEEK_SET)
    extract = [str(folder / "pg_restore"), "--no-owner", "--no-privileges", "--file=-"]
    run = [str(folder / "psql"), "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", "--file=-"]
    with (
        _running([*run, f"--dbname={address}"], environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as psql,
        _running(extract, environment, stdin=source, stdout=subprocess.PIPE) as script,
    ):
        assert psql.stdin is not None  # noqa: S101  for the type checker: both are pipes
        assert script.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):  # psql has ended with an error, which is reported on leaving
            psql.stdin.write(head.encode())
            while chunk := script.stdout.read(CHUNK_BYTES):
                psql.stdin.write(chunk)
                progress("restoring", os.lseek(source.fileno(), 0, os.SEEK_CUR) - start, manifest.bytes)
            # Without this the session ends, and with it the transaction, undone.
            if script.wait() == 0:
                psql.stdin.write(tail.encode())
        with suppress(BrokenPipeError):
            psql.stdin.close()
        psql.wait()


def _clear_redis(installation: Installation) -> bool:
    try:
        installation.wakeups.forget_all()
    except ServiceUnavailable:
        return False
    return True


# --- Programs


def client_programs(least: int, *, is_embedded: bool) -> tuple[Path, int]:
    """A folder with `pg_dump`, `pg_restore` and `psql` of at least this major version, and their version.

    Refused, naming what was found, when there is none.
    """
    own = postgres_binary("pg_dump").parent
    folders = [own] if is_embedded else [*_on_path(), own]
    versions = {folder: _major(folder) for folder in folders}
    for folder, major in versions.items():
        if major >= least:
            return folder, major
    there = ", ".join(f"{major} in {folder}" for folder, major in versions.items() if major) or "none"
    raise Refused(
        f"PostgreSQL's client programs of version {least} or newer are needed; found: {there}",
        f"install them (on Debian: postgresql-client-{least}) or put their folder on the PATH",
    )


def _on_path() -> list[Path]:
    folders = (Path(entry) for entry in os.get_exec_path() if entry)
    return [folder for folder in folders if all(shutil.which(name, path=str(folder)) for name in PROGRAMS)]


def _major(folder: Path) -> int:
    """The major version of the programs in a folder; 0 if they do not tell."""
    try:
        said = subprocess.run(
            [folder / "pg_dump", "--version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    release = _RELEASE.search(said.stdout.replace("pg_dump", ""))
    return int(release[1]) if release else 0


@contextmanager
def _running(
    command: list[str],
    environment: Mapping[str, str],
    **streams: Any,  # noqa: ANN401  as Popen takes them
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has ended on leaving: killed if we leave by an error, Refused if it fails by itself."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=dict(environment), stderr=said, **streams)
        try:
            yield process
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        if code != 0:
            said.seek(0)
            raise _failed(Path(command[0]).name, said.read().decode(errors="replace"))


def _failed(program: str, said: str) -> VibeyError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    details = [line for line in lines if line.startswith("DETAIL:")]
    reason = " ".join([*(errors or lines or ["it said nothing"])[:1], *details[:1]])
    reason = reason.removeprefix(f"{program}: ").removeprefix("error: ")
    return Refused(f"{program} failed: {reason}", "nothing was changed; mend that and try again")


def _connection(installation: Installation) -> tuple[str, dict[str, str]]:
    """How the programs reach the database: its address, and an environment that holds the password."""
    address, password = store.client_address(installation.database.url)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not (_is_embedded(installation) and name.startswith("PG")) and name != "PGOPTIONS"
    }
    given = {"PGPASSWORD": password} if password is not None else {}
    return address, {"PGCONNECT_TIMEOUT": "10", **inherited, "PGAPPNAME": "vibey backup", **given}


def _is_embedded(installation: Installation) -> bool:
    return not installation.settings.services.database_url
