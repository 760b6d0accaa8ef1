"""Queue: what waits, why, and when each could start at the earliest: the groups, and a page of jobs in queue order.

Jobs that ask alike wait for the same reason and stand before the same future, so groups tell the whole queue in a few
lines, however long it is. A held job is one whose group is held and whose first hold is written: the very jobs that
`vibey status` counts as held; every other due job is waiting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput
from vibey.services import starts, view_rows, views
from vibey.services.outlook import Outlook
from vibey.services.pools import Trees
from vibey.services.purse import purses
from vibey.services.requirements import Serving
from vibey.services.wording import HELD, instant
from vibey.store import projects
from vibey.store import queue as rows
from vibey.store.queue import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vibey.services.installation import Installation
    from vibey.services.purse import Purse
    from vibey.services.view_rows import View
    from vibey.store.database import Connection
    from vibey.store.statement import Row

ALL, WAITING, HELD_ONLY, BACKOFF = "all", "waiting", "held", "backoff"
SHOWN = (ALL, WAITING, HELD_ONLY, BACKOFF)
GROUPS = 50
LIMIT = 500
POSITION_LIMIT = 1000
_PLACE = re.compile(r"(-?\d{1,18})\.(\d{1,18})")


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Which jobs a page shows: `show` is one of `SHOWN`, `after` the `next_after` of the page before."""

    show: str = ALL
    project: str | None = None
    after: str | None = None
    limit: int = 50


def queue(installation: Installation, wanted: QueuePage) -> View:
    """A page of the queue.

    `queued` are `held`, `waiting` or `backing_off`, all counts of jobs; `groups` of due jobs are the largest, each told
    by its first job, and `group_count` is how many there are; `jobs` are in queue order, those in backoff by its end;
    `next_after` pages on (None at the end). UnknownName for a project, InvalidInput for anything else that is not
    understood.
    """
    if wanted.show not in SHOWN:
        raise InvalidInput("show", wanted.show, f"one of {', '.join(SHOWN)}")
    if not 1 <= wanted.limit <= LIMIT:
        raise InvalidInput("limit", wanted.limit, f"a whole number from 1 to {LIMIT}")
    after = _place(wanted.after)

    def read(connection: Connection) -> View:
        groups = rows.groups(connection, GROUPS)
        page = _page(connection, wanted, after)
        told = _Told.of(connection, installation, [*groups, *page])
        counts = views.counts_in(connection)
        backing_off = rows.backoffs(connection)
        return {
            "queued": counts["queued"],
            "held": counts["held"],
            "waiting": counts["queued"] - counts["held"] - backing_off,
            "backing_off": backing_off,
            "group_count": groups[0].groups if groups else 0,
            "groups": [told.group(row) for row in groups],
            "jobs": [told.job(row) for row in page],
            "next_after": _next(wanted, page),
        }

    return views.viewed(installation, read)


def position(installation: Installation, job_id: int) -> int | None:
    """The place of a due job in the queue order of its pool, from 1; above `POSITION_LIMIT` it is no longer exact.

    None for a job that is not queued, or that is not to start before a later instant.
    """
    before = installation.database.statement(
        lambda connection: rows.jobs_before(connection, job_id, POSITION_LIMIT),
    )
    return None if before is None else before + 1


def _page(connection: Connection, wanted: QueuePage, after: Place | None) -> Sequence[Row[Any]]:
    project = None if wanted.project is None else projects.named(connection, wanted.project).id
    if wanted.show == BACKOFF:
        return rows.backing_off(connection, project=project, after=after, limit=wanted.limit)
    held = None if wanted.show == ALL else wanted.show == HELD_ONLY
    return rows.due(connection, project=project, held=held, after=after, limit=wanted.limit)


def _place(text: str | None) -> Place | None:
    if text is None:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidInput("after", text, "the next_after of a page")
    return Place(int(found[1]), int(found[2]))


def _next(wanted: QueuePage, page: Sequence[Row[Any]]) -> str | None:
    if len(page) < wanted.limit:
        return None
    last = page[-1]
    value = last.not_before_us if wanted.show == BACKOFF else last.standing
    return f"{value}.{last.id}"


@dataclass(frozen=True, slots=True)
class _Told:
    """Tells queued jobs, with one reading of the world for each pool they are in."""

    purses: Mapping[str, Purse]
    known: Mapping[str, starts.Known]
    serving: Serving

    @classmethod
    def of(cls, connection: Connection, installation: Installation, found: Sequence[Row[Any]]) -> _Told:
        owned = purses(connection, installation, sorted({row.project for row in found}))
        known: dict[str, starts.Known] = {}
        for pool in sorted({row.pool for row in found}):
            asked = [starts.asked(row) for row in found if row.pool == pool]
            outlook = Outlook.glance(connection, installation, Trees.load(connection, pool), owned)
            outlook = outlook.recalling(connection, [each.session for each in asked])
            known[pool] = starts.Known.of(connection, outlook.world, owned)
        return cls(owned, known, Serving.load(connection, installation.timing.presence_ms))

    def job(self, row: Row[Any]) -> View:
        """A job as lists show it, with its hold, backoff and deadline, and its earliest known start."""
        return view_rows.listed_job(row, self.purses.get(row.project), self.serving) | {
            "held": row.group_reason == HELD and row.held_at is not None,
            "held_at": instant(row.held_at),
            "not_before": instant(row.not_before),
            "deadline_at": instant(row.deadline_at),
            "earliest": self.known[row.pool].earliest(starts.asked(row), row),
        }

    def group(self, row: Row[Any]) -> View:
        """A group by its first job: what its jobs ask, how many there are, and why they wait since when."""
        return {
            "pool": row.pool,
            "project": row.project,
            "effort": Effort(row.effort_now).label,
            "capabilities": _names(row.capabilities),
            "engines": _names(row.pinned),
            "exclude": _names([*row.excluded, *row.avoided, *row.handed_off]),
            "workspace_engines": None if row.workspace is None else _names(row.workspace),
            "jobs": row.jobs,
            "held_jobs": row.held_jobs if row.group_reason == HELD else 0,
            "since": instant(row.group_since),
            "first_held_at": instant(row.first_held_at),
            "first": self.job(row),
        }


def _names(values: Iterable[str]) -> list[str]:
    return sorted(set(values))
