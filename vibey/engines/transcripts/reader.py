"""Reader: takes the output of a run line by line, and gives out entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vibey.engines.stream import LineCutter
from vibey.engines.transcripts.entries import Entry, Kind, compact, said
from vibey.engines.transcripts.formats import FORMATS, Memory, read_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PARAGRAPH = "\n\n"


class EntryReader:
    """The transcript of one run, as far as it was read. Its memory is bounded, whatever the length of the output."""

    def __init__(self, kind: str) -> None:
        """`kind` is the engine's. The output of a kind without events has lines only."""
        self._format = FORMATS.get(kind, {})
        self._memory = Memory()
        self._cutter = LineCutter()
        self._begun = ""
        self.told_usage = False

    def feed(self, piece: bytes) -> Iterator[Entry]:
        """The entries that this piece of the output completes."""
        for line in self._cutter.feed(piece):
            yield from self.take(line)

    def rest(self) -> Iterator[Entry]:
        """What is left when nothing more comes."""
        for line in self._cutter.rest():
            yield from self.take(line)
        yield from self._words()

    def take(self, line: str) -> Iterable[Entry]:
        """The entries of one line."""
        if not line.startswith(("{", "[")) and not self._begun:
            # Most lines of most outputs are text.
            return (Entry(Kind.LINE, line),) if line.strip() or not self._format else ()
        return [joined for entry in self._entries(line) for joined in self._joined(entry)]

    def _entries(self, line: str) -> Iterator[Entry]:
        events = self._events(line)
        if not events:
            yield Entry(Kind.LINE, line)
        for event in events:
            found = read_event(self._format, event, self._memory)
            if found is None:
                found = [Entry(Kind.LINE, line if len(events) == 1 else compact(event))]
            yield from found

    def _joined(self, entry: Entry) -> Iterator[Entry]:
        """The entry; of words that come in pieces, each paragraph once it is complete."""
        self.told_usage = self.told_usage or entry.kind is Kind.USAGE
        if entry.goes_on:
            whole, _, self._begun = (self._begun + entry.text).rpartition(PARAGRAPH)
            yield from said(whole)
        else:
            yield from self._words()
            yield entry

    def _words(self) -> Iterator[Entry]:
        words, self._begun = self._begun, ""
        yield from said(words)

    def _events(self, line: str) -> list[Any]:
        """The events of a line; none for a line that is something else."""
        if not self._format or not line.startswith(("{", "[")):
            return []
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return []
        listed = found if isinstance(found, list) else [found]
        return listed if all(isinstance(each, dict) for each in listed) else []


def entries_of(kind: str, pieces: Iterable[bytes]) -> Iterator[Entry]:
    """The entries of an output that comes in pieces."""
    reader = EntryReader(kind)
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.rest()
