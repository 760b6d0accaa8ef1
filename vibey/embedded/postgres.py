"""The embedded Postgres: started, asked, stopped and removed."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded import cluster as clusters
from vibey.embedded.binaries import postgres_binary, program_version
from vibey.embedded.home import (
    Owner,
    prepare_home,
    programs,
    set_aside,
    shared_home,
    spare_home,
)
from vibey.embedded.processes import ADDRESS_TAKEN, Log, end, exchange, free_port, wait_until
from vibey.embedded.record import write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import psutil

    from vibey.embedded.record import Server

RECOVERY_SECONDS = 120
STOP_SECONDS = 30.0
START_TRIES = 3

# What makes commits durable (fsync, synchronous_commit, full_page_writes) stays at its default: on.
SETTINGS = """\
# Written anew at each start, so that an old cluster gets today's settings. For your own: own.conf beside this file.
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = {connections}
shared_buffers = 128MB
wal_level = minimal
max_wal_senders = 0
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
log_min_messages = warning
log_checkpoints = off
include = 'own.conf'
"""
OWN_SETTINGS = "own.conf"
OWN_TEXT = """\
# Settings of your own: they win over postgresql.conf beside this file, and no start of Vibey's changes them.
"""


class Postgres:
    """The cluster of one data directory, and the server on it."""

    name = "postgres"

    def __init__(self, data_dir: Path) -> None:
        self._link = data_dir / "postgres"
        self._log = data_dir / "logs" / "postgres.log"

    @property
    def _cluster(self) -> Path:
        return self._link.resolve() / "cluster"

    def answers(self, at: Server) -> bool:
        """Say whether this cluster's own server takes connections on the recorded port."""
        return clusters.postmaster(self._cluster) is not None and _takes_connections(at.port)

    def pid(self) -> int | None:
        """Return the server's process id, None when none runs."""
        found = clusters.postmaster(self._cluster)
        return None if found is None else found.pid

    def version(self) -> str:
        """Return the release of the programs, such as 18.6."""
        return program_version(postgres_binary("postgres"))

    def start(self, at: Server, connections: int) -> Server:
        """Return when it takes connections; what is returned has the port and the `max_connections` it has.

        Makes the cluster if there is none. One that has to be started gets so many `connections`, unless a file of the
        operator's says otherwise. Raises ServiceUnavailable when the server cannot be started, or
        runs and stays silent.
        """
        if self.answers(at):
            return at
        running = clusters.postmaster(self._cluster)
        if running is not None:
            self._await_recovery(running, at)
            return at
        prepare_home(self._link)
        if not self._cluster.is_dir():
            clusters.create(self._cluster, at.password)
        clusters.clear_remains(self._cluster)
        clusters.separate_roles(self._cluster, at.password)
        return self._launch(at, connections)

    def stop(self) -> bool:
        """End it in good order; say whether it ran. Raises ServiceUnavailable when it does not end."""
        return stop_cluster(self._cluster)

    def destroy(self) -> None:
        """Stop it and remove its files, wherever they are."""
        self.stop()
        if os.geteuid() == 0 or self._link.is_symlink():
            home = shared_home(self._link)
            for place in {home, spare_home(home)}:
                remove_home(place)
        if self._link.is_symlink():
            self._link.unlink()
        elif self._link.is_dir():
            for name in ("cluster", "cluster.new"):
                shutil.rmtree(self._link / name, ignore_errors=True)
            (self._link / "password").unlink(missing_ok=True)
            with suppress(OSError):  # something of somebody else's is in it
                self._link.rmdir()
        self._log.unlink(missing_ok=True)

    def administer(self, statements: Sequence[str], database: str) -> None:
        """Run SQL as the superuser in the cluster, which must be stopped."""
        clusters.run_sql(self._cluster, *statements, database=database)

    def adopt(self, at: Server) -> None:
        """Give a cluster whose record is lost the password of a new one; set a removed directory's aside."""
        self.stop()
        if self._cluster.is_dir():
            clusters.run_sql(self._cluster, f"ALTER ROLE vibey PASSWORD '{at.password}'")
        elif os.geteuid() == 0 and not self._link.is_dir():
            abandoned = shared_home(self._link)
            if abandoned.is_dir():
                stop_cluster(abandoned / "cluster")
                set_aside(abandoned)

    def _launch(self, at: Server, connections: int) -> Server:
        """Start the server, elsewhere if the port is taken between looking and listening."""
        owner = Owner.of(self._cluster)
        log = Log(self._log)
        for _ in range(START_TRIES):
            at, log = replace(at, port=free_port(at.port)), Log(self._log)
            text = SETTINGS.format(port=at.port, connections=connections)
            write_private(self._cluster / "postgresql.conf", text, owner=owner.ids)
            if not (self._cluster / OWN_SETTINGS).exists():
                write_private(self._cluster / OWN_SETTINGS, OWN_TEXT, owner=owner.ids)
            allowed = clusters.setting(self._cluster, "max_connections")
            at = replace(at, connections=int(allowed) if allowed.isdigit() else 0)
            self._run_pg_ctl(owner)
            if self.answers(at):
                return at
            if not log.says(ADDRESS_TAKEN):
                break
        raise self._unavailable(log.verdict())

    def _run_pg_ctl(self, owner: Owner) -> None:
        """Start it and wait until it is ready, or has given up; its log says which."""
        patience = f"--timeout={RECOVERY_SECONDS}"
        command: list[str | Path] = [programs(owner) / "pg_ctl", "start", "--silent", "--wait", patience]
        with suppress(subprocess.TimeoutExpired), self._log.open("ab") as sink:
            owner.run([*command, "-D", self._cluster], log=sink, seconds=RECOVERY_SECONDS + 10)

    def _await_recovery(self, running: psutil.Process, at: Server) -> None:
        """Wait for a server that is up but not ready: it replays its log, or is about to listen."""
        if not wait_until(lambda: _takes_connections(at.port), seconds=RECOVERY_SECONDS):
            raise self._unavailable(f"process {running.pid} takes no connections on port {at.port}")

    def _unavailable(self, detail: str) -> ServiceUnavailable:
        remedy = f"read {self._log}, or set services.database_url to a Postgres of your own"
        return ServiceUnavailable("the embedded Postgres", detail, remedy)


