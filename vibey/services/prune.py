"""Prune: remove jobs that ended long ago, with their runs and decisions, so that the database stays in bounds.

`keep_days` of the settings says how long ago; never less than what a measurement of any project looks back on. In small
transactions, in the order `vibey.store.horizon` tells, as far as the time allowed reaches; the next round goes on. What
is asked about later is answered from what was kept, or with the instant the record begins.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.rotation import UNIT
from vibey.services import modes
from vibey.services.wording import instant
from vibey.store import horizon, projects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from vibey.services.installation import Installation
    from vibey.store.database import Connection

log = logging.getLogger("vibey.prune")

PAGE_JOBS = 1_000
PAGE_PASSES = 100
# A round of the beat's is at work for one part in a hundred of the time between two.
ROUND_SECONDS = 6.0
HOURS_A_DAY = 24


@dataclass(slots=True)
class Pruned:
    """What a round removed; `done` unless time ran out, or someone else prunes."""

    jobs: int = 0
    runs: int = 0
    passes: int = 0
    folded: int = 0
    done: bool = False

    def to_json(self) -> dict[str, Any]:
        """As one object for programs."""
        return {"jobs": self.jobs, "runs": self.runs, "passes": self.passes, "done": self.done}


def prune(
    installation: Installation, *, seconds: float | None = None, environ: Mapping[str, str] | None = None
) -> Pruned:
    """Remove what is older than the installation keeps; as far as `seconds` reach, or all of it."""
    hours = kept_hours(installation, environ)
    if hours is None:
        return Pruned(done=True)
    cutoff = installation.database.statement(lambda connection: horizon.CUTOFF.scalar(connection, hours=hours))
    ends_at = None if seconds is None else time.monotonic() + seconds
    found = Pruned()
    steps = _Round(installation, cutoff, ends_at, found)
    found.done = steps.fold() and steps.remove() and steps.sweep()
    if found.jobs or found.passes:
        log.info("removed %d jobs with %d runs, and %d passes", found.jobs, found.runs, found.passes)
    return found


def kept_hours(installation: Installation, environ: Mapping[str, str] | None = None) -> int | None:
    """For how long ended jobs are kept, in hours; None for ever."""
    days = installation.settings.services.keep_days
    if days == 0:
        return None

    def windows(connection: Connection) -> list[int]:
        names = [each.name for each in projects.every(connection)]
        found = modes.standings(connection, names, environ).values()
        return [each.policy.auto_window_hours for each in found if each.policy is not None]

    return max([days * HOURS_A_DAY, *installation.database.run(windows)])


def kept(connection: Connection, installation: Installation) -> dict[str, Any]:
    """How large the database is, and what is kept of the past: for `vibey status`, read in the caller's transaction."""
    reach = horizon.READ.all(connection)[0]
    return {
        "bytes": horizon.SIZE.scalar(connection),
        "keep_days": installation.settings.services.keep_days,
        "removed_jobs": reach.jobs,
        "record_begins": instant(reach.before),
    }


def record_begins(connection: Connection) -> datetime | None:
    """The instant before which ended jobs are removed; None while none was."""
    before: datetime | None = horizon.READ.all(connection)[0].before
    return before


class _Round:
    """The three steps of a round; each says whether it came to its end."""

    def __init__(self, installation: Installation, cutoff: datetime, ends_at: float | None, found: Pruned) -> None:
        self._run: Callable[..., Any] = installation.database.run
        self._cutoff = cutoff
        self._ends_at = ends_at
        self._found = found

    def fold(self) -> bool:
        while self._in_time():
            folded = self._run(lambda connection: horizon.fold(connection, self._cutoff, UNIT, PAGE_PASSES))
            if not folded:
                return folded is not None
            self._found.folded += folded
        return False

    def remove(self) -> bool:
        after = 0
        while self._in_time():
            row = self._run(lambda connection, after=after: horizon.remove(connection, self._cutoff, after, PAGE_JOBS))
            if row is None:
                return False
            self._found.jobs += row.jobs
            self._found.runs += row.runs
            if not row.aged:
                return True
            after = row.reached
        return False

    def sweep(self) -> bool:
        after = 0
        while self._in_time():
            row = self._run(lambda connection, after=after: horizon.sweep(connection, after, PAGE_PASSES))
            if row is None:
                return False
            self._found.passes += row.passes
            if row.reached is None:
                return True
            after = row.reached
        return False

    def _in_time(self) -> bool:
        return self._ends_at is None or time.monotonic() < self._ends_at
