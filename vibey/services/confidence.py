"""Confidence: what of this installation's secrets a worker's machine holds, and no run may show.

A run is given its own engine's key alone, but it works as the worker's user: it can read what that user can, such as
the configuration and another engine's key file. What it prints of them is masked like its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.engines.environment import logins_in
from vibey.engines.keys import confided
from vibey.services.fleet import config_of
from vibey.services.installation import service_urls

if TYPE_CHECKING:
    from vibey.settings import Settings


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """The keys and secret variables of every engine here, and the logins of Postgres and Redis."""
    urls = service_urls(settings)
    logins = (secret for url in (urls.database_url, urls.redis_url) for secret in logins_in(url))
    keys = (secret for engine in settings.engine.values() for secret in confided(config_of(engine)))
    return tuple(dict.fromkeys((*keys, *logins)))
