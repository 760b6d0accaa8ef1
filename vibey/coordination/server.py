"""Whether a Redis-compatible server that answers allows what Vibey and Celery need of it.

Rights are found by trying: each command that the two use is sent, on keys and channels of the installation's own
names, and what the server forbids is named. Asking for the user's rights would need a right of its own.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis

from vibey.coordination.keys import subscribed_patterns
from vibey.domain.errors import ServiceUnavailable, UnsuitableService
from vibey.domain.faults import fault_of_redis, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = "Redis"
REMEDY = "check that it runs and that redis_url is right, or run: vibey up"
LEAST_REDIS, LEAST_VALKEY = (6, 2), (7, 2)
# What the user of an installation needs beside its own keys and channels; all else that is dangerous it does without.
COMMANDS = "+@all -@admin -@dangerous +info"
PROBE_SECONDS = "60"


@dataclass(frozen=True, slots=True)
class Examined:
    """A server's own name and version, its eviction (empty if it would not say), and what Vibey lacks there."""

    product: str
    memory_policy: str
    lacking: tuple[ServiceUnavailable, ...]


def client_url(url: str) -> str:
    """The address as redis-py spells it: a socket's is `unix://`, and its database a parameter of another name."""
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return url
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0].strip("/")
    return f"unix://{parts.netloc}{parts.path}?db={database}"


def rights_needed(user: str, prefix: str, database: int) -> str:
    """The command that gives a user exactly what an installation needs."""
    channels = " ".join(f'"&{pattern}"' for pattern in (f"{prefix}*", *subscribed_patterns(prefix, database)))
    return f'ACL SETUSER {user} "~{prefix}*" {channels} {COMMANDS}'


def examine(url: str, prefix: str) -> Examined:
    """Ask the server what it is, and try what is needed. Raises nothing: what goes wrong is among `lacking`."""
    client = redis.Redis.from_url(client_url(url), decode_responses=True, socket_timeout=5, socket_connect_timeout=2)
    try:
        hello, info = _facts(client)
        lacking = tuple(_unsuitable(hello, info)) or tuple(_forbidden(client, url, prefix))
    except (redis.RedisError, OSError) as error:
        text = first_line(str(error))
        return Examined("", "", (fault_of_redis(text) or ServiceUnavailable(SERVICE, text, REMEDY),))
    finally:
        client.close()
    valkey = info.get("valkey_version")
    product = f"Valkey {valkey}" if valkey else f"{str(hello['server']).capitalize()} {hello['version']}"
    return Examined(product, str(info.get("maxmemory_policy", "")), lacking)


def _facts(client: Any) -> tuple[dict[str, object], dict[str, object]]:  # noqa: ANN401  its methods are untyped
    """What the server says of itself to everybody, and what it says only to users who may ask."""
    try:
        info: dict[str, object] = client.info("everything")
    except redis.exceptions.NoPermissionError:
        info = {}
    try:
        answer = client.execute_command("HELLO")
    except redis.ResponseError:
        # Redis before 6.
        answer = {}
    pairs = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
    hello = {str(name): value for name, value in pairs.items()}
    said = {"server": "redis", "version": info.get("redis_version", "0"), "mode": info.get("redis_mode")}
    return {**said, **hello}, info


def _unsuitable(hello: dict[str, object], info: dict[str, object]) -> Iterator[ServiceUnavailable]:
    valkey = info.get("valkey_version") or (hello["version"] if hello["server"] == "valkey" else None)
    if valkey is not None and _numbers(valkey) < LEAST_VALKEY:
        yield UnsuitableService(SERVICE, f"it is Valkey {valkey}", "use Valkey 7.2 or newer")
    elif valkey is None and _numbers(hello["version"]) < LEAST_REDIS:
        yield UnsuitableService(SERVICE, f"it is Redis {hello['version']}", "use Redis 6.2 or newer, or Valkey 7.2")
    if hello.get("mode") == "cluster":
        yield UnsuitableService(SERVICE, "it is a cluster", "use a server that is no cluster")
    if hello.get("mode") == "sentinel":
        remedy = "name the primary in redis_url; docs/how-to/several-machines.md has a way with HAProxy"
        yield UnsuitableService(SERVICE, "it is a Sentinel, which keeps no data", remedy)
    if hello.get("role") in {"slave", "replica"}:
        yield UnsuitableService(SERVICE, "it is a read-only replica", "name the primary in redis_url")


