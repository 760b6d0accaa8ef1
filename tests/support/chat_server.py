"""A model server of our own on loopback: answers each request with the bytes a test has laid out for it."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

Piece = bytes | threading.Event


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came: `line` is its first line, header names are lowercase."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, object]:
        """The body as JSON."""
        parsed: dict[str, object] = json.loads(self.body)
        return parsed


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send: pieces in their order; an event among them is waited for. Then the connection is closed."""

    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, status: int, body: object = b"", **headers: str) -> Reply:
        """A whole answer with its length; `retry_after="3"` becomes the header `retry-after`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return cls((head(status, {**named, "content-length": str(len(data))}), data))

    @classmethod
    def stream(cls, *pieces: Piece) -> Reply:
        """An answer of events, ended by closing the connection."""
        return cls((head(200, {"content-type": "text/event-stream"}), *pieces))


def head(status: int, headers: dict[str, str]) -> bytes:
    """The first lines of an answer."""
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def event(document: object) -> bytes:
    """One event."""
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def delta(text: str, **more: object) -> bytes:
    """An event with a piece of the completion's text."""
    return event({"choices": [{"delta": {"content": text}, **more}]})


END = event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"


def usage(tokens_in: int, tokens_out: int) -> bytes:
    """The event that counts tokens."""
    return event({"choices": [], "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}})


@dataclass
class ChatServer:
    """The server. `answers` maps a path to its reply; `asked` lists every request so far."""

    answers: dict[str, Reply] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._ending = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._served: list[threading.Thread] = []
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        for thread in self._served:
            thread.join()

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def completes(self, *pieces: Piece) -> None:
        """Answer completions with these events."""
        self.answers["/v1/chat/completions"] = Reply.stream(*pieces)

    def refuses(self, status: int, body: object = b"", **headers: str) -> None:
        """Answer completions with this status."""
        self.answers["/v1/chat/completions"] = Reply.of(status, body, **headers)

    def _serve(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            self._served.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                request = _received(connection)
                self.asked.append(request)
                for piece in self._pieces(request.line.split()[1]):
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def _pieces(self, target: str) -> Iterator[bytes]:
        path = target.partition("?")[0]
        for piece in self.answers.get(path, Reply.of(404, b"no such path")).pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            while not piece.wait(0.05):
                if self._ending.is_set():
                    return


def _received(connection: socket.socket) -> Request:
    with connection.makefile("rb") as lines:
        first = lines.readline().decode().strip()
        headers = {}
        while line := lines.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Request(first, headers, lines.read(int(headers.get("content-length", "0"))))
