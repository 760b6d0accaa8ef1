"""Desk: reads the installation for the pages, off tornado's one thread, and once for all who look at the same thing.

The protocol between the event loop and the database. A *frame* is what one page shows at one instant, as HTML. Whoever
wants one asks `Desk.frame` with the page's key; the event loop alone touches the table of frames, so it needs no lock.
A frame younger than a second is given again; one being read is waited for, by however many; else one reading is handed
to a pool of a few threads. So the database sees at most one reading of a page a second, whether one person looks or a
hundred, and never more at once than there are threads. A reading that takes long is repeated more seldom: looking costs
at most a quarter of one thread. What a reading raises is everybody's answer for as long as a frame would be: a
database that is away is not asked once for each viewer. Frames nobody asked for in a minute are forgotten.

After an action the frames are forgotten, so that the next page shows what it did.
"""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from vibey.domain.errors import SettingsError
from vibey.services.installation import Installation
from vibey.settings import load
from vibey.settings.source import file_state

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")

THREADS = 4
FRESH_SECONDS = 1.0
REST = 3.0
KEPT_SECONDS = 60.0
PATIENCE_SECONDS = 15.0
STREAMS = 200
# The words of an instant, "3s ago", change by themselves, in the browser too: they make no new frame.
_WORDS_OF_TIME = re.compile(r"(<time [^>]*data-(?:ago|since)>)[^<]*")


@dataclass(frozen=True, slots=True)
class Frame:
    """What a page shows: as HTML, as of when, and a digest that changes only when it says something new."""

    html: str
    as_of: str
    digest: str

    @classmethod
    def of(cls, html: str, as_of: str) -> Frame:
        """A frame of this HTML."""
        told = _WORDS_OF_TIME.sub(r"\1", html)
        return cls(html, as_of, blake2b(told.encode(), digest_size=12).hexdigest())


@dataclass(slots=True)
class _Reading:
    """A reading begun: its answer, and until when that is given again."""

    answer: asyncio.Future[Any]
    begun_at: float
    asked_at: float
    fresh_until: float | None = None


class Desk:
    """The one reader of a Flower process; `streams` counts the viewers that are kept up to date."""

    def __init__(self, installation: Installation | None = None) -> None:
        """Read this installation, else the one of the settings in force, opened when first needed."""
        self._installation = installation
        self._state: tuple[int, ...] | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="vibey-pages")
        self._readings: dict[Hashable, _Reading] = {}
        self.streams = 0

    def use(self, celery: Any) -> None:  # noqa: ANN401  Flower's Celery application
        """Send messages by this application, if the installation is still to be opened."""
        if self._installation is None:
            self._installation = Installation.open(load(), app=celery)

    async def run(self, work: Callable[[Installation], T]) -> T:
        """Do some work in the pool; TimeoutError when it takes too long, though it then goes on."""
        return await asyncio.wait_for(asyncio.shield(self._submit(work)), PATIENCE_SECONDS)

    async def shared(self, key: Hashable, work: Callable[[Installation], T]) -> T:
        """The answer of some work, done once for all who ask for this key within a second."""
        now = time.monotonic()
        reading = self._readings.get(key)
        if reading is None or (reading.fresh_until is not None and reading.fresh_until <= now):
            self._forget_old(now)
            reading = self._readings[key] = _Reading(self._submit(work), now, now)
            reading.answer.add_done_callback(partial(_rest, reading))
        reading.asked_at = now
        answer: T = await asyncio.wait_for(asyncio.shield(reading.answer), PATIENCE_SECONDS)
        return answer

    def forget(self) -> None:
        """Let everything be read anew."""
        self._readings = {}

    def _submit(self, work: Callable[[Installation], T]) -> asyncio.Future[T]:
        if self._installation is None:
            raise RuntimeError("the desk has no installation yet")
        return asyncio.get_running_loop().run_in_executor(self._pool, self._work, work)

    def _work(self, work: Callable[[Installation], T]) -> T:
        """Do some work on the installation under what is in force, its file as it is by now."""
        if self._installation is None:
            raise RuntimeError("the desk has no installation yet")
        installation = self._installation = self._reread(self._installation)
        return work(installation.current())

    def _reread(self, installation: Installation) -> Installation:
        """The installation with its file read again, if that was changed; one that cannot be read changes nothing."""
        path = installation.file.path
        state = None if path is None else file_state(path)
        if state is None or state == self._state:
            return installation
        is_first, self._state = self._state is None, state
        try:
            return installation if is_first else installation.reread(load(path))
        except SettingsError:
            return installation

    def _forget_old(self, now: float) -> None:
        old = [key for key, each in self._readings.items() if each.answer.done() and now - each.asked_at > KEPT_SECONDS]
        for key in old:
            del self._readings[key]


def _rest(reading: _Reading, _: asyncio.Future[Any]) -> None:
    """Decide how long an answer is given again: a second, or three times as long as the reading took."""
    now = time.monotonic()
    reading.fresh_until = now + max(FRESH_SECONDS, REST * (now - reading.begun_at))
    if not reading.answer.cancelled():
        reading.answer.exception()  # looked at here, in case nobody waits for it any more
