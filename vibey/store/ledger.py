"""The ledger: what happened, one line each, never changed. The database itself refuses to change or delete a line."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row


class Event(StrEnum):
    """Every kind of event the ledger holds."""

    PROJECT_CREATED = "ProjectCreated"
    PROJECT_CHANGED = "ProjectChanged"
    JOB_ENQUEUED = "JobEnqueued"
    RUN_GRANTED = "RunGranted"
    RUN_STARTED = "RunStarted"
    JOB_REQUEUED = "JobRequeued"
    JOB_SUCCEEDED = "JobSucceeded"
    JOB_FAILED = "JobFailed"
    JOB_CANCELLED = "JobCancelled"
    CANCEL_REQUESTED = "CancelRequested"
    JOB_RETRIED = "JobRetried"
    ENGINE_SLOT_WAIT_STARTED = "EngineSlotWaitStarted"
    ENGINE_OVERFLOW_SELECTED = "EngineOverflowSelected"
    ENGINE_OVERFLOW_RELEASED = "EngineOverflowReleased"
    PAID_FALLBACK_SELECTED = "PaidFallbackSelected"
    PAID_ASSIGNMENT_SELECTED = "PaidAssignmentSelected"
    ENGINE_DISPATCH_MEASURED = "EngineDispatchMeasured"
    CIRCUIT_CHANGED = "CircuitChanged"
    ENGINE_CHANGED = "EngineChanged"
    EXCLUSION_WAIVED = "ExclusionWaived"
    WORKER_CHANGED = "WorkerChanged"
    CONFIGURATION_APPLIED = "ConfigurationApplied"
    BACKUP_RESTORED = "BackupRestored"


APPEND = Statement(
    "ledger-append",
    "append one event",
    """insert into ledger (kind, project_id, job_id, run_id, engine, data)
       values (%(kind)s, %(project)s, %(job)s, %(run)s, %(engine)s, %(data)s::jsonb)""",
)
READ = Statement(
    "ledger-read",
    "the newest events that fit a filter, newest first",
    """select l.id, l.at, l.kind, p.name as project, l.job_id, l.run_id, l.engine, l.data
       from ledger l left join projects p on p.id = l.project_id
       where (%(project)s::text is null or l.project_id = (select id from projects where name = %(project)s))
         and (%(job)s::bigint is null or l.job_id = %(job)s)
         and (%(kind)s::text is null or l.kind = %(kind)s)
         and (%(engine)s::text is null or l.engine = %(engine)s)
         and (%(before)s::bigint is null or l.id < %(before)s)
       order by l.id desc limit %(limit)s""",
)


def append(
    connection: Connection,
    kind: Event,
    *,
    project: int | None = None,
    job: int | None = None,
    run: int | None = None,
    engine: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Append one event in the caller's transaction."""
    APPEND.run(
        connection,
        kind=kind.value,
        project=project,
        job=job,
        run=run,
        engine=engine,
        data=json.dumps(data or {}),
    )


def read(
    connection: Connection,
    *,
    project: str | None = None,
    job: int | None = None,
    kind: str | None = None,
    engine: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Row[Any]]:
    """The newest events that fit, newest first; `before` pages on from an event's number."""
    return list(READ.all(connection, project=project, job=job, kind=kind, engine=engine, before=before, limit=limit))
