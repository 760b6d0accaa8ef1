"""Real servers for one machine: Postgres and a Redis-compatible server, from wheels.

A fleet brings its own Postgres and Redis. A laptop has neither, and should not need Docker or root to try
Vibey; so both come as Python wheels and run as ordinary background processes under one data directory.

**Who owns what.** `data_dir` holds everything, or points to it:

    services.json    the record: ports and generated passwords (0600)
    services.lock    held while servers are started, stopped or removed
    postgres/        the Postgres cluster (under root: a link into /var/lib/vibey, see below)
    valkey/          configuration with its password (0600), and the append-only file
    logs/            postgres.log and valkey.log

The record is written before the server it describes, so no password is ever lost between the two. A port is
picked once and kept: other programs may remember a URL. Only when another program has taken it is a new one
picked, for Redis with a new password, as clients have sent the old one to whoever took the port. Both servers
listen on 127.0.0.1 alone, ask for a password, and have no unix sockets.

**Whose rights.** The application's role in Postgres, `vibey`, owns its database and is no superuser; nobody can log in
as the superuser (`vibey.embedded.cluster`). Settings of the operator's own go into `own.conf` in the cluster.

**Whose processes.** A server belongs to the data directory, not to the process that started it. It runs in a
session of its own: it survives its starter, its starter's terminal and its Ctrl-C, and only `stop` ends it.
Any process may call `ensure`; the file lock makes simultaneous calls take turns, and all but the first find
the servers running. A process is taken for ours only when its command line names our files; a number read
from a pid file is never enough, for the system hands numbers out again.

**What each failure does.**

- A server was killed, or the machine lost power: the next `ensure` starts it on the same files. Postgres
  replays its log and loses nothing committed; valkey loses at most the last second, which by design is speed
  and not truth. Backends left over from a killed postmaster are ended first; a stale `postmaster.pid` is
  removed only when its number is now another process's and no process is left in the cluster.
- A server runs but does not answer: it is given time to recover, then `ServiceUnavailable` names its process.
- A server does not start: `ServiceUnavailable` with the last line of its log, and where the log is.
- The record is lost but the data is there: servers still running are stopped, and started with new passwords.
- `initdb` was interrupted: the half-made cluster is thrown away; a cluster appears by one rename.

**Root.** Postgres refuses to run as root, as it should. Then it runs as the user `postgres` (or `nobody`).
That user may not enter most folders of root, so the cluster lives in `/var/lib/vibey/<hash of the data
directory>/`, a folder made here, owned by that user, linked from `data_dir/postgres`. No folder that existed
before is ever chmodded. If that user cannot run the wheel's programs (a virtual environment under /root),
they are copied once to `/var/lib/vibey/postgres-<version>/`. When a data directory was deleted by hand, its
old cluster is set aside as `<hash>.removed`, never revived: deleting the folder meant deleting the data.
The data directory a cluster there belongs to is written down in its folder, so that `orphans` can name those whose
data directory is gone. `destroy` removes the cluster and one set aside before, but leaves the copied programs, which
other data directories share; `remove_unused_programs` removes them after the last cluster of the machine.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vibey.domain.connections import LEAST_SERVER
from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.binaries import postgres_binary, redis_binary
from vibey.embedded.home import SharedHome, remove_unused_programs, shared_home, shared_homes, spare_home
from vibey.embedded.postgres import Postgres, remove_home
from vibey.embedded.record import Record, Server, exclusive
from vibey.embedded.valkey import Valkey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "ServiceStatus",
    "Services",
    "SharedHome",
    "administer",
    "destroy",
    "ensure",
    "locate",
    "orphans",
    "outside",
    "postgres_binary",
    "redis_binary",
    "redis_server",
    "remove_orphan",
    "remove_unused_programs",
    "status",
    "stop",
]

# The embedded server is on loopback and has no TLS, whatever PGSSLMODE and the like of the caller's shell ask for. An
# address with all of these is complete: `vibey.store.connecting` keeps variables without a parameter here away from it.
# While the server is away any local user may listen on its port, so the password is never sent, only proved (SCRAM).
PLAIN_CONNECTION = (
    "hostaddr=127.0.0.1&sslmode=disable&gssencmode=disable&channel_binding=disable&require_auth=scram-sha-256"
)


@dataclass(frozen=True, slots=True)
class Services:
    """Where the two servers are, with the passwords in the URLs: treat both as secrets.

    `connections` is Postgres's `max_connections`, 0 where that is not known.
    """

    database_url: str
    redis_url: str
    connections: int = 0


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One server as it is now; `pid` is None when no process of ours runs, `running` means it answers."""

    name: str
    running: bool
    pid: int | None
    address: str
    version: str


