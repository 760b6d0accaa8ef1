"""Server-sent events, as bytes arrive: the data of each event, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_EVENT = 4 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """An event, or a line without an end, of more bytes than are held."""


class EventStream:
    """The parser of https://html.spec.whatwg.org/multipage/server-sent-events.html, kept to `data`."""

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._longest = longest
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0
        self._after_return = False
        self._first = True

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events this piece completes; bytes that are not UTF-8 are replaced.

        Raises EventTooLong. An event that no empty line has ended is never given out.
        """
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_return = False
        if piece:
            self._after_return = piece.endswith(b"\r")
        *ended, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ended:
            yield from self._take(self._completed(end))
        self._hold(self._line, rest)

    def _completed(self, end: bytes) -> bytes:
        line = b"".join((*self._line, end))
        self._held -= len(line) - len(end)
        self._line.clear()
        if self._first:
            self._first = False
            return line.removeprefix(_BOM)
        return line

    def _take(self, line: bytes) -> Iterator[str]:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                # The byte more is the line end that joins it to the next.
                self._hold(self._data, value.removeprefix(b" ") + b"\n")
        elif self._data:
            event = b"".join(self._data)[:-1]
            self._data.clear()
            self._held -= len(event) + 1
            yield event.decode("utf-8", "replace")

    def _hold(self, where: list[bytes], part: bytes) -> None:
        if part:
            where.append(part)
            self._held += len(part)
        if self._held > self._longest:
            raise EventTooLong(f"an event of more than {self._longest} bytes")
