"""Wake-ups: hints that something changed, collapsed so that a burst leads to a handful of routing passes.

Who is authoritative: Postgres. A wake-up only says "look now"; losing one costs the time until the next tick.

States of a pool, in two keys and a flag. *Idle*: no key. `wake` sets the wake key and the caller sends one
routing message; further wakes find the key and send nothing. The message's task calls `begin`, which clears
the wake key first, so that any change committed after this instant is heard of anew, and takes the route key.
*Routing*: a wake, and a task that finds the route key taken, set the again flag and leave it at that; `finish`
gives the route key back only if the flag is down, else it clears the flag and says "again". Each is a single
Lua script, so no wake-up falls between the check and the release.

Failures. Redis wiped: at worst two routers run at once, which Postgres' row locks make correct, or a
message is lost, which the tick makes up for. Redis away, full or read-only: every call answers as if there
were nobody else (`begin` yes, `finish` done, `wake` do send). A router killed in its work: the route key
expires by itself within seconds. Keys expire by the wall clock of Redis's machine: one that is set back leaves
keys that would live longer than they are ever written for, and whoever meets such a key removes it.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING

from vibey.coordination.keys import AGAIN_MS, RELEASE_SECONDS, ROUTE_MS, STOP_SECONDS, WAKE_MS, Keys
from vibey.domain.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis
    from redis.commands.core import Script

WAKE = """
if redis.call('pttl', KEYS[2]) > tonumber(ARGV[3]) then redis.call('del', KEYS[2]) end
if redis.call('pttl', KEYS[1]) > tonumber(ARGV[1]) then redis.call('del', KEYS[1]) end
if redis.call('exists', KEYS[2]) == 1 then
  redis.call('set', KEYS[3], '1', 'PX', ARGV[2])
  return 0
end
if redis.call('set', KEYS[1], '1', 'NX', 'PX', ARGV[1]) then return 1 end
return 0
"""
BEGIN = """
redis.call('del', KEYS[1])
if redis.call('pttl', KEYS[2]) > tonumber(ARGV[2]) then redis.call('del', KEYS[2]) end
if redis.call('set', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
redis.call('set', KEYS[3], '1', 'PX', ARGV[3])
return 0
"""
GO_ON = """
local router = redis.call('get', KEYS[2])
if router == ARGV[1] or not router then redis.call('set', KEYS[2], ARGV[1], 'PX', ARGV[2]) end
return 0
"""
FINISH = """
local router = redis.call('get', KEYS[2])
if router and router ~= ARGV[1] then return 0 end
if redis.call('del', KEYS[3]) == 1 then
  redis.call('set', KEYS[2], ARGV[1], 'PX', ARGV[2])
  return 1
end
redis.call('del', KEYS[2])
return 0
"""
ABANDON = """
if redis.call('get', KEYS[2]) == ARGV[1] then redis.call('del', KEYS[2]) end
return 0
"""


class WakeUps:
    """Wake-ups of pools, and of the holders of runs, over one Redis."""

    def __init__(self, url: str, prefix: str) -> None:
        """Remember where; nothing is opened, nor its client imported, before the first use."""
        self._url = url
        self._keys = Keys(prefix)
        self._awaited: set[int] = set()

    @cached_property
    def _redis(self) -> Redis:
        from redis import Redis

        from vibey.coordination.server import client_url

        return Redis.from_url(
            client_url(self._url),
            decode_responses=True,
            socket_timeout=5,
            socket_connect_timeout=2,
            socket_keepalive=True,
            health_check_interval=30,
        )

    @cached_property
    def _scripts(self) -> dict[str, Script]:
        return {text: self._redis.register_script(text) for text in (WAKE, BEGIN, GO_ON, FINISH, ABANDON)}

    def wake(self, pool: str) -> bool:
        """Whether the caller should send a routing message; False when one is on its way or a router at work told."""
        return bool(self._ask(1, lambda: self._scripts[WAKE](self._of(pool), [WAKE_MS, AGAIN_MS, ROUTE_MS])))

    def unwake(self, pool: str) -> None:
        """Take a wake back whose message could not be sent."""
        self._ask(0, lambda: self._redis.delete(self._keys.wake(pool)))

    def begin(self, pool: str, router: str) -> bool:
        """Become the pool's router; False when there is one, which has then been asked to look once more."""
        return bool(self._ask(1, lambda: self._scripts[BEGIN](self._of(pool), [router, ROUTE_MS, AGAIN_MS])))

    def go_on(self, pool: str, router: str) -> None:
        """Say that the pool's router is still at work."""
        self._ask(None, lambda: self._scripts[GO_ON](self._of(pool), [router, ROUTE_MS]))

    def is_awaited(self, pool: str) -> bool:
        """Whether someone has asked for another look since the pool's router began its last one."""
        return bool(self._ask(0, lambda: self._redis.exists(self._keys.again(pool))))

    def finish(self, pool: str, router: str) -> bool:
        """Stop being the pool's router; True means: stay, someone asked for another look."""
        return bool(self._ask(0, lambda: self._scripts[FINISH](self._of(pool), [router, ROUTE_MS])))

    def abandon(self, pool: str, router: str) -> None:
        """Stop being the pool's router with work left, and with what others asked for."""
        self._ask(None, lambda: self._scripts[ABANDON](self._of(pool), [router]))

    def nudge(self, run_id: int) -> None:
        """Tell the holder of a run to renew at once."""
        self._tell(run_id, STOP_SECONDS)

    def release(self, run_id: int) -> None:
        """Let a wait of this process for news about a run that is over return at once, and its connection be free.

        Else each of many short runs would leave a connection behind that waits on, and the next need one more.
        """
        if run_id in self._awaited:
            self._tell(run_id, RELEASE_SECONDS)

    def await_nudge(self, run_id: int, seconds: float) -> bool:
        """Block up to `seconds`, at most three, for news about a run; ConnectionError when Redis is away."""
        from redis import RedisError

        key = self._keys.stop(run_id)
        self._awaited.add(run_id)
        try:
            return self._redis.blpop([key], timeout=max(0.05, min(seconds, 3.0))) is not None
        except RedisError as error:
            raise ConnectionError(str(error)) from error
        finally:
            self._awaited.discard(run_id)

    def _tell(self, run_id: int, seconds: int) -> None:
        key = self._keys.stop(run_id)
        news = self._redis.pipeline()
        news.lpush(key, "1")
        news.expire(key, seconds)
        self._ask(None, news.execute)

    def forget_all(self) -> None:
        """Remove every key of this installation, messages of its queues included; ServiceUnavailable if Redis is away.

        For a restore: what is queued names jobs and runs of the database as it was.
        """
        from redis import RedisError

        try:
            keys = self._redis.scan_iter(match=f"{self._keys.prefix}*", count=1000)
            while chunk := list(itertools.islice(keys, 1000)):
                self._redis.unlink(*chunk)
        except RedisError as error:
            raise ServiceUnavailable("Redis", str(error) or "no answer", "check that it runs") from error

    def ping(self) -> None:
        """Raise unless Redis answers."""
        self._redis.ping()

    def close(self) -> None:
        """Close this process's connections."""
        if "_redis" in self.__dict__:
            self._redis.close()

    def version(self) -> str:
        """The server's version."""
        info = self._redis.info("server")
        return str(info.get("redis_version"))

    def _of(self, pool: str) -> list[str]:
        return [self._keys.wake(pool), self._keys.route(pool), self._keys.again(pool)]

    @staticmethod
    def _ask(otherwise: object, ask: Callable[[], object]) -> object:
        from redis import RedisError

        try:
            return ask()
        except RedisError:
            return otherwise
