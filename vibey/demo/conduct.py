"""Conduct: one demo from start to end.

Prepare the folder, start servers, workers and beat, enqueue the jobs, watch them end, stop the processes, audit what
they left. An earlier demo's data stays: the jobs of this one are added to it and only they are counted. They are in a
project of their own, whose cap for today is untouched, so that each demo of a day shows the same. Jobs that an
interrupted demo left open are cancelled first, once there are workers to see to it. The servers go on running
afterwards, so that everything can be looked at.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import resources
from itertools import count, cycle, islice
from typing import TYPE_CHECKING, Any, Protocol

from vibey.demo.crew import Crew
from vibey.domain.errors import Refused, VibeyError
from vibey.services import control, summary, views
from vibey.services.apply import apply
from vibey.services.audit import Audit, audit
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
    """What a demo came to. `seconds` is the whole demo, `work_seconds` from enqueueing to the last job's end.

    `cap` is the project's cap after it, as `vibey status` shows it, `audit` what the audit of the whole record found,
    `patience_seconds` how long a job had to be held to overflow.
    """

    project: str
    patience_seconds: int
    summary: Summary
    seconds: float
    work_seconds: float
    cap: dict[str, Any]
    audit: Audit

    @property
    def is_good(self) -> bool:
        """Whether every job succeeded, and every invariant held."""
        return self.summary.succeeded == len(self.summary.jobs) and self.audit.ok


@dataclass(frozen=True, slots=True)
class Worked:
    """What became of the jobs, so many seconds after they were enqueued."""

    summary: Summary
    seconds: float


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


def orders(jobs: int, project: str = "default") -> list[Order]:
    """The demo's first jobs, so many, in a project; beyond the last line of its file they begin again."""
    text = (resources.files("vibey.demo") / "jobs.jsonl").read_text(encoding="utf-8")
    return list(islice(cycle(orders_of(text.splitlines(), {"project": project})), jobs))


def conduct(folder: Folder, jobs: int, screen: Screen) -> Finished:
    """Run one demo of so many jobs in a folder that is held; its processes are stopped however it ends."""
    clock = Clock.start(jobs)
    settings = folder.prepare()
    screen.step("starting Postgres and a Redis-compatible server")
    installation = _installed(settings)
    try:
        project = _fresh_project(installation)
        worked = _staffed(folder, installation, orders(jobs, project), clock, screen)
        screen.step("auditing the record of everything that happened")
        cap = views.status(installation, project, {})["cap"]
        patience = settings.engines.overflow_after_seconds
        found = audit(installation)
        return Finished(project, patience, worked.summary, clock.seconds, worked.seconds, cap, found)
    finally:
        installation.close()


def _staffed(folder: Folder, installation: Installation, batch: list[Order], clock: Clock, screen: Screen) -> Worked:
    """Let the demo's own processes do the jobs."""
    crew = Crew(folder)
    try:
        screen.step("starting a control worker, a build worker and beat")
        crew.start()
        _await_workers(installation, crew, clock)
        _clear(installation, crew, clock, screen)
        screen.step(f"enqueueing {len(batch)} jobs in project {batch[0].project}")
        return _worked(installation, batch, crew, clock, screen)
    finally:
        screen.step("stopping the workers and beat")
        crew.stop()


def _fresh_project(installation: Installation) -> str:
    """Make the next of the projects `demo-1`, `demo-2` and so on."""
    known = {each["project"] for each in views.all_projects(installation, {})["projects"]}
    name = next(name for number in count(1) if (name := f"demo-{number}") not in known)
    control.new_project(installation, name)
    return name


def _installed(settings: Settings) -> Installation:
    urls = ensure_services(settings)
    migrate.upgrade(urls.database_url)
    installation = Installation.open(settings)
    apply(installation)
    return installation


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


def _worked(installation: Installation, batch: list[Order], crew: Crew, clock: Clock, screen: Screen) -> Worked:
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
    return Worked(seen, clock.seconds - began)
