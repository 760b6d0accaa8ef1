"""Views: the installation as people and programs see it. Plain JSON-able dictionaries with stable keys.

Every view reads the rows that admit jobs, in one transaction, and says by the database's clock as of when: `as_of`.
Instants are ISO 8601 in UTC, durations are seconds, shares are fractions of 1.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.domain.engine import MILLION
from vibey.domain.errors import InvalidInput, UnknownName
from vibey.domain.offer import Mode
from vibey.domain.settlement import JobState
from vibey.services.wording import engine_detail, instant, reason_of
from vibey.settings import ProjectPolicy
from vibey.store import fleet, projects, views
from vibey.store.engines import circuit_of
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Row

    from vibey.services.installation import Installation

View = dict[str, Any]

ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
LIMIT = 10_000
DISPATCH_EVENTS = (
    "EngineSlotWaitStarted",
    "EngineOverflowSelected",
    "EngineOverflowReleased",
    Event.PAID_FALLBACK_SELECTED.value,
    "EngineDispatchMeasured",
)
KINDS = tuple(dict.fromkeys([*(event.value for event in Event), *DISPATCH_EVENTS]))


def jobs(
    installation: Installation,
    *,
    project: str | None = None,
    state: str | None = None,
    engine: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> View:
    """The newest jobs that fit: `jobs` and `next_before`, which pages on (None at the end)."""
    _one_of("state", state, [each.value for each in JobState])
    _within_limit(limit)

    def read(connection: Connection) -> View:
        rows = views.JOBS.all(
            connection,
            project=_project_id(connection, project),
            state=state,
            open=state is not None and state not in ENDS,
            engine=_engine_name(connection, engine),
            before=before,
            limit=limit,
        )
        return {"jobs": [_listed(row) for row in rows], "next_before": _next(rows, limit)}

    return _viewed(installation, read)


def job(installation: Installation, job_id: int) -> View:
    """One job with its runs, oldest first; UnknownName when there is none."""

    def read(connection: Connection) -> View:
        row = views.JOB.first(connection, id=job_id)
        if row is None:
            raise UnknownName("job", job_id, ("see: vibey jobs",))
        return {**_whole(row), "runs": [_run(run) for run in views.RUNS.all(connection, job=job_id)]}

    return _viewed(installation, read)


def engines(installation: Installation) -> View:
    """Every configured engine: `engines`, in declared order."""
    return _viewed(installation, lambda connection: {"engines": _engines(connection, installation)})


def slots(installation: Installation) -> View:
    """Every slot of every engine and who holds it: `slots`; the fields of a free one are None."""

    def read(connection: Connection) -> View:
        holders: dict[str, list[Row[Any]]] = {}
        for run in views.HOLDERS.all(connection):
            holders.setdefault(run.engine, []).append(run)
        found: list[View] = []
        for engine in _engine_rows(connection, installation):
            held = holders.get(engine.name, [])
            taken = [_slot(engine, number, run) for number, run in enumerate(held, start=1)]
            free = range(len(held) + 1, engine.slots + 1)
            found.extend([*taken, *(_slot(engine, number, None) for number in free)])
        return {"slots": found}

    return _viewed(installation, read)


def status(
    installation: Installation, project: str = "default", environ: Mapping[str, str] | None = None
) -> View:
    """The whole at a glance: mode, queue, cap of one project, engines and workers."""
    variables = os.environ if environ is None else environ

    def read(connection: Connection) -> View:
        found = projects.named(connection, project)
        policy = ProjectPolicy.from_json(found.policy).overlaid(variables)
        counts = {row.state: row.n for row in views.COUNTS.all(connection)}
        return {
            "project": project,
            **_mode(policy.mode),
            "queued": counts.get(JobState.QUEUED, 0),
            "held": 0,
            "granted": counts.get(JobState.GRANTED, 0),
            "running": counts.get(JobState.RUNNING, 0),
            "cap": _cap(connection, installation, found.id, policy.paid_daily_cap),
            "engines": _engines(connection, installation),
            "workers": _workers(connection, installation),
        }

    return _viewed(installation, read)


def workers(installation: Installation) -> View:
    """Workers seen within the hour: `workers`, by name."""
    return _viewed(installation, lambda connection: {"workers": _workers(connection, installation)})


def ledger(
    installation: Installation,
    *,
    project: str | None = None,
    job: int | None = None,
    kind: str | None = None,
    engine: str | None = None,
    before: int | None = None,
    limit: int = 50,
    public: bool = False,
) -> View:
    """A page of the ledger, newest first: `events` and `next_before`; `public` leaves the dispatch events out."""
    _one_of("kind", kind, KINDS)
    _within_limit(limit)

    def read(connection: Connection) -> View:
        rows = views.LEDGER.all(
            connection,
            project=_project_id(connection, project),
            job=job,
            kind=kind,
            engine=_engine_name(connection, engine),
            before=before,
            hidden=list(DISPATCH_EVENTS) if public else [],
            limit=limit,
        )
        return {"events": [_event(row) for row in rows], "next_before": _next(rows, limit)}

    return _viewed(installation, read)


def _viewed(installation: Installation, read: Callable[[Connection], View]) -> View:
    def work(connection: Connection) -> View:
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


def _next(rows: Sequence[Row[Any]], limit: int) -> int | None:
    return rows[-1].id if len(rows) == limit else None


def _listed(row: Row[Any]) -> View:
    return {
        "job_id": row.id,
        "project": row.project,
        "pool": row.pool,
        "state": row.state,
        "priority": row.priority,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "engine": row.engine,
        "reason": reason_of(row),
        "created_at": instant(row.created_at),
        "ended_at": instant(row.ended_at),
        "age_seconds": round(row.age_seconds, 3),
    }


def _whole(row: Row[Any]) -> View:
    return {
        "job_id": row.id,
        "project": row.project,
        "pool": row.pool,
        "state": row.state,
        "priority": row.priority,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "engine": row.engine,
        "reason": reason_of(row),
        "result": row.result,
        "effort": Effort(row.effort).label,
        "effort_now": Effort(row.effort_now).label,
        "capabilities": list(row.capabilities),
        "exclude": list(row.excluded),
        "avoided": list(row.avoided),
        "session": row.session,
        "idempotency_key": row.idempotency_key,
        "refunds": row.refunds,
        "handoffs": row.handoffs,
        "payload": row.payload,
        "run_id": row.run_id,
        "created_at": instant(row.created_at),
        "not_before": instant(row.not_before),
        "deadline_at": instant(row.deadline_at),
        "cancel_requested_at": instant(row.cancel_requested_at),
        "ended_at": instant(row.ended_at),
    }


def _run(row: Row[Any]) -> View:
    return {
        "run_id": row.id,
        "engine": row.engine,
        "why": row.why,
        "state": row.state,
        "attempt": row.attempt,
        "granted_at": instant(row.granted_at),
        "started_at": instant(row.started_at),
        "renewed_at": instant(row.renewed_at),
        "lease_expires_at": instant(row.lease_expires_at),
        "ended_at": instant(row.ended_at),
        "account": row.account,
        "host": row.host,
        "pid": row.pid,
        "failure_class": row.failure_class,
        "detail": row.detail,
        "cost_usd": None if row.cost_usd is None else float(row.cost_usd),
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
    }


def _engine_rows(connection: Connection, installation: Installation) -> Sequence[Row[Any]]:
    return views.ENGINES.all(connection, presence_ms=installation.timing.presence_ms)


def _engines(connection: Connection, installation: Installation) -> list[View]:
    rows = _engine_rows(connection, installation)
    selected = sum(row.selected_count for row in rows)
    expected = sum(row.expected for row in rows)
    return [_engine(row, selected, float(expected)) for row in rows]


def _engine(row: Row[Any], selected: int, expected: float) -> View:
    circuit = circuit_of(row, row.account).phase(row.now_ms).value
    return {
        "name": row.name,
        "tier": row.tier,
        "slots": row.slots,
        "in_use": row.in_use,
        "circuit": circuit,
        "weight": row.weight / MILLION,
        "expected_share": float(row.expected) / expected if expected else 0.0,
        "selected_count": row.selected_count,
        "share": row.selected_count / selected if selected else 0.0,
        "kind": row.kind,
        "account": row.account,
        "worker": row.staffed,
        "enabled": row.enabled,
        "paused": row.paused,
        "next_probe_at": instant(row.probe_at),
        "detail": engine_detail(row, circuit),
    }


def _slot(engine: Row[Any], number: int, run: Row[Any] | None) -> View:
    free = run is None
    return {
        "engine": engine.name,
        "tier": engine.tier,
        "slot": number,
        "run_id": None if free else run.id,
        "job_id": None if free else run.job_id,
        "project": None if free else run.project,
        "state": None if free else run.state,
        "attempt": None if free else run.attempt,
        "host": None if free else run.host,
        "pid": None if free else run.pid,
        "granted_at": None if free else instant(run.granted_at),
        "age_seconds": None if free else round(run.age_seconds, 3),
        "renewed_at": None if free else instant(run.renewed_at),
        "lease_left_seconds": None if free else round(run.lease_seconds, 3),
    }


def _mode(configured: str) -> View:
    if configured == Mode.SINGLETON:
        source, why = "declared", "singleton is configured"
    else:
        source, why = "fallback", f"{configured} is configured, but this version dispatches in singleton only"
    return {"mode": Mode.SINGLETON.value, "mode_source": source, "mode_reason": why}


def _cap(connection: Connection, installation: Installation, project_id: int, limit: int) -> View:
    scope = installation.settings.engines.paid_daily_cap_scope
    found = views.CAP_USED.first(connection, project=project_id if scope == "project" else None)
    used = found.used if found else 0
    day = found.utc_day if found else None
    return {"limit": limit, "used": used, "remaining": max(0, limit - used), "utc_day": day, "scope": scope}


def _workers(connection: Connection, installation: Installation) -> list[View]:
    return [
        {
            "name": row.name,
            "host": row.host,
            "pid": row.pid,
            "engines": list(row.engines),
            "concurrency": row.concurrency,
            "alive": row.alive,
            "started_at": instant(row.started_at),
            "seen_at": instant(row.seen_at),
        }
        for row in views.WORKERS.all(connection, presence_ms=installation.timing.presence_ms)
    ]


def _event(row: Row[Any]) -> View:
    return {
        "id": row.id,
        "at": instant(row.at),
        "kind": row.kind,
        "project": row.project,
        "job_id": row.job_id,
        "run_id": row.run_id,
        "engine": row.engine,
        "data": row.data,
    }
