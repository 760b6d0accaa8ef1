"""Servers: the run's own Postgres and Redis, which may be struck, and the proxies through which the fleet reaches them.

The run itself asks directly, so that it sees what is so while the fleet's connections are cut or stand still.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg2
import redis

from tests.support.chaos.proxy import Proxy
from tests.support.clock import DatabaseClock
from tests.support.databases import plain
from tests.support.wait import until
from vibey import embedded
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from psycopg2 import extensions

POSTGRES, REDIS = 0, 1


class Servers:
    """Both servers of one data directory, running and migrated."""

    def __init__(self, folder: Path) -> None:
        """Start them, and a proxy before each."""
        self._folder = folder
        self.direct = embedded.ensure(folder)
        migrate.upgrade(self.direct.database_url)
        self.clock = DatabaseClock(self.direct.database_url, standing=False)
        self.clock.keep_true_instants()
        self.proxies = [Proxy(_port(url)) for url in (self.direct.database_url, self.direct.redis_url)]
        self.proxied = embedded.Services(
            _moved(self.direct.database_url, self.proxies[POSTGRES].port),
            _moved(self.direct.redis_url, self.proxies[REDIS].port),
        )

    def redis(self) -> redis.Redis:
        """A connection to Redis."""
        return redis.Redis.from_url(self.direct.redis_url, socket_timeout=20)

    def end(self, number: int) -> None:
        """End a server without leave: Postgres by its immediate shutdown, Redis by -9."""
        pid = self._pid(number)
        os.kill(pid, signal.SIGQUIT if number == POSTGRES else signal.SIGKILL)
        until(lambda: embedded.status(self._folder)[number].pid is None, what="a server's end")

    def start(self) -> None:
        """Start what does not run."""
        found = embedded.ensure(self._folder)
        assert found == self.direct, "a server came back at another address"

    def freeze(self, number: int) -> Callable[[], None]:
        """Stop all of a server's processes; the answer lets them go on."""
        server = psutil.Process(self._pid(number))
        frozen = [server, *server.children()]
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

        def thaw() -> None:
            for process in frozen:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

        return thaw

    def exhaust(self) -> Callable[[], None]:
        """Take every free connection to Postgres, and those that become free; the answer gives them back."""
        taken: list[extensions.connection] = []
        ended = threading.Event()

        def take() -> None:
            while not ended.is_set():
                try:
                    taken.append(psycopg2.connect(plain(self.direct.database_url), connect_timeout=2))
                except psycopg2.Error:
                    ended.wait(0.02)

        def give_back() -> None:
            ended.set()
            thread.join()
            for connection in taken:
                connection.close()

        thread = threading.Thread(target=take, name="chaos-greedy", daemon=True)
        thread.start()
        return give_back

    def close(self) -> None:
        """Stop them and remove their files."""
        for proxy in self.proxies:
            proxy.close()
        embedded.destroy(self._folder)

    def _pid(self, number: int) -> int:
        pid = embedded.status(self._folder)[number].pid
        assert pid is not None, "a server is not running"
        return pid


def _port(url: str) -> int:
    return urlsplit(url).port or 0


def _moved(url: str, port: int) -> str:
    """The URL with another port."""
    parts = urlsplit(url)
    before, _, _ = parts.netloc.rpartition(":")
    return urlunsplit(parts._replace(netloc=f"{before}:{port}"))
