"""Log tail: the end of a run's output, and then what it adds, as a stream.

Events: `whole` replaces what is shown, with the run it is of, and `more` adds to it; `note` says something about it.
What is sent is text for people: escape sequences and other controls that a terminal would obey are taken out here, and
the page puts the rest in as text, never as HTML.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from tornado import web
from tornado.web import url
from typing_extensions import override

from vibey.domain.errors import VibeyError
from vibey.flower import sheets
from vibey.flower.access import words_of
from vibey.flower.pages import Live
from vibey.services import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.services.installation import Installation
    from vibey.services.logs import RunOutput

TAIL_BYTES = 64 * 1024
POLL_SECONDS = 0.5
LONGEST_ESCAPE = 4096
# A control sequence; an operating system command or other string, up to its end; any other two-byte escape.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`-~]", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07]*|[ -/]*)\Z", re.DOTALL)
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


class PlainText:
    """Turns pieces of output into text that only says something."""

    def __init__(self) -> None:
        """Begin at any place in an output."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, piece: bytes) -> str:
        """The text of a piece; the beginning of a character or escape at its end is kept for the next."""
        text = _ESCAPES.sub("", self._rest + self._decoder.decode(piece))
        unfinished = _UNFINISHED.search(text)
        self._rest = ""
        if unfinished is not None and len(unfinished[0]) <= LONGEST_ESCAPE:
            text, self._rest = text[: unfinished.start()], unfinished[0]
        if text.endswith("\r"):
            text, self._rest = text[:-1], "\r" + self._rest
        return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def plain_text(text: str) -> str:
    """Text of an output, whole, that only says something."""
    return PlainText().feed(text.encode("utf-8", "replace"))


class LiveLog(Live):
    """The stream of a run's output."""

    @override
    @web.authenticated
    async def get(self, job: str | None = None) -> None:
        """Tell the output of the run asked for, else of the job's newest, as it changes."""
        asked = self.asked(job)
        await self.stream(self._follow(sheets.job_number(asked), sheets.whole(asked, "run")))

    async def _follow(self, job_id: int, run_id: int | None) -> None:
        follower = _Follower(self)
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

    def __init__(self, viewer: LiveLog) -> None:
        self._viewer = viewer
        self._run: int | None = None
        self._place = 0
        self._text = PlainText()
        self._stored: str | None = None
        self._said = ""

    async def tell(self, found: RunOutput) -> None:
        """Send what is new."""
        if found.source == "file" and found.path is not None:
            await self._tell_file(found, found.path)
        elif found.stored != self._stored or found.run_id != self._run:
            self._run, self._stored = found.run_id, found.stored
            await self._whole(found, plain_text(found.text()))
        await self.say(note_on(found))

    async def _tell_file(self, found: RunOutput, path: Path) -> None:
        desk = self._viewer.desk
        if found.run_id != self._run:
            self._run, self._text = found.run_id, PlainText()
            kept, self._place = await desk.run(lambda _: logs.tail(path, TAIL_BYTES))
            cut = self._place > len(kept)
            await self._whole(found, self._text.feed(kept.partition(b"\n")[2] if cut else kept))
            return
        piece, self._place = await desk.run(_since(path, self._place))
        text = self._text.feed(piece)
        if text:
            await self._viewer.send("more", text)

    async def _whole(self, found: RunOutput, text: str) -> None:
        await self._viewer.send("whole", {"run_id": found.run_id, "engine": found.engine, "text": text})

    async def say(self, words: str) -> None:
        """Send a note, unless it is the one that was sent last."""
        if words != self._said:
            self._said = words
            await self._viewer.send("note", words)


def _found(job_id: int, run_id: int | None) -> Callable[[Installation], RunOutput | None]:
    return lambda installation: logs.find(installation, job_id, run_id)


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
