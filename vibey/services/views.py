"""Views: the installation as people and programs see it. Plain JSON-able dictionaries with stable keys.

Every view reads the rows that admit jobs, as of one instant, and says by the database's clock which: `as_of`.
Instants are ISO 8601 in UTC, durations are seconds, shares are fractions of 1.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput, UnknownName
from vibey.domain.settlement import JobState
from vibey.domain.titles import check_labels
from vibey.services import apply, prune, view_rows
from vibey.services.absence import absent
from vibey.services.enqueue import check_word
from vibey.services.pools import MAIN, Trees
from vibey.services.purse import outside_cap, purses
from vibey.services.requirements import Serving
from vibey.services.wording import instant
from vibey.settings import ProjectPolicy
from vibey.settings.source import OVERLAID, policy_variable
from vibey.store import audit, fleet, generations, projects, views
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from vibey.domain.layer import Layer
    from vibey.services.installation import Installation
    from vibey.services.view_rows import View
    from vibey.store.database import Connection
    from vibey.store.statement import Row

ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
LIMIT = 10_000
LOOKED_THROUGH = views.LOOKED_THROUGH
DISPATCH_EVENTS = (
    Event.ENGINE_SLOT_WAIT_STARTED.value,
    Event.ENGINE_OVERFLOW_SELECTED.value,
    Event.ENGINE_OVERFLOW_RELEASED.value,
    Event.PAID_FALLBACK_SELECTED.value,
    Event.PAID_ASSIGNMENT_SELECTED.value,
    Event.ENGINE_DISPATCH_MEASURED.value,
)
KINDS = tuple(event.value for event in Event)


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Which events a page of the ledger holds; `public` leaves the dispatch events out."""

    project: str | None = None
    job: int | None = None
    kind: str | None = None
    engine: str | None = None
    before: int | None = None
    limit: int = 50
    public: bool = False


@dataclass(frozen=True, slots=True)
class JobsPage:
    """Which jobs a page of the list holds: those that have all `labels`, and `search` in their title in either case.

    `since` is the instant since which they were enqueued, or how long ago that is.
    """

    project: str | None = None
    state: str | None = None
    engine: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    search: str | None = None
    since: datetime | timedelta | None = None
    before: int | None = None
    limit: int = 20


def jobs(installation: Installation, wanted: JobsPage | None = None) -> View:
    """The newest jobs that fit: `jobs` and `next_before`, which pages on (None at the end).

    A page looks through a bounded number of jobs: it is `partial`, and `next_before` goes on from there, when it found
    fewer than its `limit` in as many.
    """
    page = JobsPage() if wanted is None else wanted
    _one_of("state", page.state, [each.value for each in JobState])
    check_labels(page.labels)
    if page.search is not None:
        check_word("search", page.search)
    _within_limit(page.limit)
    listing, looked_at = views.JOBS, views.LOOKED_AT
    if page.labels:
        listing, looked_at = views.LABELLED_JOBS, views.LABELLED_LOOKED_AT

    def read(connection: Connection) -> View:
        since = views.NOW.scalar(connection) - page.since if isinstance(page.since, timedelta) else page.since
        key, value = next(iter(page.labels.items()), (None, None))
        looked_through = {
            "project": _project_id(connection, page.project),
            "state": page.state,
            "open": page.state is not None and page.state not in ENDS,
            "key": key,
            "value": value,
            "since_id": None if since is None else views.SINCE.scalar(connection, since=since),
            "before": page.before,
        }
        rows = listing.all(
            connection,
            engine=_engine_name(connection, page.engine),
            since=since,
            search=page.search,
            labels=json.dumps(dict(page.labels)),
            limit=page.limit,
            **looked_through,
        )
        queued = {row.project for row in rows if row.state == JobState.QUEUED}
        owned = purses(connection, installation, sorted(queued))
        serving = Serving.load(connection, installation.timing.presence_ms)
        reached = None if len(rows) == page.limit else looked_at.scalar(connection, **looked_through)
        return {
            "jobs": [view_rows.listed_job(row, owned.get(row.project), serving) for row in rows],
            "next_before": _next(rows, page.limit) or reached,
            "partial": reached is not None,
        }

    return viewed(installation, read)


def job(installation: Installation, job_id: int) -> View:
    """One job with its runs, oldest first; UnknownName when there is none."""
    return viewed(installation, lambda connection: job_in(connection, installation, job_id))


