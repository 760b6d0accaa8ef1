"""A whole fleet as a Redis user that has only the rights which doctor and the manual name."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.support.wait import until
from vibey import embedded
from vibey.coordination.server import rights_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.fleet import Fleet


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[str]:
    """The address of a server whose users this test may make."""
    with embedded.redis_server(tmp_path / "redis") as url:
        yield url


def test_the_rights_named_suffice_for_everything(own_redis: str, open_fleet: Callable[..., Fleet]) -> None:
    """Routing, runs, remote control and events: the server refuses nothing in all that time."""
    fleet = open_fleet(redis=f"redis://team:pw@{own_redis.rpartition('@')[2]}", engine={"desk": {}})
    admin: Any = redis.Redis.from_url(own_redis, decode_responses=True)
    line = rights_needed("team", fleet.settings.services.redis_prefix, 0)
    admin.execute_command("ACL", "SETUSER", "team", "reset", "on", ">pw")
    admin.execute_command(*shlex.split(line))
    fleet.muster()
    events = fleet.start("events", "events", "--dump")
    until(lambda: "heartbeat" in events.text(), what="an event of a worker")
    fleet.enqueue(3)
    assert fleet.until_ended() == {"succeeded": 3}
    ping = fleet.launch("ping", "celery", "-A", "vibey", "inspect", "ping", "--timeout", "20")
    assert ping.ended() == 0
    assert "pong" in ping.text()
    assert admin.execute_command("ACL", "LOG") == []
    admin.close()
