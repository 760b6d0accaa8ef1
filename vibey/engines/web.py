"""Web: one request to a server, straight or through the proxy its environment names; nothing is followed.

`http.client` and not urllib, which follows redirects with every header and asks a proxy for loopback addresses.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Route:
    """An open connection to a server, the target to name in a request, and headers the way there needs."""

    connection: http.client.HTTPConnection
    target: str
    headers: Mapping[str, str]


def connected(url: str, environment: Mapping[str, str], *, patience: float) -> Route:
    """Connect. Later reads wait at most `patience` seconds each. Raises OSError or HTTPException."""
    parts = urlsplit(url)
    proxy = proxy_for(parts, environment)
    if proxy is not None:
        route = _through(proxy, parts, url)
    else:
        route = Route(_connection(parts.scheme, parts.hostname or "", _port(parts)), _target(parts), {})
    try:
        route.connection.connect()
        route.connection.sock.settimeout(patience)
    except BaseException:
        route.connection.close()
        raise
    return route


def below(base_url: str, path: str) -> str:
    """The address of a path below an API's own."""
    parts = urlsplit(base_url)
    return parts._replace(path=parts.path.rstrip("/") + path).geturl()


def proxy_for(parts: SplitResult, environment: Mapping[str, str]) -> SplitResult | None:
    """The proxy this environment names for the address; none for loopback."""
    named = _variable(environment, f"{parts.scheme}_proxy")
    host = parts.hostname or ""
    if not named or host in {"localhost", "127.0.0.1", "::1"}:
        return None
    if urllib.request.proxy_bypass_environment(host, {"no": _variable(environment, "no_proxy")}):  # type: ignore[attr-defined]
        return None
    return urlsplit(named if "://" in named else f"http://{named}")


def _through(proxy: SplitResult, parts: SplitResult, url: str) -> Route:
    way = {}
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        way["Proxy-Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    connection = _connection(parts.scheme, proxy.hostname or "", proxy.port or 8080)
    if parts.scheme == "https":
        connection.set_tunnel(parts.hostname or "", _port(parts), way)
        return Route(connection, _target(parts), {})
    return Route(connection, url, way)


def _connection(scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)
    return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""
