"""Installation: the settings together with the database, the wake-ups and the publisher they name."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from vibey import embedded
from vibey.coordination.wakeups import WakeUps
from vibey.domain.errors import ServiceUnavailable
from vibey.publisher import Build, Publisher, celery_settings, make_app
from vibey.settings import normalise_database_url, normalise_redis_url, redacted_url
from vibey.store import migrate, suitability
from vibey.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vibey.settings import Settings
    from vibey.store.runs import Granted


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations derived from the settings, in milliseconds."""

    lease_ms: int
    tick_ms: int
    presence_ms: int
    canary_ms: int
    resend_ms: int
    half_life_ms: int
    recheck_ms: int
    backoff_ms: int
    poll_ms: int
    age_ms: int

    @classmethod
    def of(cls, settings: Settings) -> Timing:
        """Ticks come at least five times in a third of a lease, and at most 2.5 seconds apart."""
        lease_ms = settings.engines.lease_seconds * 1000
        tick_ms = max(200, min(2500, lease_ms // 15))
        presence_ms = max(5000, min(45_000, lease_ms))
        return cls(
            lease_ms=lease_ms,
            tick_ms=tick_ms,
            presence_ms=presence_ms,
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
    """One installation, ready for use. Opening it connects to nothing; each part does so when first used."""

    settings: Settings
    timing: Timing
    database: Database
    wakeups: WakeUps
    publisher: Publisher

    @classmethod
    def open(cls, settings: Settings, *, app: Any = None) -> Installation:  # noqa: ANN401  a Celery application
        """The installation these settings describe; `app` sends its messages when a worker has one already."""
        urls = service_urls(settings)
        return cls(
            settings,
            Timing.of(settings),
            Database(urls.database_url),
            WakeUps(urls.redis_url, settings.services.redis_prefix),
            Publisher(lambda: app or make_app("vibey", celery_configuration(settings, urls))),
        )

    @property
    def identity(self) -> str:
        """What tells this installation's processes from another's on the machine. Jobs see it: no secret is in it."""
        return blake2b(redacted_url(self.database.url).encode(), digest_size=8).hexdigest()

    def require_schema(self) -> None:
        """Raise unless the database answers and has this version's schema."""
        migrate.require_current(self.database)

    def require_suitable_database(self) -> None:
        """Raise unless the database allows what running jobs needs: encoding, rights, a server that takes writes."""
        suitability.require_suitable(self.database, migrating=False)

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
    return _mixed(configured, embedded.ensure(settings.data_dir))


def is_embedded(settings: Settings) -> bool:
    """Whether any server of the installation is one of our own."""
    return not (settings.services.database_url and settings.services.redis_url)


def celery_configuration(settings: Settings, urls: embedded.Services) -> dict[str, Any]:
    """Celery's configuration for this installation."""
    return celery_settings(
        urls.redis_url,
        settings.services.redis_prefix,
        settings.engine,
        run_timeout_seconds=settings.engines.run_timeout_seconds,
        tick_seconds=Timing.of(settings).tick_ms / 1000,
    )


def _configured(settings: Settings) -> embedded.Services:
    """The configured URLs as the drivers need them; empty where none is configured."""
    services = settings.services
    return embedded.Services(normalise_database_url(services.database_url), normalise_redis_url(services.redis_url))


def _mixed(configured: embedded.Services, found: embedded.Services) -> embedded.Services:
    return embedded.Services(configured.database_url or found.database_url, configured.redis_url or found.redis_url)


def _shown(path: Path) -> str:
    return str(path)
