"""Load: what a fleet is given to do: jobs at a steady rate, measurements, and eyes on its pages and metrics.

The jobs are a chaos plan's: quick and slow ones, some that fail and are retried, wind down early, start children that
ignore TERM, run into a deadline, talk in sessions, exclude an engine, or are cancelled. A few seconds' jobs come at
once, so that local slots are full now and then, and some jobs are held and overflow.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from contextlib import closing, suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.request import urlopen

from tests.support.chaos.plan import Plan
from tests.support.chaos.run import order_of
from tests.support.wait import until
from vibey.domain.errors import Refused
from vibey.publisher import AUDIT_TASK, CONTROL_QUEUE, MEASURE_TASK, PRUNE_TASK, make_app
from vibey.services import control
from vibey.services.enqueue import place
from vibey.services.installation import celery_configuration

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Member
    from vibey.embedded import Services
    from vibey.services.installation import Installation

GULP_SECONDS = 4.0
MEASURE_SECONDS = 30.0
LOOK_SECONDS = 2.0
MEASURED = "lab"
LEAST_SESSIONS = 20
PAGES = ("/", "/queue", "/jobs", "/cap", "/ledger", "/workers", "/tasks")
STREAM = "/live/queue"
FLOWER_PORT = re.compile(r"Visit me at https?://[^:\s]+:(\d+)")
METRICS_URL = re.compile(r"^metrics: (\S+)", re.MULTILINE)


class Load:
    """The three hands that keep a fleet busy, each a thread; `stop` ends them, and tells what broke one."""

    def __init__(
        self, installation: Installation, services: Services, *, seed: int, seconds: float, rate: float
    ) -> None:
        """Plan the jobs of so many seconds at so many a second."""
        self._installation = installation
        self._services = services
        self._jobs = Plan.of(seed, max(1, round(seconds * rate)), 0).jobs
        self._rate = rate
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._broke = threading.Event()
        self.broken: list[BaseException] = []
        self.enqueued = 0
        self.looks = 0

    def start(self, flower: Member, metrics: Member) -> None:
        """Begin."""
        page = HTTPConnection("127.0.0.1", int(_announced(flower, FLOWER_PORT)), timeout=30)
        page.close()
        url = _announced(metrics, METRICS_URL)
        self._begin(self._enqueue)
        self._begin(self._measure)
        self._begin(lambda: self._look(page, url))

    @property
    def is_over(self) -> bool:
        """Whether every job of the plan has been enqueued."""
        return self.enqueued == len(self._jobs)

    def stop(self) -> None:
        """End all."""
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until one of the hands is broken."""
        self._broke.wait(seconds)

    def check(self) -> None:
        """Raise what ended one of the hands."""
        if self.broken:
            raise self.broken[0]

    def _begin(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  (told to whoever waits, by `check`)
                self.broken.append(error)
                self._broke.set()

        self._threads.append(threading.Thread(target=guarded, name="soak-load", daemon=True))
        self._threads[-1].start()

    def _enqueue(self) -> None:
        size = max(1, round(self._rate * GULP_SECONDS))
        begun = time.monotonic()
        cancelling: list[int] = []
        for start in range(0, len(self._jobs), size):
            if self._ending.wait(max(0.0, begun + start / self._rate - time.monotonic())):
                return
            gulp = self._jobs[start : start + size]
            placed = place(self._installation, [order_of(job) for job in gulp])
            for job_id in cancelling:
                # one that has ended is past being cancelled
                with suppress(Refused):
                    control.cancel(self._installation, job_id)
            cancelling = [at.job_id for job, at in zip(gulp, placed, strict=True) if job.cancelled]
            self.enqueued += len(gulp)

    def _measure(self) -> None:
        """Ask for measurements: a changed minimum makes the one at hand out of date."""
        application = make_app("soak", celery_configuration(self._installation.settings, self._services))
        for turn in itertools.count():
            control.set_project(self._installation, MEASURED, {"auto_min_sessions": str(LEAST_SESSIONS + turn % 10)})
            for task, words in ((MEASURE_TASK, [MEASURED]), (AUDIT_TASK, []), (PRUNE_TASK, [])):
                application.send_task(task, args=words, queue=CONTROL_QUEUE)
            if self._ending.wait(MEASURE_SECONDS):
                return

    def _look(self, page: HTTPConnection, metrics_url: str) -> None:
        """Look at Flower's pages, ours and its own, and at the metrics, as a browser and a scraper would."""
        for turn in itertools.count():
            with closing(page):
                page.request("GET", PAGES[turn % len(PAGES)])
                answer = page.getresponse()
                answer.read()
                assert answer.status == 200, f"{PAGES[turn % len(PAGES)]} answers {answer.status}"
            with closing(page):
                page.request("GET", STREAM)
                with closing(page.getresponse()) as stream:
                    assert stream.readline(), "the stream ended"
            with urlopen(metrics_url, timeout=30) as answer:  # noqa: S310  loopback
                answer.read()
            self.looks += 1
            if self._ending.wait(LOOK_SECONDS):
                return


def _announced(member: Member, words: re.Pattern[str]) -> str:
    """What a member says in its log of where it listens."""

    def found() -> str | None:
        assert member.running, member.text()
        said = words.search(member.text())
        return said[1] if said else None

    return until(found, seconds=60, what=f"{member.name} to listen") or ""