def job_in(connection: Connection, installation: Installation, job_id: int) -> View:
    """What `job` shows, bar `as_of`, read in the caller's transaction."""
    row = views.JOB.first(connection, id=job_id)
    if row is None:
        raise absent(connection, job_id)
    owned = purses(connection, installation, [row.project])
    serving = Serving.load(connection, installation.timing.presence_ms)
    return {
        **view_rows.whole_job(row, owned.get(row.project), serving),
        "runs": [view_rows.run(run) for run in views.RUNS.all(connection, job=job_id)],
    }


def engines(installation: Installation) -> View:
    """Every configured engine, in declared order, and the pools that layers are on: `engines`, `pools`."""

    def read(connection: Connection) -> View:
        layers = _layers(connection, installation)
        found = _engines(connection, installation, layers)
        names = {each["name"] for each in found}
        pools = [view_rows.pool(key, on) for key, on in layers.items() if key not in names]
        return {"engines": found, "pools": pools}

    return viewed(installation, read)


def slots(installation: Installation) -> View:
    """Every slot of every engine and who holds it: `slots`; the fields of a free one are None."""
    return viewed(installation, lambda connection: {"slots": slots_in(connection, installation)})


def status(installation: Installation, project: str = "default", environ: Mapping[str, str] | None = None) -> View:
    """The whole at a glance: mode, queue, cap of one project, engines, workers, and what is kept in `database`."""

    def read(connection: Connection) -> View:
        return {
            **status_in(connection, installation, project, environ),
            "database": prune.kept(connection, installation),
        }

    return viewed(installation, read)


def slots_in(connection: Connection, installation: Installation) -> list[View]:
    """The slots that `slots` shows, read in the caller's transaction."""
    holders: dict[str, list[Row[Any]]] = {}
    for run in views.HOLDERS.all(connection):
        holders.setdefault(run.engine, []).append(run)
    found: list[View] = []
    for engine in _engine_rows(connection, installation):
        held = holders.get(engine.name, [])
        taken = [view_rows.slot(engine, number, run) for number, run in enumerate(held, start=1)]
        free = range(len(held) + 1, engine.slots + 1)
        found.extend([*taken, *(view_rows.slot(engine, number, None) for number in free)])
    return found


def status_in(
    connection: Connection,
    installation: Installation,
    project: str = "default",
    environ: Mapping[str, str] | None = None,
) -> View:
    """What `status` shows, bar `as_of` and `database`, read in the caller's transaction."""
    variables = os.environ if environ is None else environ
    projects.named(connection, project)
    purse = purses(connection, installation, [project], variables)[project]
    return {
        "project": project,
        **view_rows.mode(purse.resolved),
        **counts_in(connection),
        "cap": purse.to_json(),
        **outside_cap(connection, project, purse),
        "engines": _engines(connection, installation, _layers(connection, installation)),
        "workers": _workers(connection, installation),
        **configuration_in(connection, installation),
    }


def configuration_in(connection: Connection, installation: Installation) -> View:
    """`configuration` of what is in force by now, read in the caller's transaction."""
    return configuration(installation.in_force(connection))


def configuration(current: Installation) -> View:
    """Which `generation` an installation is under, and whether this process's file and environment say another thing.

    They also differ where nothing has been applied yet.
    """
    return {"generation": current.generation, "file_differs": apply.file_differs(current)}


def counts_in(connection: Connection) -> View:
    """How many jobs are `queued`, of them `held`, `granted` and `running`, read in the caller's transaction."""
    counts = {row.state: row.n for row in views.COUNTS.all(connection)}
    return {
        "queued": counts.get(JobState.QUEUED, 0),
        "held": views.HELD.scalar(connection),
        "granted": counts.get(JobState.GRANTED, 0),
        "running": counts.get(JobState.RUNNING, 0),
    }


def project(installation: Installation, name: str, environ: Mapping[str, str] | None = None) -> View:
    """One project's own dispatch policy, and the one in force under the environment: `policy` and `effective`.

    `sources` says where each value in force comes from; `file` holds the keys of which this process's file says
    something else than `policy`.
    """
    variables = os.environ if environ is None else environ

    def read(connection: Connection) -> View:
        found = _policy(projects.named(connection, name), variables)
        own = f"generation {generations.number(connection)}" if name == projects.DEFAULT_PROJECT else "project"
        said = ProjectPolicy.of(installation.file).to_json()
        return {
            **found,
            "sources": {key: _source(key, own, variables) for key in found["policy"]},
            "file": {key: value for key, value in said.items() if value != found["policy"][key]},
        }

    return viewed(installation, read)


