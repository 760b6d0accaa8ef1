"""Boards: what a page shows together, read as of one instant, by the readers that the commands use one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.services import measure, view_rows, views
from vibey.services.explain import explained_in
from vibey.services.purse import purses
from vibey.services.wording import instant
from vibey.store import cap, projects
from vibey.store import fleet as store

if TYPE_CHECKING:
    from vibey.services.installation import Installation
    from vibey.services.view_rows import View
    from vibey.store.database import Connection
    from vibey.store.statement import Row

UNITS = 100


def names(installation: Installation) -> View:
    """What filters offer: `projects` and `engines` by name."""

    def read(connection: Connection) -> View:
        return {"projects": _projects(connection), "engines": store.engine_names(connection)}

    return views.viewed(installation, read)


def fleet(installation: Installation, project: str = "default") -> View:
    """What `vibey status` and `vibey slots` show, as of one instant: the keys of both."""

    def read(connection: Connection) -> View:
        return {
            **views.status_in(connection, installation, project),
            "slots": views.slots_in(connection, installation),
        }

    return views.viewed(installation, read)


def spending(installation: Installation, project: str = "default", before: int | None = None) -> View:
    """A project's cap today with its units, and its mode with the evidence: `cap`, `units`, `next_before`, `mode`.

    Where projects share one cap the units are those of all of them. A unit has the event that took it, what it says of
    the moment, and `released_at` with `released` where it was given back; those without one are what the cap counts.
    """

    def read(connection: Connection) -> View:
        projects.named(connection, project)
        purse = purses(connection, installation, [project])[project]
        owners = None if purse.resolved.scope == "installation" else [project]
        units = cap.units(connection, purse.day, owners, before=before, limit=UNITS)
        mode = measure.mode_in(connection, installation, project)
        return {
            "project": project,
            "cap": purse.to_json(),
            "units": [_unit(row) for row in units],
            "next_before": units[-1].id if len(units) == UNITS else None,
            "mode": {key: value for key, value in mode.items() if key != "as_of"},
        }

    return views.viewed(installation, read)


def job(installation: Installation, job_id: int, *, every_run: bool = False) -> View:
    """What `vibey job` shows of a job, and as `explained` what `vibey explain` does, as of one instant."""

    def read(connection: Connection) -> View:
        explained = explained_in(connection, installation, job_id, every_run=every_run)
        return {**views.job_in(connection, installation, job_id), "explained": explained}

    return views.viewed(installation, read)


def _unit(row: Row[Any]) -> View:
    return view_rows.event(row) | {
        "job_state": row.job_state,
        "run_state": row.run_state,
        "cost_usd": None if row.cost_usd is None else float(row.cost_usd),
        "released_at": instant(row.released_at),
        "released": row.released,
    }


def _projects(connection: Connection) -> list[str]:
    return [each.name for each in projects.every(connection)]