def ensure(data_dir: Path, *, connections: int = LEAST_SERVER) -> Services:
    """Start what does not run, reuse what does, and return where both are.

    A Postgres that has to be started takes so many `connections`; one that runs keeps what it has.
    Safe to call from several processes at once. Returns when both servers answer: about three seconds the
    first time, milliseconds when they already run. Raises ServiceUnavailable when one cannot be started.
    """
    with _unusable_folder(data_dir), exclusive(data_dir):
        record = Record.load(data_dir)
        if record is None:
            record = Record.new()
            # Nobody has the passwords of servers found here: they stop, and start with the new ones.
            Valkey(data_dir / "valkey").stop()
            Postgres(data_dir).adopt(record.postgres)
            record.save(data_dir)
        record = _started(data_dir, record, connections)
    return _services(record)


def administer(data_dir: Path, *statements: str, database: str = "postgres") -> None:
    """Run SQL as the superuser of the Postgres cluster, which must be stopped; for what its owner of databases may not.

    Each statement is a transaction of its own. Raises ServiceUnavailable with what Postgres said.
    """
    with _unusable_folder(data_dir), exclusive(data_dir):
        Postgres(data_dir).administer(statements, database)


def locate(data_dir: Path) -> Services | None:
    """Return what is recorded, without starting or asking anything; None before both servers had their first start."""
    with _unusable_folder(data_dir):
        record = Record.load(data_dir)
    return None if record is None or not (record.postgres.port and record.redis.port) else _services(record)


def status(data_dir: Path) -> list[ServiceStatus]:
    """Say how each server is, Postgres first; an empty list when there is no record."""
    with _unusable_folder(data_dir):
        record = Record.load(data_dir)
        if record is None:
            return []
        servers = (Postgres(data_dir), record.postgres), (Valkey(data_dir / "valkey"), record.redis)
        return [
            ServiceStatus(
                name=server.name,
                running=server.answers(at),
                pid=server.pid(),
                address=f"127.0.0.1:{at.port}",
                version=server.version(),
            )
            for server, at in servers
        ]


def stop(data_dir: Path) -> bool:
    """Stop both servers in good order; their data stays. Says whether anything was running.

    Raises ServiceUnavailable when a server does not end in time.
    """
    if not data_dir.is_dir():
        return False
    with _unusable_folder(data_dir), exclusive(data_dir):
        stopped = [Valkey(data_dir / "valkey").stop(), Postgres(data_dir).stop()]
    return any(stopped)


def destroy(data_dir: Path) -> None:
    """Stop both servers and remove them, their data and the record; nothing else in the folder is touched."""
    if not data_dir.is_dir():
        with _unusable_folder(data_dir):
            Postgres(data_dir).destroy()
        return
    with _unusable_folder(data_dir), exclusive(data_dir):
        Valkey(data_dir / "valkey").destroy()
        Postgres(data_dir).destroy()
        with suppress(OSError):  # it is not there, or something of somebody else's is in it
            (data_dir / "logs").rmdir()
        Record.remove(data_dir)


def outside(data_dir: Path) -> list[Path]:
    """The folders outside a data directory that hold its cluster, or held it before the directory was deleted."""
    home = shared_home(data_dir / "postgres")
    return [path for path in (home, spare_home(home)) if path.is_dir()]


def orphans() -> list[SharedHome]:
    """Clusters of root's whose data directory is gone, and those of which nobody wrote down whose they are."""
    return [home for home in shared_homes() if home.orphaned or home.data_dir is None]


def remove_orphan(home: SharedHome) -> None:
    """Stop what serves an orphaned cluster and remove it; ServiceUnavailable where that is not allowed."""
    with _unusable_folder(home.path):
        remove_home(home.path)


@contextmanager
def redis_server(directory: Path, *, port: int = 0) -> Iterator[str]:
    """Run one more Redis-compatible server under `directory` and yield its URL; it is stopped on leaving.

    For measurements and tests that need a server of their own. `port` 0 picks a free one.
    """
    server = Valkey(directory)
    with _unusable_folder(directory):
        at = server.start(Server.new(port))
    try:
        yield _redis_url(at)
    finally:
        server.stop()


def _started(data_dir: Path, record: Record, connections: int) -> Record:
    """Start both servers where needed, keeping the record true to the ports they really took."""
    postgres = replace(record, postgres=Postgres(data_dir).start(record.postgres, connections))
    if postgres != record:
        postgres.save(data_dir)
    both = replace(postgres, redis=Valkey(data_dir / "valkey").start(postgres.redis))
    if both != postgres:
        both.save(data_dir)
    return both


def _services(record: Record) -> Services:
    at = record.postgres
    return Services(
        database_url=f"postgresql+psycopg2://vibey:{at.password}@127.0.0.1:{at.port}/vibey?{PLAIN_CONNECTION}",
        redis_url=_redis_url(record.redis),
        connections=at.connections,
    )


def _redis_url(at: Server) -> str:
    return f"redis://:{at.password}@127.0.0.1:{at.port}/0"


@contextmanager
def _unusable_folder(data_dir: Path) -> Iterator[None]:
    """Turn what the file system refuses into the error a person can act on."""
    try:
        yield
    except OSError as error:
        raise ServiceUnavailable(
            "the embedded service",
            f"data directory {data_dir}: {error}",
            "make the folder writable for this user, or choose another data directory",
        ) from error