def all_projects(installation: Installation, environ: Mapping[str, str] | None = None) -> View:
    """Every project, by name, with its policy: `projects`."""
    variables = os.environ if environ is None else environ

    def read(connection: Connection) -> View:
        return {"projects": [_policy(found, variables) for found in projects.every(connection)]}

    return viewed(installation, read)


def workers(installation: Installation) -> View:
    """Workers seen within the hour: `workers`, by name."""
    return viewed(installation, lambda connection: {"workers": _workers(connection, installation)})


def ledger(installation: Installation, wanted: LedgerPage) -> View:
    """A page of the ledger, newest first: `events` and `next_before`, which pages on (None at the end)."""
    _one_of("kind", wanted.kind, KINDS)
    _within_limit(wanted.limit)

    def read(connection: Connection) -> View:
        rows = views.LEDGER.all(
            connection,
            project=_project_id(connection, wanted.project),
            job=wanted.job,
            kind=wanted.kind,
            engine=_engine_name(connection, wanted.engine),
            before=wanted.before,
            hidden=list(DISPATCH_EVENTS) if wanted.public else [],
            limit=wanted.limit,
        )
        return {"events": [view_rows.event(row) for row in rows], "next_before": _next(rows, wanted.limit)}

    return viewed(installation, read)


def viewed(installation: Installation, read: Callable[[Connection], View]) -> View:
    """What `read` finds in a transaction that sees one instant and writes nothing, with `as_of`."""

    def work(connection: Connection) -> View:
        audit.SNAPSHOT.run(connection)
        now = views.NOW.scalar(connection)
        return {"as_of": instant(now), **read(connection)}

    return installation.database.run(work)


def _one_of(field: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise InvalidInput(field, value, f"one of {', '.join(known)}")


def _within_limit(limit: int) -> None:
    if not 1 <= limit <= LIMIT:
        raise InvalidInput("limit", limit, f"a whole number from 1 to {LIMIT}")


def _project_id(connection: Connection, name: str | None) -> int | None:
    return None if name is None else projects.named(connection, name).id


def _engine_name(connection: Connection, name: str | None) -> str | None:
    """The name as it is; UnknownName unless such an engine is, or once was, configured."""
    if name is not None and not views.HAS_ENGINE.scalar(connection, name=name):
        raise UnknownName("engine", name, tuple(fleet.engine_names(connection)))
    return name


def _policy(found: projects.Project, environ: Mapping[str, str]) -> View:
    own = ProjectPolicy.from_json(found.policy)
    return {"project": found.name, "policy": own.to_json(), "effective": own.overlaid(environ).to_json()}


def _source(key: str, own: str, environ: Mapping[str, str]) -> str:
    """Where a key of a policy in force comes from: the environment, where it is laid over, or the project's `own`."""
    variable = policy_variable(key)
    return f"environment {variable}" if key in OVERLAID and variable in environ else own


def _next(rows: Sequence[Row[Any]], limit: int) -> int | None:
    return rows[-1].id if len(rows) == limit else None


def _engine_rows(connection: Connection, installation: Installation) -> Sequence[Row[Any]]:
    return views.ENGINES.all(connection, presence_ms=installation.timing.presence_ms)


def _layers(connection: Connection, installation: Installation) -> dict[str, tuple[Layer, ...]]:
    """The layers in force now on engines and pools by name."""
    now: datetime = views.NOW.scalar(connection)
    return Trees.load(connection, MAIN).layers(installation.settings.windows(), int(now.timestamp() * 1000))


def _engines(connection: Connection, installation: Installation, layers: Mapping[str, tuple[Layer, ...]]) -> list[View]:
    rows = _engine_rows(connection, installation)
    selected = sum(row.selected_count for row in rows)
    expected = sum(row.expected for row in rows)
    return [view_rows.engine(row, selected, float(expected), layers.get(row.name, ())) for row in rows]


def _workers(connection: Connection, installation: Installation) -> list[View]:
    rows = views.WORKERS.all(connection, presence_ms=installation.timing.presence_ms)
    return [view_rows.worker(row) for row in rows]