def _forbidden(client: Any, url: str, prefix: str) -> Iterator[ServiceUnavailable]:  # noqa: ANN401
    """One shortcoming that names every command, key and channel the user may not use, if there is any."""
    parts = urlsplit(client_url(url))
    number = parse_qs(parts.query).get("db", [parts.path.strip("/")])[0]
    database = int(number) if number.isdigit() else 0
    denied: dict[str, None] = {}
    for words in _probes(f"{prefix}probe:{secrets.token_hex(6)}", prefix, database):
        try:
            client.execute_command(*words)
        except (redis.exceptions.NoPermissionError, redis.exceptions.ExecAbortError):
            denied[" ".join(words[:2]) if words[0] == "SCRIPT" else words[0]] = None
        except redis.exceptions.NoScriptError:
            continue
        except redis.ResponseError as error:
            if "without MULTI" not in str(error):
                raise
    for pattern in subscribed_patterns(prefix, database):
        if not _may_subscribe(client, pattern):
            denied[f"PSUBSCRIBE {pattern}"] = None
    if denied:
        user = unquote(parts.username or "") or "default"
        detail = f"user {user} may not use, on keys and channels that begin with {prefix}: {', '.join(denied)}"
        yield UnsuitableService(SERVICE, detail, f"run as its administrator: {rights_needed(user, prefix, database)}")


def _probes(key: str, prefix: str, database: int) -> Iterator[tuple[str, ...]]:
    """Every command that Vibey and Celery send, on a key of their own that is gone at the end."""
    listed, grouped, mapped, sorted_set = (f"{key}:{kind}" for kind in ("list", "set", "hash", "zset"))
    yield from (("PING",), ("SET", key, "1", "PX", "60000"), ("GET", key), ("EXISTS", key), ("PEXPIRE", key, "60000"))
    yield from (("LPUSH", listed, "1", "2", "3", "4"), ("EXPIRE", listed, PROBE_SECONDS), ("RPUSH", listed, "5"))
    yield from (("LLEN", listed), ("RPOP", listed), ("BRPOP", listed, "1"), ("BLPOP", listed, "1"))
    yield from (("SADD", grouped, "1"), ("EXPIRE", grouped, PROBE_SECONDS), ("SMEMBERS", grouped))
    yield ("SREM", grouped, "1")
    yield from (("HSET", mapped, "a", "1"), ("EXPIRE", mapped, PROBE_SECONDS), ("HGET", mapped, "a"))
    yield from (("HLEN", mapped), ("HDEL", mapped, "a"))
    yield from (("ZADD", sorted_set, "1", "a"), ("EXPIRE", sorted_set, PROBE_SECONDS))
    yield from (("ZRANGE", sorted_set, "0", "1"), ("ZRANGEBYSCORE", sorted_set, "0", "1"), ("ZREM", sorted_set, "a"))
    yield from (("SCRIPT", "EXISTS", "0" * 40), ("SCRIPT", "LOAD", "return 1"), ("EVALSHA", "0" * 40, "1", key))
    yield from (("EVAL", "return redis.call('get', KEYS[1])", "1", key), ("TIME",), ("WATCH", key), ("MULTI",))
    # Refused in a transaction or not, it leaves none open.
    yield from (("EXEC",), ("PUBLISH", f"{prefix}/{database}.probe", "1"), ("DEL", key, listed))


def _may_subscribe(client: Any, pattern: str) -> bool:  # noqa: ANN401
    """A pattern must be among the user's word for word; a wider one does not cover it."""
    listener = client.pubsub()
    try:
        listener.psubscribe(pattern)
        listener.get_message(timeout=5)
    except redis.exceptions.NoPermissionError:
        return False
    finally:
        listener.close()
    return True


def _numbers(version: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".") if part.isdigit())
