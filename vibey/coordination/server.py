"""Server: what a Redis-compatible server says of itself, for those who check an installation."""

from __future__ import annotations

from dataclasses import dataclass

import redis

from vibey.domain.errors import ServiceUnavailable

REMEDY = "check that it runs and that redis_url is right, or run: vibey up"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`version` is the Redis version whose commands it has, `product` its own name, `memory_policy` its eviction."""

    version: tuple[int, ...]
    product: str
    memory_policy: str


def look(url: str) -> ServerFacts:
    """Ask the server; ServiceUnavailable when it does not answer, or not to us."""
    client = redis.Redis.from_url(url, decode_responses=True, socket_timeout=5, socket_connect_timeout=2)
    try:
        info = client.info("everything")
    except redis.RedisError as error:
        raise ServiceUnavailable("Redis", str(error).splitlines()[0] if str(error) else "no answer", REMEDY) from error
    finally:
        client.close()
    version = str(info.get("redis_version", "0"))
    valkey = info.get("valkey_version")
    product = f"Valkey {valkey}" if valkey else f"Redis {version}"
    return ServerFacts(_numbers(version), product, str(info.get("maxmemory_policy", "unknown")))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
