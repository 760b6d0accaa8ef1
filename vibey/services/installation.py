"""Installation: the settings together with the database, the wake-ups and the publisher they name."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import psutil

from vibey import embedded
from vibey.coordination.wakeups import WakeUps
from vibey.domain.errors import Refused, SchemaOutdated, ServiceUnavailable, UnsuitableService
from vibey.publisher import Build, Publisher, celery_settings, make_app
from vibey.services.connections import server_size
from vibey.settings import normalise_database_url, normalise_redis_url
from vibey.settings.applied import disagreement, followed
from vibey.store import fleet, generations, migrate, suitability
from vibey.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from vibey.settings import Settings
    from vibey.store.database import Connection
    from vibey.store.runs import Granted
    from vibey.store.statement import Row


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations derived from the settings, in milliseconds."""

    lease_ms: int
    tick_ms: int
    presence_ms: int
    gap_ms: int
    judge_ms: int
    canary_ms: int
    resend_ms: int
    half_life_ms: int
    recheck_ms: int
    backoff_ms: int
    poll_ms: int
    age_ms: int

    @classmethod
    def of(cls, settings: Settings) -> Timing:
        """Ticks come at least fifteen times in a lease, and at most 2.5 seconds apart.

        A tick moves the lease clock by at most `gap_ms`; a lease is over when that clock has gone on by `judge_ms`
        since the lease was renewed (see `vibey.services.tick`).
        """
        lease_ms = settings.engines.lease_seconds * 1000
        tick_ms = max(200, min(2500, lease_ms // 15))
        presence_ms = max(5000, min(45_000, lease_ms))
        return cls(
            lease_ms=lease_ms,
            tick_ms=tick_ms,
            presence_ms=presence_ms,
            gap_ms=lease_ms // 10,
            judge_ms=lease_ms * 6 // 5,
            canary_ms=max(15_000, presence_ms * 4 // 3),
            resend_ms=max(2000, min(5000, lease_ms // 6)),
            half_life_ms=settings.engines.health_half_life_seconds * 1000,
            recheck_ms=settings.engines.recheck_seconds * 1000,
            backoff_ms=settings.engines.retry_backoff_seconds * 1000,
            poll_ms=settings.engines.slot_poll_seconds * 1000,
            age_ms=settings.engines.priority_age_seconds * 1000,
        )


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation, ready for use. Opening it connects to nothing; each part does so when first used.

    As opened, its settings are those of this process's file and environment, also kept as `file`. What routes, settles
    or looks asks for the same installation `under` the generation in force: with that generation's routing keys, the
    timing that follows from them, its number and `content`. What runs an engine always comes from the file.
    """

    settings: Settings
    timing: Timing
    database: Database
    wakeups: WakeUps
    publisher: Publisher
    file: Settings
    generation: int | None = None
    content: Mapping[str, Any] | None = None
    _known: dict[int, Installation] = field(default_factory=dict, compare=False, repr=False)
    _judged: dict[tuple[int | None, str], str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def open(cls, settings: Settings, *, app: Any = None) -> Installation:  # noqa: ANN401  a Celery application
        """The installation these settings describe; `app` sends its messages when a worker has one already."""
        urls = service_urls(settings)
        return cls(
            settings,
            Timing.of(settings),
            Database(urls.database_url, max_connections=urls.connections or None),
            WakeUps(urls.redis_url, settings.services.redis_prefix),
            Publisher(lambda: app or make_app("vibey", celery_configuration(settings, urls))),
            settings,
        )

    def under(self, connection: Connection, generation: int | None) -> Installation:
        """This installation under a generation, whose content is read once; as opened where there is none."""
        if generation == self.generation or generation is None:
            return self
        found = self._known.get(generation)
        if found is None:
            content = generations.content(connection, generation)
            settings = followed(self.file, content)
            timing = Timing.of(settings)
            found = replace(self, settings=settings, timing=timing, generation=generation, content=content)
            for old in sorted(self._known)[:-1]:
                self._known.pop(old, None)
            self._known[generation] = found
        return found

    def in_force(self, connection: Connection) -> Installation:
        """This installation under the generation in force by now."""
        return self.under(connection, generations.number(connection))

    def current(self) -> Installation:
        """This installation under the generation in force, read in a transaction of its own."""
        return self.database.statement(self.in_force)

    def reread(self, settings: Settings) -> Installation:
        """This installation with another reading of its file; servers and connections stay."""
        return replace(
            self,
            settings=settings,
            timing=Timing.of(settings),
            file=settings,
            generation=None,
            content=None,
            _known={},
            _judged={},
        )

    def disagreement(self, engine: str) -> str:
        """How this process's file would run an engine in another way than the generation asks; empty if it agrees."""
        if self.content is None or engine not in self.content["engine"]:
            return ""
        found = self._judged.get((self.generation, engine))
        if found is None:
            found = self._judged[self.generation, engine] = disagreement(self.file, self.content, engine)
        return found

    def disagreements(self) -> dict[str, str]:
        """The engines in force that this process's file would run in another way, and how."""
        found = {name: self.disagreement(name) for name in (self.content or {}).get("engine", {})}
        return {name: words for name, words in found.items() if words}

    @property
    def identity(self) -> str:
        """What tells this installation, and its processes on a machine, from any other: its server and its very tables.

        Not the address, which may lead elsewhere from another network namespace, and may be written in several ways.
        Jobs see it: no secret is in it. ServiceUnavailable where the database was never asked and does not answer.
        """
        return blake2b(repr(self.database.identity()).encode(), digest_size=8).hexdigest()

    def require_schema(self) -> None:
        """Raise unless the database answers and has this version's schema."""
        migrate.require_current(self.database)

    def require_suitable_database(self) -> None:
        """Raise unless the database allows what running jobs needs: encoding, rights, a server that takes writes."""
        suitability.require_suitable(self.database, migrating=False)

    def upgrade_schema(self) -> None:
        """Bring the schema to this version's; Refused while workers that do not know it are alive."""
        before = migrate.current(self.database)
        if before is not None and before != migrate.HEAD and SchemaOutdated(before, migrate.HEAD).migration_helps:
            alive = [row for row in self.database.statement(fleet.OLDER_WORKERS.all) if not _has_ended(row)]
            if alive:
                names = ", ".join(f"{row.name} (pid {row.pid} on {row.host})" for row in alive)
                raise Refused(
                    f"the schema is at {before}, and workers that know no newer one are alive: {names}",
                    "stop them first (vibey down on each machine), then repeat this",
                )
        migrate.upgrade(self.database.url)

    def close(self) -> None:
        """Close every connection of this process; for programs that end before their process does."""
        self.database.dispose()
        self.wakeups.close()
        self.publisher.close()

    def wake(self, pool: str) -> None:
        """Make sure the pool is looked at soon: one message, however many ask at once."""
        if self.wakeups.wake(pool) and not self.publisher.route(pool):
            self.wakeups.unwake(pool)

    def send(self, grants: Iterable[Granted]) -> None:
        """Send grants to their engines' queues; what cannot be sent now the tick sends again."""
        self.publisher.builds(
            [Build(each.run_id, each.token, each.engine, each.job_id, each.project, each.attempt) for each in grants]
        )


def service_urls(settings: Settings) -> embedded.Services:
    """Where Postgres and Redis are: the configured URLs, else the embedded servers of the data folder."""
    configured = _configured(settings)
    if configured.database_url and configured.redis_url:
        return configured
    found = embedded.locate(settings.data_dir)
    if found is None:
        missing, fix = f"no server has been set up under {_shown(settings.data_dir)}", "run: vibey up"
        if settings.path is None:
            missing, fix = f"{missing}, and there is no vibey.toml", f"name the file in $VIBEY_CONFIG, or {fix}"
        raise ServiceUnavailable("Postgres", missing, fix)
    return _mixed(configured, found)


def ensure_services(settings: Settings) -> embedded.Services:
    """Start the embedded servers unless both URLs are configured; returns where the servers are."""
    configured = _configured(settings)
    if configured.database_url and configured.redis_url:
        return configured
    return _mixed(configured, embedded.ensure(settings.data_dir, connections=server_size(settings)))


def start_ended_servers(settings: Settings) -> bool:
    """Start embedded servers that were set up and have ended; says whether any had. A removed folder stays removed."""
    if not is_embedded(settings) or embedded.locate(settings.data_dir) is None:
        return False
    if all(server.pid is not None for server in embedded.status(settings.data_dir)):
        return False
    embedded.ensure(settings.data_dir, connections=server_size(settings))
    return True


def is_embedded(settings: Settings) -> bool:
    """Whether any server of the installation is one of our own."""
    return not (settings.services.database_url and settings.services.redis_url)


def require_suitable_redis(settings: Settings) -> None:
    """Raise the first thing that the Redis server does not allow; one that is away is not needed yet."""
    from vibey.coordination import server

    found = server.examine(service_urls(settings).redis_url, settings.services.redis_prefix)
    for shortcoming in found.lacking:
        if isinstance(shortcoming, UnsuitableService):
            raise shortcoming


def celery_configuration(settings: Settings, urls: embedded.Services) -> dict[str, Any]:
    """Celery's configuration for this installation."""
    return celery_settings(
        urls.redis_url,
        settings.services.redis_prefix,
        settings.engine,
        run_timeout_seconds=settings.engines.run_timeout_seconds,
        tick_seconds=Timing.of(settings).tick_ms / 1000,
    )


def _has_ended(worker: Row[Any]) -> bool:
    """Whether a worker of this machine has ended without a word; of another machine's nobody knows."""
    return bool(worker.host == socket.gethostname()) and not psutil.pid_exists(worker.pid)


def _configured(settings: Settings) -> embedded.Services:
    """The configured URLs as the drivers need them; empty where none is configured."""
    services = settings.services
    return embedded.Services(normalise_database_url(services.database_url), normalise_redis_url(services.redis_url))


def _mixed(configured: embedded.Services, found: embedded.Services) -> embedded.Services:
    connections = 0 if configured.database_url else found.connections
    return embedded.Services(
        configured.database_url or found.database_url, configured.redis_url or found.redis_url, connections
    )


def _shown(path: Path) -> str:
    return str(path)
