"""Log tail: the end of a run's output, and then what it adds, as a stream.

Events: `whole` replaces what is shown, with the run it is of, and `more` adds to it; `note` says something about it.
Of a coding client, unless its output is asked for `raw`, `whole` has `rows` and `rows` adds to them: each has a style
by name, what stands before it, and its text.
What is sent is text for people: escape sequences and other controls that a terminal would obey are taken out here, and
the page puts the rest in as text, never as HTML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tornado.web import url
from typing_extensions import override

from vibey.domain.errors import VibeyError
from vibey.engines.transcripts.plaintext import PlainText, plain_text
from vibey.engines.transcripts.reader import EntryReader
from vibey.engines.transcripts.rows import Row, rows_of
from vibey.flower import sheets
from vibey.flower.access import words_of
from vibey.flower.pages import Live
from vibey.services import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vibey.services.installation import Installation
    from vibey.services.logs import RunOutput

TAIL_BYTES = 64 * 1024
POLL_SECONDS = 0.5
# Events are longer than what is shown of them.
EVENTS_TAIL_BYTES = 1024 * 1024
MOST_ROWS = 2000
LONGEST_ROW = 20_000


class LiveLog(Live):
    """The stream of a run's output."""

    @override
    async def get(self, job: str | None = None) -> None:
        """Tell the output of the run asked for, else of the job's newest, as it changes."""
        asked = self.asked(job)
        raw = "raw" in asked
        await self.stream(self._follow(sheets.job_number(asked), sheets.whole(asked, "run"), raw=raw))

    async def _follow(self, job_id: int, run_id: int | None, *, raw: bool) -> None:
        follower = _Follower(self, raw=raw)
        while True:
            try:
                found = await self.desk.shared(
                    ("output", job_id, run_id), lambda given: logs.find(given, job_id, run_id)
                )
                if found is None:
                    reason = await self.desk.shared(("no run", job_id), lambda given: logs.no_run(given, job_id))
                    await follower.say(reason)
                else:
                    await follower.tell(found)
            except (VibeyError, TimeoutError) as error:
                await self.send("note", words_of(error))
            except OSError as error:
                await self.send("note", f"the output cannot be read now: {error.strerror}")
            if not await self.pause(POLL_SECONDS):
                return


class _Follower:
    """Where one viewer is in which run's output."""

    def __init__(self, viewer: LiveLog, *, raw: bool) -> None:
        self._viewer = viewer
        self._raw = raw
        self._reader: EntryReader | None = None
        self._run: int | None = None
        self._place = 0
        self._text = PlainText()
        self._stored: str | None = None
        self._said = ""

    async def tell(self, found: RunOutput) -> None:
        """Send what is new."""
        if found.source == "file" and found.path is not None:
            if found.has_transcript and not self._raw:
                await self._tell_rows(found, found.path)
            else:
                await self._tell_file(found, found.path)
        elif found.stored != self._stored or found.run_id != self._run:
            self._run, self._stored = found.run_id, found.stored
            if found.has_transcript and not self._raw:
                rows = [row for batch in logs.transcript(found, found.pieces(), lambda: None) for row in batch]
                await self._whole_rows(found, rows)
            else:
                await self._whole(found, plain_text(found.text()))
        await self.say(note_on(found))

    async def _tell_file(self, found: RunOutput, path: Path) -> None:
        desk = self._viewer.desk
        if found.run_id != self._run:
            self._run, self._text = found.run_id, PlainText()
            kept, self._place = await desk.run(_end(path, TAIL_BYTES))
            await self._whole(found, self._text.feed(_whole_lines(kept, self._place)))
            return
        piece, self._place = await desk.run(_since(path, self._place))
        text = self._text.feed(piece)
        if text:
            await self._viewer.send("more", text)

    async def _tell_rows(self, found: RunOutput, path: Path) -> None:
        desk = self._viewer.desk
        if found.run_id != self._run or self._reader is None:
            self._run, self._reader = found.run_id, EntryReader(found.kind)
            kept, self._place = await desk.run(_end(path, EVENTS_TAIL_BYTES))
            await self._whole_rows(found, await desk.run(_rows(self._reader, _whole_lines(kept, self._place))))
            return
        piece, self._place = await desk.run(_since(path, self._place))
        rows = await desk.run(_rows(self._reader, piece, last=found.ended and not piece))
        if found.ended and not piece and not self._reader.told_usage:
            self._reader.told_usage = True
            rows += found.used()
        if rows:
            await self._viewer.send("rows", _packed(rows))

    async def _whole_rows(self, found: RunOutput, rows: Sequence[Row]) -> None:
        shown = {"run_id": found.run_id, "engine": found.engine, "text": "", "rows": _packed(rows)}
        await self._viewer.send("whole", shown)

    async def _whole(self, found: RunOutput, text: str) -> None:
        await self._viewer.send("whole", {"run_id": found.run_id, "engine": found.engine, "text": text})

    async def say(self, words: str) -> None:
        """Send a note, unless it is the one that was sent last."""
        if words != self._said:
            self._said = words
            await self._viewer.send("note", words)


def _end(path: Path, most: int) -> Callable[[Installation], tuple[bytes, int]]:
    return lambda _: logs.tail(path, most)


def _whole_lines(kept: bytes, reached: int) -> bytes:
    """The end of an output, without a line whose beginning is cut off."""
    return kept.partition(b"\n")[2] if reached > len(kept) else kept


def _rows(reader: EntryReader, piece: bytes, *, last: bool = False) -> Callable[[Installation], list[Row]]:
    def read(_: Installation) -> list[Row]:
        found = [*reader.feed(piece), *(reader.rest() if last else ())]
        return [row for entry in found for row in rows_of(entry)]

    return read


def _packed(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """The last rows as they are sent."""
    return [(row.style, row.before, _shown(row)) for row in rows[-MOST_ROWS:]]


def _shown(row: Row) -> str:
    text = plain_text(row.text) if row.style == "line" else row.text
    return text if len(text) <= LONGEST_ROW else f"{text[:LONGEST_ROW]}…"


def _since(path: Path, place: int) -> Callable[[Installation], tuple[bytes, int]]:
    return lambda _: logs.since(path, place, TAIL_BYTES)


def note_on(found: RunOutput) -> str:
    """What a person should know about an output: whose it is, and whether more will come."""
    of = f"Run {found.run_id} on {found.engine}, {found.state}"
    if found.source == "stored":
        return f"{of}: it ran on {found.host}; this is the end of its output as last reported."
    if found.source == "none":
        return f"{of}: no output of it is on this machine." if found.ended else f"{of}: nothing printed yet."
    return f"{of}." if found.ended else f"{of}: following."


def handlers() -> list[url]:
    """The entry of the stream."""
    return [url(r"/live/log/(\d{1,18})", LiveLog, {"sheet": sheets.JOB}, name="live-log")]
