"""A primary and its standby, both real servers: what is refused on the standby, and the life after a failover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.domain.errors import UnsuitableService
from vibey.embedded import cluster
from vibey.embedded.home import Owner, prepare_home, programs
from vibey.embedded.postgres import remove_home
from vibey.embedded.processes import free_port
from vibey.embedded.record import write_private
from vibey.services.doctor import State, check
from vibey.services.enqueue import Order, place
from vibey.services.installation import Installation
from vibey.settings import Source, settings_of
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 120
SETTINGS = """\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A Postgres server of a test's own."""

    folder: Path
    port: int

    def url(self, *others: Server) -> str:
        """The address of this server, and of others that libpq tries after it."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in (self, *others))
        return f"postgresql+psycopg2://vibey:pw@{hosts}/vibey"

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of Postgres' programs as the owner of the folder; it has to succeed."""
        owner = Owner.of(self.folder.parent)
        log = self.folder.parent / "log"
        with log.open("ab") as sink:
            done = owner.run([programs(owner) / program, *arguments], log=sink, seconds=SECONDS)
        assert done.returncode == 0, log.read_text(errors="replace")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self.run("pg_ctl", "start", "-w", "-s", "-D", self.folder, "-o", f"-p {self.port}")

    def stop(self) -> None:
        """Stop it once its standby has received everything."""
        self.run("pg_ctl", "stop", "-w", "-s", "-m", "fast", "-D", self.folder)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A primary with this version's schema, and a standby that follows it."""
    home = prepare_home(tmp_path / "postgres")
    primary, standby = Server(home / "primary", free_port()), Server(home / "standby", free_port())
    try:
        cluster.create(primary.folder, "pw")
        cluster.run_sql(primary.folder, "ALTER ROLE vibey REPLICATION")
        write_private(primary.folder / "postgresql.conf", SETTINGS, owner=Owner.of(home).ids)
        primary.start()
        migrate.upgrade(primary.url())
        source = primary.url().replace("+psycopg2", "")
        standby.run("pg_basebackup", "-R", "-c", "fast", "-d", source, "-D", standby.folder)
        standby.start()
        yield primary, standby
    finally:
        for server in (primary, standby):
            if cluster.postmaster(server.folder) is not None:
                server.stop()
        remove_home(home)


def test_a_standby_is_refused_until_it_is_promoted(pair: tuple[Server, Server], redis_url: str, tmp_path: Path) -> None:
    """Alone in the address it is named, with the remedy; beside its primary it takes over without a job lost."""
    primary, standby = pair
    bench = Bench(standby.url(primary), redis_url, tmp_path, {"engine": {"desk": noop()}})
    applied = "select count(*) from installation where generation is not null"
    until(lambda: query(standby.url(), applied) == [(1,)], what="the standby to have what was applied")

    tables = {"services": {"database_url": standby.url(), "redis_url": redis_url, "data_dir": str(tmp_path / "data")}}
    installation = Installation.open(settings_of(Source(None, tmp_path, tables), {}))
    found = [each for each in check(installation, staff=False) if each.name == "postgres"]
    assert [each.state for each in found] == [State.FAIL]
    assert "the server is a read-only standby" in found[0].detail
    assert "name the primary in database_url" in found[0].fix
    with pytest.raises(UnsuitableService, match="standby"):
        place(installation, [Order()])
    installation.close()
    with pytest.raises(UnsuitableService, match="standby"):
        migrate.upgrade(standby.url())

    before = bench.enqueue(3)
    primary.stop()
    standby.run("pg_ctl", "promote", "-w", "-s", "-D", standby.folder)
    after = bench.enqueue(2)
    kept = [job for (job,) in query(standby.url(), "select id from jobs order by id")]
    assert kept == sorted({*before, *after})
    bench.close()
