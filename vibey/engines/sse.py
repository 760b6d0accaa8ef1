"""Server-sent events, as bytes arrive: what each event holds, in bounded memory.

The format is that of https://html.spec.whatwg.org/multipage/server-sent-events.html, read more widely where model
servers depart from it: an error in a field of that name, JSON without any field before it (one document, or one a
line), and a last event that no empty line ends. What is neither an event nor JSON is kept as `stray`, bounded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_EVENT = 4 * 1024 * 1024
LONGEST_STRAY = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_FIELDS = frozenset({b"data", b"event", b"id", b"retry", b"error"})


class EventTooLong(ValueError):
    """An event, or a line without an end, of more bytes than are held."""


class Event(NamedTuple):
    """One event. `name` is the server's, else empty: `error` for a field of that name, `document` for bare JSON."""

    data: str
    name: str = ""


class EventStream:
    """The parser. `stray` is text that was neither an event nor a document."""

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._longest = longest
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._document: list[bytes] = []
        self._held = 0
        self._after_return = False
        self._first = True
        self._stray = b""

    @property
    def stray(self) -> str:
        """The text that was nothing known, as far as it is kept."""
        return self._stray.decode("utf-8", "replace").strip()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events this piece completes; bytes that are not UTF-8 are replaced. Raises EventTooLong."""
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_return = False
        if piece:
            self._after_return = piece.endswith(b"\r")
        *ended, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ended:
            yield from self._take(self._completed(end))
        self._hold(self._line, rest)

    def rest(self) -> Iterator[Event]:
        """The events that only the end of the stream completes: one is complete if it is JSON."""
        yield from self._take(self._completed(b""))
        data, document = b"".join(self._data).removesuffix(b"\n"), b"".join(self._document)
        if data == b"[DONE]" or (data and _is_json(data)):
            yield Event(data.decode("utf-8", "replace"), self._name.decode("utf-8", "replace"))
        if document and _is_json(document):
            yield Event(document.decode("utf-8", "replace").strip(), "document")
        elif document:
            self._keep_stray(document)

    def _completed(self, end: bytes) -> bytes:
        line = b"".join((*self._line, end))
        self._held -= len(line) - len(end)
        self._line.clear()
        if self._first:
            self._first = False
            return line.removeprefix(_BOM)
        return line

    def _take(self, line: bytes) -> Iterator[Event]:
        name, separator, value = line.partition(b":")
        if self._document and name in _FIELDS:
            self._abandon_document()
        if self._document or line[:1] in {b"{", b"["}:
            yield from self._take_of_document(line)
        elif line and name not in _FIELDS:
            if name or not separator:  # a line that begins with a colon is a comment
                self._keep_stray(line)
        elif name == b"data":
            # The byte more is the line end that joins it to the next.
            self._hold(self._data, value.removeprefix(b" ") + b"\n")
        elif name == b"event":
            self._name = value.strip()[:100]
        elif name == b"error":
            yield Event(value.strip().decode("utf-8", "replace"), "error")
        elif not line:
            if self._data:
                event = b"".join(self._data)[:-1]
                self._data.clear()
                self._held -= len(event) + 1
                yield Event(event.decode("utf-8", "replace"), self._name.decode("utf-8", "replace"))
            self._name = b""

    def _take_of_document(self, line: bytes) -> Iterator[Event]:
        """JSON that stands by itself: complete with its line, or with the line that closes it at the margin."""
        self._hold(self._document, line + b"\n")
        if line[:1] not in {b"{", b"[", b"}", b"]"}:
            return
        text = b"".join(self._document)
        if text.strip() == b"[DONE]" or _is_json(text):
            self._document.clear()
            self._held -= len(text)
            yield Event(text.decode("utf-8", "replace").strip(), "document")

    def _abandon_document(self) -> None:
        text = b"".join(self._document)
        self._document.clear()
        self._held -= len(text)
        self._keep_stray(text)

    def _keep_stray(self, line: bytes) -> None:
        self._stray = (self._stray + line + b"\n")[:LONGEST_STRAY]

    def _hold(self, where: list[bytes], part: bytes) -> None:
        if part:
            where.append(part)
            self._held += len(part)
        if self._held > self._longest:
            raise EventTooLong(f"an event of more than {self._longest} bytes")


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
