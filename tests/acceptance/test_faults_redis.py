"""Redis wiped, killed, cut off, or serving a worker that has gone deaf: only time is lost, and little of it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import redis
from celery.utils.nodenames import worker_direct

from tests.support.wait import until
from vibey.embedded.record import Server
from vibey.embedded.valkey import Valkey
from vibey.publisher import ENQUEUE_QUEUE, make_app
from vibey.services.installation import celery_configuration, service_urls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.fleet import Fleet

ENGINES = {"engine": {"near": {}, "side": {}}, "engines": {"slots": {"near": 3, "side": 1}}}


class Broker:
    """A server of this test's own, which can be killed and started again with its port and password."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        self._server = Valkey(folder)
        self._at = self._server.start(Server.new())

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://:{self._at.password}@127.0.0.1:{self._at.port}/0"

    def client(self) -> redis.Redis:
        """A connection to it."""
        return redis.Redis.from_url(self.url)

    def kill(self) -> None:
        """Kill -9."""
        pid = self._server.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: self._server.pid() is None, what="the server's end")

    def start(self) -> None:
        """Start it on the same files."""
        before, self._at = self._at, self._server.start(self._at)
        assert self._at == before

    def close(self) -> None:
        """Stop it and remove its files."""
        self._server.destroy()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A Redis server that may be wiped and killed."""
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.close()


def _ended(fleet: Fleet, count: int) -> None:
    fleet.until(f"select count(*) >= {count} from jobs where ended_at is not null")


def test_redis_is_wiped(broker: Broker, open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """Queued messages, locks and wake-ups vanish again and again; running jobs go on, waiting ones are sent again."""
    fleet = open_fleet(broker.url, **ENGINES)
    fleet.muster()
    gate = fleet.gate("long")
    fleet.enqueue(payload={"gate": str(gate)}, priority=1)
    ((long_run, *_),) = fleet.until_working()
    fleet.enqueue(30, payload={"seconds": 0.1})
    client = broker.client()
    for ended in (1, 8, 16, 24):
        _ended(fleet, ended)
        client.flushall()
    client.close()
    _ended(fleet, 30)
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 31}
    assert fleet.rows(f"select state from runs where id = {long_run}") == [("succeeded",)]
    sound(fleet)


def test_messages_wiped_before_they_were_taken_are_sent_again(
    broker: Broker, open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A granted run whose message is gone is started by the next one, long before its lease would end."""
    fleet = open_fleet(broker.url, engine={"near": {}}, engines={"slots": {"near": 3}, "lease_seconds": 30})
    (build,) = fleet.muster()
    build.signal_all(signal.SIGSTOP)
    fleet.enqueue(3, payload={"seconds": 0.05})
    client = broker.client()
    until(lambda: client.keys("*engine.near"), what="messages in the engine's queue")
    client.flushall()
    client.close()
    build.signal_all(signal.SIGCONT)
    assert fleet.until_ended() == {"succeeded": 3}
    assert fleet.rows("select count(*)::int from runs") == [(3,)]
    assert fleet.value("select max(sends) > 1 from runs")
    sound(fleet)


def test_redis_is_killed_and_started_again(
    broker: Broker, open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Without Redis running jobs go on and keep their leases, and jobs can be enqueued; with it all goes on."""
    fleet = open_fleet(broker.url, **ENGINES)
    fleet.muster()
    gate = fleet.gate("long")
    fleet.enqueue(2, payload={"gate": str(gate)})
    fleet.until_working(2)
    broker.kill()
    fleet.enqueue(10, payload={"seconds": 0.05})
    fleet.until(
        "select bool_and(lease_expires_at > started_at + interval '7 seconds') from runs where state = 'running'",
        what="leases renewed while Redis is away",
    )
    broker.start()
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 12}
    assert fleet.rows("select count(*)::int from runs where state = 'lost'") == [(0,)]
    sound(fleet)


@pytest.mark.slow
def test_every_connection_to_redis_is_cut(
    broker: Broker, open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Workers connect again and consume; what ran meanwhile is not run a second time."""
    fleet = open_fleet(broker.url, **ENGINES)
    fleet.muster()
    gate = fleet.gate("long")
    fleet.enqueue(2, payload={"gate": str(gate)})
    fleet.until_working(2)
    client = broker.client()
    for kind in ("normal", "pubsub"):
        client.client_kill_filter(_type=kind, skipme=True)
    client.close()
    fleet.enqueue(6, payload={"seconds": 0.05})
    _ended(fleet, 6)
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 8}
    assert fleet.rows("select count(*)::int from runs where state <> 'succeeded'") == [(0,)]
    sound(fleet)


@pytest.mark.slow
def test_no_message_is_held_unacknowledged(open_fleet: Callable[..., Fleet]) -> None:
    """When Redis goes, a worker that holds one ends: none does, its own canaries included, but a producer's jobs."""
    fleet = open_fleet(**ENGINES)
    fleet.muster()
    settings = fleet.settings
    with make_app("test", celery_configuration(settings, service_urls(settings))) as app:
        asked = app.control.inspect(timeout=5)
        found = until(lambda: len(answer := asked.active_queues() or {}) == 2 and answer, what="both workers' answers")
        assert found
        acknowledged = {queue["name"] for queues in found.values() for queue in queues if not queue["no_ack"]}
        assert acknowledged == {ENQUEUE_QUEUE}
        assert sum(len(queues) for queues in found.values()) == 4 + 2


@pytest.mark.slow
def test_a_worker_that_consumes_nothing_ends_itself(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A worker that is alive but deaf is no worker: its canary is missed, and whoever supervises it starts another."""
    fleet = open_fleet(**ENGINES)
    (build,) = fleet.muster()
    name = str(fleet.value("select name from workers where name like 'build@%'"))
    app = make_app("test", celery_configuration(fleet.settings, service_urls(fleet.settings)))
    told = app.control.cancel_consumer(worker_direct(name).name, destination=[name], reply=True, timeout=10)
    app.close()
    assert told
    assert "ok" in told[0][name]
    assert build.ended(60) == 0
    assert "has consumed none of its last" in build.text()
    assert fleet.value(f"select count(*) = 0 from workers where name = '{name}'")
    fleet.build("build2")
    fleet.enqueue(2)
    assert fleet.until_ended() == {"succeeded": 2}
    sound(fleet)
