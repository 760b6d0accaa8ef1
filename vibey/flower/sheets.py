"""Sheets: the router's pages, each with its place, what may be asked of it, and the service that answers.

Every number on a page is a service's that the command line prints too; a page computes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput
from vibey.domain.settlement import JobState
from vibey.domain.titles import labels_of
from vibey.services import boards, queue, views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vibey.services.installation import Installation
    from vibey.services.view_rows import View

DEFAULT_PROJECT = "default"
PAGE = 50
LONGEST = 200
MOST = 2**62


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page: `name` is its template and its address, `tab` the entry of the navigation it belongs to.

    `parameters` are what its address may ask, `read` finds what it shows.
    """

    name: str
    title: str
    tab: str
    parameters: tuple[str, ...]
    read: Callable[[Installation, Mapping[str, str]], View]

    def asked(self, arguments: Mapping[str, str]) -> dict[str, str]:
        """Of the arguments of a request those that mean something here."""
        found = {name: arguments[name].strip() for name in self.parameters if arguments.get(name, "").strip()}
        for name, value in found.items():
            if len(value) > LONGEST:
                raise InvalidInput(name, value, f"at most {LONGEST} characters")
        return found


def whole(asked: Mapping[str, str], name: str) -> int | None:
    """A parameter that is a whole number; None when it is not given."""
    value = asked.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and int(value) < MOST):
        raise InvalidInput(name, value, "a whole number")
    return int(value)


def job_number(asked: Mapping[str, str]) -> int:
    """The job that a page is about."""
    return whole(asked, "id") or 0


def _engines(installation: Installation, asked: Mapping[str, str]) -> View:
    return boards.fleet(installation, asked.get("project", DEFAULT_PROJECT))


def _queue(installation: Installation, asked: Mapping[str, str]) -> View:
    page = queue.QueuePage(asked.get("show", queue.ALL), asked.get("project"), asked.get("after"), PAGE)
    return queue.queue(installation, page)


def _jobs(installation: Installation, asked: Mapping[str, str]) -> View:
    page = views.JobsPage(
        project=asked.get("project"),
        state=asked.get("state"),
        engine=asked.get("engine"),
        labels=labels_of([asked["label"]] if "label" in asked else []),
        search=asked.get("search"),
        before=whole(asked, "before"),
        limit=PAGE,
    )
    return views.jobs(installation, page)


def _job(installation: Installation, asked: Mapping[str, str]) -> View:
    return boards.job(installation, job_number(asked), every_run="all" in asked)


def _cap(installation: Installation, asked: Mapping[str, str]) -> View:
    return boards.spending(installation, asked.get("project", DEFAULT_PROJECT), whole(asked, "before"))


def _ledger(installation: Installation, asked: Mapping[str, str]) -> View:
    page = views.LedgerPage(
        project=asked.get("project"),
        job=whole(asked, "job"),
        kind=asked.get("kind"),
        engine=asked.get("engine"),
        before=whole(asked, "before"),
        limit=PAGE,
        public="public" in asked,
    )
    return views.ledger(installation, page)


ENGINES = Sheet("engines", "Engines", "engines", ("project",), _engines)
QUEUE = Sheet("queue", "Queue", "queue", ("show", "project", "after"), _queue)
JOBS = Sheet("jobs", "Jobs", "jobs", ("project", "state", "engine", "label", "search", "before"), _jobs)
JOB = Sheet("job", "Job", "jobs", ("id", "run", "all", "raw"), _job)
CAP = Sheet("cap", "Cap and mode", "cap", ("project", "before"), _cap)
LEDGER = Sheet("ledger", "Ledger", "ledger", ("project", "job", "kind", "engine", "before", "public"), _ledger)
TABS = (ENGINES, QUEUE, JOBS, CAP, LEDGER)
CHOICES: dict[str, Any] = {
    "states": [each.value for each in JobState],
    "kinds": sorted(views.KINDS),
    "shows": queue.SHOWN,
    "default_project": DEFAULT_PROJECT,
}
