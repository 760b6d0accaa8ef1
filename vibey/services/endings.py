"""Endings: jobs that were calls of Celery tasks, and ends of theirs the result backend has to be told of.

The protocol is told in `vibey.routed`. An ending is claimed for `CLAIM_SECONDS` and told by a program that has the app;
whatever goes wrong on the way, it is claimed again after that.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import Refused, VibeyError
from vibey.domain.settlement import JobState
from vibey.engines import routed
from vibey.services import control
from vibey.services.fleet import config_of
from vibey.store import endings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from vibey.services.installation import Installation
    from vibey.settings import EngineSettings

log = logging.getLogger("vibey.endings")

CLAIM_SECONDS = 60
LIMIT = 50


@dataclass(frozen=True, slots=True)
class Ending:
    """An end of a job: failed or cancelled, for a reason; `late` when its deadline had passed by then."""

    job_id: int
    state: str
    attempt: int
    reason: str
    late: bool
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskJob:
    """A job of one Celery call."""

    job_id: int
    state: str

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in control.ENDED

    @property
    def running(self) -> bool:
        """Whether its body has begun and not ended."""
        return self.state == JobState.RUNNING


def jobs_of(installation: Installation, task_id: str) -> list[TaskJob]:
    """The jobs of a Celery call, oldest first."""
    rows = installation.database.statement(lambda connection: endings.OF_TASK.all(connection, task=task_id))
    return [TaskJob(row.id, row.state) for row in rows]


def cancel(installation: Installation, job_id: int) -> None:
    """Cancel a job unless it has ended."""
    try:
        control.cancel(installation, job_id)
    except Refused as error:
        log.info("%s", error)


def tell(installation: Installation, names: Iterable[str]) -> int:
    """Have what is to be told of calls that these engines could run told by their apps; returns how many were."""
    served = [engine for name in names if (engine := installation.settings.engine.get(name)) and engine.app]
    by_app: dict[str, list[EngineSettings]] = {}
    for engine in served:
        by_app.setdefault(str(engine.app), []).append(engine)
    return sum(_tell_by(installation, engines) for engines in by_app.values())


def tell_here(installation: Installation, task_id: str, teller: Callable[[Ending], bool]) -> None:
    """Tell the ends of one call in this process, which has its app; the teller says whether it could."""
    for ending in _claimed(installation, task=task_id, engines=None):
        if teller(ending):
            _told(installation, [ending.job_id])


def _tell_by(installation: Installation, engines: list[EngineSettings]) -> int:
    found = _claimed(installation, task=None, engines=[engine.name for engine in engines])
    if not found:
        return 0
    try:
        told = routed.tell(config_of(engines[0]), [asdict(ending) for ending in found])
    except VibeyError as error:
        log.warning("%d ends of routed tasks are not told yet: %s", len(found), error)
        return 0
    _told(installation, told)
    return len(told)


def _claimed(installation: Installation, *, task: str | None, engines: list[str] | None) -> list[Ending]:
    rows = installation.database.statement(
        lambda connection: endings.CLAIM.all(connection, task=task, engines=engines, limit=LIMIT, claim_s=CLAIM_SECONDS)
    )
    return [Ending(row.id, row.state, row.attempt, row.reason, row.late, row.payload) for row in rows]


def _told(installation: Installation, ids: list[int]) -> None:
    installation.database.statement(lambda connection: endings.TOLD.run(connection, ids=ids))
