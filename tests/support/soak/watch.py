"""Watch: what is to be seen of a fleet from outside: its processes by /proc, its servers by asking them.

Memory is what is resident and backed by no file, with what of it was swapped out. Pages a child of a pool shares with
its parent count in full: that one of them is written to, and so copied, is no growth. A server's shared buffers, which
are a cache that fills, do not count.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import redis

from tests.support import trees
from tests.support.databases import query
from tests.support.soak.series import MEMORY, Series
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fleet import Fleet

KIB = 1024
SESSIONS = """select application_name, count(*)::int from pg_stat_activity
              where backend_type = 'client backend' and pid <> pg_backend_pid() group by 1"""
OTHERS = "others"


class Watch:
    """Everything seen so far, a series for each subject and measure."""

    def __init__(self, fleet: Fleet, servers: Path) -> None:
        """Watch a fleet and the embedded servers of a folder; this process's own doings count under `others`."""
        self._fleet = fleet
        self._servers = {each.name: each.pid for each in embedded.status(servers) if each.pid is not None}
        found = embedded.locate(servers)
        assert found is not None, "the servers have not been started"
        self._urls = found
        self._redis = redis.Redis.from_url(found.redis_url, socket_timeout=20)
        self.series: dict[tuple[str, str], Series] = {}

    def look(self, at: float) -> None:
        """Note what there is to see, so many seconds after the beginning."""
        roles: dict[int, str] = dict(self._processes())
        sizes = Counter(roles.values())
        for pid, role in roles.items():
            # one that ends meanwhile is not seen
            with suppress(OSError, KeyError):
                self._look_at(pid, role, at)
        for role in sizes:
            self._note(role, "processes", at, sizes[role])
        living = trees.living(self._fleet.installation.identity, without_supervisor=False)
        self._note("runs", "processes", at, len(living))
        self._look_at_postgres(roles, at)
        self._look_at_redis(at)

    def close(self) -> None:
        """Close connections."""
        self._redis.close()

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Every process of the fleet and its servers, with its role."""
        for member in self._fleet.members:
            yield member.pid, member.name
            for pid in member.pool():
                yield pid, f"{member.name}, pool"
        for name, pid in self._servers.items():
            yield pid, name
            for child in psutil.Process(pid).children():
                yield child.pid, f"{name}, backends"

    def _look_at(self, pid: int, role: str, at: float) -> None:
        folder = Path(f"/proc/{pid}")
        files = len(os.listdir(folder / "fd"))  # noqa: PTH208  (names alone are counted)
        lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        own = sum(int(status[key].split()[0]) for key in ("RssAnon", "VmSwap"))
        self._note(role, MEMORY, at, own * KIB, pid)
        self._note(role, "files", at, files, pid)
        self._note(role, "threads", at, int(status["Threads"]), pid)

    def _look_at_postgres(self, roles: dict[int, str], at: float) -> None:
        """Connections by the role of the process that says in their name that it has them."""
        found: Counter[str] = Counter(dict.fromkeys(self._connected, 0))
        for name, count in query(self._urls.database_url, SESSIONS):
            number = str(name).removeprefix("vibey-")
            found[roles.get(int(number), OTHERS) if number.isdigit() else OTHERS] += int(str(count))
        for role, count in found.items():
            self._note(f"{role} to postgres", "connections", at, count)

    @property
    def _connected(self) -> list[str]:
        names = (subject for subject, measure in self.series if measure == "connections")
        return [name.removesuffix(" to postgres") for name in names]

    def _look_at_redis(self, at: float) -> None:
        self._note("redis", "clients", at, self._redis.info("clients")["connected_clients"])
        self._note("redis, data", MEMORY, at, self._redis.info("memory")["used_memory"])
        self._note("redis", "keys", at, self._redis.dbsize())

    def _note(self, subject: str, measure: str, at: float, value: float, number: int = 0) -> None:
        series = self.series.setdefault((subject, measure), Series(subject, measure))
        series.add(number, at, float(value))
