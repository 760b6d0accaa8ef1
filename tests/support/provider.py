"""A provider of our own on loopback: plays Anthropic, OpenAI and Gemini to real clients, by a test's script.

A script is a list of turns. Which one answers follows from the conversation itself (how many results of tools it
holds), so that a client's retries and its questions on the side (titles, memories) use up no turn: a question
without tools gets the first turn if that refuses, else a word of no interest. Every request is recorded.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from tests.support import dialects

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self


@dataclass(frozen=True, slots=True)
class Say:
    """An answer in words. `pieces` is how many events the words come in."""

    text: str
    tokens_in: int = 12
    tokens_out: int = 3
    pieces: int = 2


@dataclass(frozen=True, slots=True)
class Use:
    """The model asks for its shell to run this."""

    command: str
    tokens_in: int = 12
    tokens_out: int = 3


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal: `scenario` is one of `dialects.SCENARIOS`; after `times` of them the next turn answers.

    `resets_in` seconds are named the way the provider does it, None: not at all.
    """

    scenario: str
    resets_in: int | None = None
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """The request is accepted, then there is silence until the test lets go."""

    until: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Cut:
    """A stream that breaks off in the middle."""

    text: str = "half of it"


Turn = Say | Use | Refuse | Stall | Cut


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, when it was answered (Unix seconds), and the turn that answered it."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    document: Any
    turn: Turn | None = None


class Provider:
    """The server. `script` may be changed at any time; `asked` lists every request so far.

    A client asks its main questions with tools, and others on the side (a title, a summary) without; a model server's
    caller has `asides=False`.
    """

    def __init__(self, *script: Turn, asides: bool = True) -> None:
        self._asides = asides
        self.script: list[Turn] = list(script) or [Say("BUILD OK")]
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._refused = 0
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def plays(self, *script: Turn) -> None:
        """Take another script; the refusals of the last one are forgotten."""
        with self._lock:
            self.script = list(script)
            self._refused = 0

    def refusals(self) -> list[Asked]:
        """The requests that were refused, in the order they were answered."""
        return [each for each in self.asked if isinstance(each.turn, Refuse)]

    def turn(self, dialect: dialects.Dialect, document: Any) -> Turn:
        """The turn that answers this request."""
        with self._lock:
            if self._asides and not dialect.tools(document):
                first = self.script[0]
                return first if isinstance(first, Refuse) and first.times is None else Say("aside")
            index = dialect.results(document)
            for turn in self.script[index:-1]:
                if not isinstance(turn, Refuse) or turn.times is None or self._refused < turn.times:
                    break
                index += 1
            found = self.script[min(index, len(self.script) - 1)]
            self._refused += isinstance(found, Refuse)
            return found

    def record(self, asked: Asked) -> None:
        """Remember a request."""
        with self._lock:
            self.asked.append(asked)

    def wait(self, event: threading.Event) -> bool:
        """Wait for an event or the server's end; whether it came."""
        while not event.wait(0.05):
            if self._ending.is_set():
                return False
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # a client that was killed in the middle of an answer is what these tests are about


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _provider(self) -> Provider:
        assert isinstance(self.server, _Server)
        return self.server.provider

    @override
    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_HEAD(self) -> None:
        """Be there."""
        self._send(200, {}, b"")

    def do_GET(self) -> None:
        """List the models."""
        self._record(None)
        if self.path.partition("?")[0].endswith("/models"):
            self._json(200, {}, {"object": "list", "data": [{"id": "m", "object": "model"}], "models": []})
        else:
            self._json(404, {}, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        """Answer by the script."""
        document = _parsed(self.rfile.read(int(self.headers.get("content-length") or 0)))
        found = dialects.of(self.path)
        if found is None or not isinstance(document, dict):
            self._record(document)
            counted = {"input_tokens": 7, "totalTokens": 7}
            counts = self.path.partition("?")[0].endswith(("/count_tokens", ":countTokens"))
            self._json(200 if counts else 404, {}, counted if counts else {"error": {"message": "no such path"}})
            return
        turn = self._provider.turn(found, document)
        self._record(document, turn)
        self._answer(found, turn, document)

    def _record(self, document: Any, turn: Turn | None = None) -> None:
        asked = Asked(time.time(), self.command, self.path, dict(self.headers), document, turn)
        self._provider.record(asked)

    def _answer(self, dialect: dialects.Dialect, turn: Turn, document: Any) -> None:
        if isinstance(turn, Refuse):
            self._json(*dialect.refusal(turn.scenario, turn.resets_in))
        elif isinstance(turn, Stall):
            if self._provider.wait(turn.until):
                self._reply(dialect, Say("late"), document)
        else:
            self._reply(dialect, turn, document)

    def _reply(self, dialect: dialects.Dialect, turn: Say | Use | Cut, document: Any) -> None:
        if dialect.streams(document, self.path):
            self._stream(dialect, turn, document)
        elif isinstance(turn, Cut):
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._json(200, {}, dialect.whole(turn, document))

    def _stream(self, dialect: dialects.Dialect, turn: Say | Use | Cut, document: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        events = list(dialect.stream(turn, document))
        for event in events[: len(events) // 2] if isinstance(turn, Cut) else events:
            self.wfile.write(event)
            self.wfile.flush()
        if isinstance(turn, Cut):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _json(self, status: int, headers: Mapping[str, str], document: Any) -> None:
        self._send(status, {"content-type": "application/json", **headers}, json.dumps(document).encode())

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body or b"null")
    except ValueError:
        return None