def stop_cluster(cluster: Path) -> bool:
    """End a cluster's server in good order, and what a killed one left; say whether it ran."""
    found = clusters.postmaster(cluster)
    if found is not None:
        _end(found)
    if cluster.is_dir():
        clusters.clear_remains(cluster)
    return found is not None


def remove_home(home: Path) -> None:
    """Stop whatever serves a cluster's folder under /var/lib/vibey, and remove the folder."""
    if home.is_dir():
        stop_cluster(home / "cluster")
        shutil.rmtree(home)


def _end(server: psutil.Process) -> None:
    """SIGINT is Postgres's fast shutdown, SIGQUIT its immediate one; both keep what was committed."""
    for how in (signal.SIGINT, signal.SIGQUIT):
        if end([server], how, seconds=STOP_SECONDS):
            return
    raise ServiceUnavailable(
        "the embedded Postgres", f"process {server.pid} does not end", f"end it: kill -QUIT {server.pid}"
    )


def _takes_connections(port: int) -> bool:
    """Ask as any client would, and go when asked for the password (R).

    An error (E) counts too, such as too many clients, unless it says that the server cannot serve yet.
    """
    words = b"user\0vibey\0database\0vibey\0\0"
    protocol_3_0 = 196_608
    answer = exchange(port, struct.pack("!II", 8 + len(words), protocol_3_0) + words)
    cannot_connect_now = b"57P03"
    return answer[:1] == b"R" or (answer[:1] == b"E" and cannot_connect_now not in answer)
