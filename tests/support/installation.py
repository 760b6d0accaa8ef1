"""An installation on a test's own database and Redis, with whatever engines the test wants."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import psycopg2
import redis

from tests.support.databases import plain, query
from vibey.coordination.keys import Keys
from vibey.publisher import CONTROL_QUEUE, engine_queue
from vibey.services import pulse
from vibey.services.apply import apply
from vibey.services.enqueue import Order, place
from vibey.services.installation import Installation
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from pathlib import Path


class Bench:
    """An installation at hand: engines that cost nothing, a worker row, and short ways to look at the tables.

    The worker reports while the installation is open, as a real one does, so that a test on a slow machine outlasts no
    presence. A report that a test has moved to the past or to the future stays where it is.
    """

    def __init__(self, database_url: str, redis_url: str, folder: Path, tables: dict[str, Any]) -> None:
        """Open it, write the fleet as configured, and let a worker appear that serves every engine."""
        tables.setdefault("services", {}).update(
            database_url=database_url, redis_url=redis_url, data_dir=str(folder / "data")
        )
        tables.setdefault("engines", {}).setdefault("mode", "singleton")
        self.tables = tables
        self.redis_url = redis_url
        self.url = database_url
        self.installation = Installation.open(settings_of(Source(None, folder, tables), {}))
        apply(self.installation)
        self.staff()
        self._closed = threading.Event()
        self._reports = threading.Thread(target=self._report, name="bench-worker", daemon=True)
        self._reports.start()

    def _report(self) -> None:
        presence_ms = self.installation.timing.presence_ms
        report = (
            "update workers set seen_at = clock_timestamp() where name = 'worker@test' and seen_at between "
            f"clock_timestamp() - {presence_ms} * interval '1 millisecond' and clock_timestamp()"
        )
        while not self._closed.wait(presence_ms / 3000):
            # The server may be away or refuse to write, and a test may hold the row: then the next report counts.
            with (
                suppress(psycopg2.Error),
                closing(psycopg2.connect(plain(self.url), options="-c lock_timeout=1000")) as connection,
                connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(report)

    def staff(self, *engines: str) -> None:
        """Let a live worker serve these engines, all of them by default."""
        served = engines or tuple(self.installation.settings.engine)
        pulse.appear(self.installation, pulse.Worker("worker@test", served, 64))

    def set_default(self, **keys: object) -> None:
        """Apply the configuration with these keys of `[engines]`, which the default project follows."""
        self.tables = {**self.tables, "engines": {**self.tables["engines"], **keys}}
        source = Source(None, self.installation.file.services.data_dir.parent, self.tables)
        self.installation = self.installation.reread(settings_of(source, {}))
        apply(self.installation)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a query, each a tuple."""
        return query(self.url, statement)

    def value(self, statement: str) -> Any:
        """The first column of the first row."""
        return self.rows(statement)[0][0]

    def enqueue(self, count: int = 1, **values: Any) -> list[int]:
        """Enqueue jobs alike; their ids."""
        return [placed.job_id for placed in place(self.installation, [Order(**values)] * count)]

    def live(self) -> list[tuple[int, int, str]]:
        """Unended runs as (run, token, engine), oldest first."""
        return self.rows("select id, token, engine from runs where ended_at is null order by id")

    def messages(self, engine: str | None = None) -> int:
        """How many messages wait in an engine's queue, or in the control queue."""
        client = redis.Redis.from_url(self.redis_url)
        try:
            prefix = self.installation.settings.services.redis_prefix
            queue = engine_queue(engine) if engine else CONTROL_QUEUE
            return int(client.llen(f"{prefix}{queue}"))
        finally:
            client.close()

    def keep_wake_up(self, pool: str) -> bool:
        """Let the key that says that a pool's routing message is on its way not expire; False if there is none."""
        client = redis.Redis.from_url(self.redis_url)
        try:
            return bool(client.persist(Keys(self.installation.settings.services.redis_prefix).wake(pool)))
        finally:
            client.close()

    def wipe_redis(self) -> None:
        """Empty this test's Redis database."""
        client = redis.Redis.from_url(self.redis_url)
        client.flushdb()
        client.close()

    def let_time_pass(self, seconds: float) -> None:
        """Make every stored instant of runs, jobs and accounts that much older, which is the same as waiting.

        As if ticks had come all the while, so that leases, too, are so much older.
        """
        age = f"interval '{seconds} seconds'"
        query(self.url, f"update runs set lease_expires_at = lease_expires_at - {age}, sent_at = sent_at - {age}")
        query(self.url, f"update installation set lease_clock_ms = lease_clock_ms + {round(seconds * 1000)}")
        query(self.url, f"update jobs set not_before = not_before - {age}, deadline_at = deadline_at - {age}")
        query(self.url, f"update accounts set probe_at = probe_at - {age}, failure_at = failure_at - {age}")
        query(self.url, f"update accounts set resets_at = resets_at - {age}")
        query(self.url, f"update engines set busy_until = busy_until - {age}")

    def close(self) -> None:
        """Close every connection, so that no later test of this process counts one of them."""
        self._closed.set()
        self._reports.join()
        self.installation.close()


def noop(tier: str = "local", **more: Any) -> dict[str, Any]:
    """The table of an engine that ends at once."""
    return {"kind": "noop", "tier": tier, **more}
