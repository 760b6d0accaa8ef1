"""Every Redis key of the project.

| key | type, life | meaning |
|---|---|---|
| `PREFIX wake:POOL` | string, 10 s | a routing message for the pool is on its way: no second one is needed |
| `PREFIX route:POOL` | string, 2 s | the router at work on the pool |
| `PREFIX again:POOL` | string, 60 s | someone asked while the router was at work: it looks once more |
| `PREFIX stop:RUN` | list, 1 h | news for the holder of a run: renew at once, the answer says why; 5 s at its end |

Celery keeps its own keys and channels under the same prefix (`global_keyprefix`).
"""

from __future__ import annotations

from dataclasses import dataclass

WAKE_MS = 10_000
ROUTE_MS = 2_000
AGAIN_MS = 60_000
STOP_SECONDS = 3600
# Longer than anyone waits for it.
RELEASE_SECONDS = 5


def subscribed_patterns(prefix: str, database: int) -> tuple[str, ...]:
    """The channels that Celery's processes subscribe to by pattern: control commands, and Flower's events.

    A user with an ACL needs each of them word for word (`&PATTERN`), for a wider pattern does not cover it.
    """
    return f"{prefix}/{database}.celery.pidbox", f"{prefix}/{database}.celeryev/*"


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix."""

    prefix: str

    def wake(self, pool: str) -> str:
        """Set while a routing message is on its way."""
        return f"{self.prefix}wake:{pool}"

    def route(self, pool: str) -> str:
        """Held by the router at work."""
        return f"{self.prefix}route:{pool}"

    def again(self, pool: str) -> str:
        """Set when the router should look once more."""
        return f"{self.prefix}again:{pool}"

    def stop(self, run_id: int) -> str:
        """Where the holder of a run waits for news."""
        return f"{self.prefix}stop:{run_id}"
