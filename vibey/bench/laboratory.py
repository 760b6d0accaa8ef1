"""The laboratory: scratch servers, and fresh databases, installations and fleets on them.

Postgres keeps every setting that makes a commit durable: what is measured is what would survive a power cut.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from vibey import embedded
from vibey.bench.figures import say
from vibey.bench.peers import Peers
from vibey.bench.processes import Processes
from vibey.domain.errors import VibeyError
from vibey.services import pulse
from vibey.services.apply import apply
from vibey.services.installation import Installation
from vibey.services.programs import WORKERS
from vibey.settings import load
from vibey.store import migrate
from vibey.store.database import Database
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vibey.store.statement import Row

TEMPLATE = "vibey_template"
READY_SECONDS = 90.0
SEEN_WORKERS = Statement("bench-workers", "how many workers have appeared", "select count(*) from workers")


@dataclass(frozen=True, slots=True)
class Site:
    """One installation of the laboratory's own, and the settings file its processes read."""

    installation: Installation
    config: Path

    @property
    def database(self) -> str:
        """The name of its database."""
        return urlsplit(self.installation.database.url).path.lstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """What leads a process to this installation."""
        return {"VIBEY_CONFIG": str(self.config)}

    def staff(self, *engines: str) -> None:
        """Make these engines, or all, count as served, as a worker's pulse would; good for a lease length."""
        names = engines or tuple(self.installation.settings.engine)
        pulse.appear(self.installation, pulse.Worker("bench", names, 1))


class Laboratory:
    """Two embedded servers and everything made on them; see `opened`."""

    def __init__(self, folder: Path, services: embedded.Services, peers: Peers | None = None) -> None:
        """Work under `folder`, on servers that run already."""
        self.folder = folder
        self.services = services
        self.peers = peers or Peers()
        self._numbers = itertools.count(1)
        self._counts = False

    @classmethod
    @contextmanager
    def opened(cls, directory: Path | None, peers: Peers | None = None) -> Iterator[Laboratory]:
        """Start servers in a new folder (in `directory`, else where temporary files go); remove all at the end."""
        folder = Path(tempfile.mkdtemp(prefix="vibey-bench-", dir=directory))
        try:
            say("starting Postgres and Redis")
            services = embedded.ensure(folder / "data")
            laboratory = cls(folder, services, peers)
            laboratory.sql("postgres", f"create database {TEMPLATE}")
            migrate.upgrade(laboratory.url(TEMPLATE))
            yield laboratory
        finally:
            embedded.destroy(folder / "data")
            shutil.rmtree(folder, ignore_errors=True)

    def detour(self, services: embedded.Services) -> Laboratory:
        """The same laboratory, its servers reached by another way."""
        other = Laboratory(self.folder, services, self.peers)
        other._numbers = self._numbers
        return other

    def url(self, database: str) -> str:
        """The address of a database on the laboratory's server: a secret, as it holds the password."""
        return urlunsplit(urlsplit(self.services.database_url)._replace(path=f"/{database}"))

    def redis_url(self, number: int) -> str:
        """The address of one of the Redis server's numbered databases, 0 to 15."""
        return urlunsplit(urlsplit(self.services.redis_url)._replace(path=f"/{number}"))

    def status(self) -> list[embedded.ServiceStatus]:
        """The servers, with their versions."""
        return embedded.status(self.folder / "data")

    def sql(self, database: str, statement: str) -> None:
        """Run one statement in a database, outside any transaction."""
        target = Database(self.url(database))
        with target.autocommit() as connection:
            Statement("bench-administer", "prepare a measurement", statement).run(connection)
        target.dispose()

    def count_statements(self) -> None:
        """Have the server count statements, which takes a restart; databases made before are not counted."""
        if self._counts:
            return
        self._counts = True
        data = self.folder / "data"
        embedded.stop(data)
        embedded.administer(data, "alter system set shared_preload_libraries = 'pg_stat_statements'")
        embedded.administer(data, "create extension if not exists pg_stat_statements", database=TEMPLATE)
        self.services = embedded.ensure(data)

    @contextmanager
    def database(self, name: str, template: str = "template1") -> Iterator[str]:
        """The name of a fresh database, dropped on leaving."""
        made = f"{name}_{next(self._numbers)}"
        self.sql("postgres", f"create database {made} template {template}")
        try:
            yield made
        finally:
            self.sql("postgres", f"drop database if exists {made} with (force)")

    @contextmanager
    def site(
        self, name: str, slots: Mapping[str, int], engines: str = "", policy: Mapping[str, object] | None = None
    ) -> Iterator[Site]:
        """An installation with local no-op engines of these slots, and further TOML in `engines`.

        `policy` holds keys of `[engines]`; without it the mode is singleton.
        """
        with self.database(name, TEMPLATE) as database:
            config = self.folder / f"{database}.toml"
            config.write_text(self._toml(database, slots, policy or {"mode": "singleton"}) + engines, encoding="utf-8")
            installation = Installation.open(load(config, {}))
            try:
                apply(installation)
                yield Site(installation, config)
            finally:
                installation.database.dispose()

    @contextmanager
    def fleet(self, site: Site) -> Iterator[Processes]:
        """A control worker, a build worker and beat of this site as real processes, ready for work."""
        with Processes(self.folder) as processes:
            for program in WORKERS:
                processes.start(program.name, program.arguments("--loglevel", "WARNING"), site.environment)
            until(lambda: _seen(site) == len(WORKERS) - 1, processes, "the workers did not appear")
            yield processes

    def _toml(self, database: str, slots: Mapping[str, int], policy: Mapping[str, object]) -> str:
        lines = [
            "[services]",
            f"database_url = '{self.url(database)}'",
            f"redis_url = '{self.redis_url(0)}'",
            f"redis_prefix = '{database}:'",
            f"data_dir = '{self.folder / database}'",
            "[engines]",
            *(f"{key} = {value!r}" for key, value in policy.items()),
            "[engines.slots]",
            *(f"{name} = {count}" for name, count in slots.items()),
        ]
        for name in slots:
            lines += [f"[engine.{name}]", "kind = 'noop'", "tier = 'local'"]
        return "\n".join(lines) + "\n"


def until(condition: Callable[[], object], processes: Processes, otherwise: str) -> None:
    """Wait for a condition while the processes live; VibeyError with `otherwise` when it takes too long."""
    deadline = monotonic() + READY_SECONDS
    pause = Event()
    while not condition():
        processes.check()
        if monotonic() > deadline:
            raise VibeyError(f"{otherwise} within {READY_SECONDS:.0f} s")
        pause.wait(0.1)


def rows(installation: Installation, statement: Statement, **values: object) -> list[Row[tuple[object, ...]]]:
    """Run one statement as its own transaction and return its rows."""
    return list(installation.database.statement(lambda connection: statement.all(connection, **values)))


def number(installation: Installation, statement: Statement, **values: object) -> float:
    """Run one statement as its own transaction and return its one number."""
    return float(installation.database.statement(lambda connection: statement.scalar(connection, **values)))


def _seen(site: Site) -> int:
    return int(number(site.installation, SEEN_WORKERS))
