"""Conduct: one demo from start to end.

Prepare the folder, start servers, workers and beat, enqueue the jobs, watch them end, stop the processes. An earlier
demo's data stays: the jobs of this one are added to it and only they are counted. Jobs that an interrupted demo left
open are cancelled first, once there are workers to see to it. The servers go on running afterwards, so that everything
can be looked at.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from importlib import resources
from itertools import cycle, islice
from typing import TYPE_CHECKING, Protocol

from vibey.demo.crew import Crew
from vibey.domain.errors import Refused, VibeyError
from vibey.services import control, summary
from vibey.services.enqueue import Order, orders_of, place
from vibey.services.installation import Installation, ensure_services
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.demo.folder import Folder
    from vibey.services.summary import Summary
    from vibey.settings import Settings

LIMIT_SECONDS = 180.0
LIMIT_JOBS = 40
LIMIT_SECONDS_A_JOB = 4.0
LOOK_SECONDS = 0.2


class Screen(Protocol):
    """Where a demo says what it is doing."""

    def step(self, text: str) -> None:
        """Say what begins now."""

    def show(self, summary: Summary, seconds: float) -> None:
        """Show how the jobs are, so many seconds after they were enqueued."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a demo came to. `seconds` is the whole demo, `work_seconds` from enqueueing to the last job's end."""

    summary: Summary
    seconds: float
    work_seconds: float

    @property
    def is_good(self) -> bool:
        """Whether every job succeeded."""
        return self.summary.succeeded == len(self.summary.jobs)


@dataclass(frozen=True, slots=True)
class Clock:
    """The time since the demo began, and how much of it there is."""

    began: float
    limit: float

    @classmethod
    def start(cls, jobs: int) -> Clock:
        """Three minutes for forty jobs, and some more for each beyond."""
        return cls(time.monotonic(), LIMIT_SECONDS + LIMIT_SECONDS_A_JOB * max(0, jobs - LIMIT_JOBS))

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def wait(self, condition: Callable[[], bool]) -> bool:
        """Ask until it is true, and say so, or until the time is up."""
        while not condition():
            if self.seconds >= self.limit:
                return False
            time.sleep(LOOK_SECONDS)
        return True


def orders(count: int) -> list[Order]:
    """The demo's first `count` jobs; beyond the last line of its file they begin again."""
    text = (resources.files("vibey.demo") / "jobs.jsonl").read_text(encoding="utf-8")
    return list(islice(cycle(orders_of(text.splitlines(), {})), count))


def conduct(folder: Folder, count: int, screen: Screen) -> Finished:
    """Run one demo of `count` jobs in a folder that is held; its processes are stopped however it ends."""
    clock = Clock.start(count)
    settings = folder.prepare()
    screen.step("starting Postgres and a Redis-compatible server")
    installation = _installed(settings)
    crew = Crew(folder)
    try:
        screen.step("starting a control worker, a build worker and beat")
        crew.start()
        _await_workers(installation, crew, clock)
        _clear(installation, crew, clock, screen)
        screen.step(f"enqueueing {count} jobs")
        finished = _worked(installation, orders(count), crew, clock, screen)
    finally:
        screen.step("stopping the workers and beat")
        crew.stop()
        installation.close()
    return replace(finished, seconds=clock.seconds)


def _installed(settings: Settings) -> Installation:
    urls = ensure_services(settings)
    migrate.upgrade(urls.database_url)
    return Installation.open(settings)


def _await_workers(installation: Installation, crew: Crew, clock: Clock) -> None:
    def reported() -> bool:
        crew.require_alive()
        return crew.worker_pids() <= summary.worker_pids(installation)

    if not clock.wait(reported):
        raise VibeyError(f"the demo's workers did not report within {clock.limit:.0f} s; see their logs")


def _clear(installation: Installation, crew: Crew, clock: Clock, screen: Screen) -> None:
    """Cancel what an interrupted demo left open; its runs end when they hear of it, or with their leases."""
    leftover = summary.open_jobs(installation)
    if not leftover:
        return
    screen.step(f"cancelling {len(leftover)} jobs that an interrupted demo left")
    for job in leftover:
        try:
            control.cancel(installation, job)
        except Refused:
            continue  # it ended by itself in this moment

    def ended() -> bool:
        crew.require_alive()
        return not summary.open_jobs(installation)

    if not clock.wait(ended):
        raise VibeyError("jobs of an interrupted demo did not end; remove the demo's folder after: vibey down")


def _worked(installation: Installation, batch: list[Order], crew: Crew, clock: Clock, screen: Screen) -> Finished:
    since = summary.tally(installation)
    began = clock.seconds
    jobs = [placed.job_id for placed in place(installation, batch)]
    seen = summary.summarise(installation, jobs, since)

    def done() -> bool:
        nonlocal seen
        crew.require_alive()
        seen = summary.summarise(installation, jobs, since)
        screen.show(seen, clock.seconds - began)
        return seen.ended == len(jobs)

    clock.wait(done)
    return Finished(seen, clock.seconds, clock.seconds - began)
