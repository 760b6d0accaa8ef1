"""Exporter: serves the metrics over HTTP, on loopback unless a token guards them."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import override

from vibey.domain.errors import InvalidInput, Refused, ServiceUnavailable, VibeyError
from vibey.services.exposition import Scraper
from vibey.services.web_guard import has_bearer, is_here, is_open

if TYPE_CHECKING:
    from vibey.services.installation import Installation

LISTEN = "127.0.0.1:9464"
TOKEN_VARIABLE = "VIBEY_METRICS_TOKEN"  # noqa: S105  its name, not the token
PATH = "/metrics"
PLAIN = "text/plain; charset=utf-8"
SLOWEST_CLIENT_SECONDS = 10.0


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, an IPv6 host in brackets; InvalidInput when it is something else."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InvalidInput("listen", listen, "HOST:PORT, such as 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Exporter:
    """The server, which listens once it is made. `token` is what scrapers must show, empty for none.

    `scraper` takes the snapshots it serves.
    """

    def __init__(self, installation: Installation, listen: str = LISTEN, token: str = "") -> None:
        """Listen; Refused for an address that others can reach without a token, ServiceUnavailable for one in use."""
        host, port = address_of(listen)
        if is_open(host) and not token:
            raise Refused(
                f"metrics would listen on {listen!r}, where others can read them without a token",
                f"keep them on 127.0.0.1, or set {TOKEN_VARIABLE}",
            )
        self.scraper = Scraper(installation)
        try:
            self._server = _Server(host, port, self.scraper, token)
        except OSError as error:
            raise ServiceUnavailable(
                "metrics", f"cannot listen on {listen}: {error}", "choose another --listen"
            ) from error

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        named = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{named}]' if ':' in named else named}:{port}{PATH}"

    def serve(self) -> None:
        """Serve until interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def start(self) -> None:
        """Serve from a thread of this process, until `stop`."""
        threading.Thread(target=self.serve, name="vibey-metrics", daemon=True).start()

    def stop(self) -> None:
        """End what `start` began."""
        self._server.shutdown()


class _Server(ThreadingHTTPServer):
    """A thread for each scraper, and what all of them share."""

    daemon_threads = True

    def __init__(self, host: str, port: int, scraper: Scraper, token: str) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.scraper = scraper
        self.token = token
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout: ClassVar[float | None] = SLOWEST_CLIENT_SECONDS
    server_version = "vibey"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the metrics, or why not."""
        status, body, content_type = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  the name http.server looks for

    def _answer(self) -> tuple[HTTPStatus, bytes, str]:
        refusal = self._refusal()
        if refusal is not None:
            return *refusal, PLAIN
        if self.path.partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND, f"there is only {PATH}\n".encode(), PLAIN
        try:
            body, content_type = cast("_Server", self.server).scraper.text(self.headers.get("Accept", ""))
        except VibeyError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), PLAIN
        return HTTPStatus.OK, body, content_type

    def _refusal(self) -> tuple[HTTPStatus, bytes] | None:
        """Why this request gets no metrics: it lacks the token, or there is none and it names another machine."""
        token = cast("_Server", self.server).token
        if token:
            if has_bearer(self.headers.get("Authorization", ""), token):
                return None
            return HTTPStatus.UNAUTHORIZED, b"a token is needed: Authorization: Bearer TOKEN\n"
        names = self.headers.get_all("Host", [])
        if not names or is_here(",".join(names)):
            return None
        words = f"without a token metrics are given only by an address of this machine; set {TOKEN_VARIABLE}\n"
        return HTTPStatus.FORBIDDEN, words.encode()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        return
