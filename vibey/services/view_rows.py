"""View rows: the JSON-able shape of each thing a view shows. The keys are a contract; see `vibey.services.views`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.domain.engine import MILLION
from vibey.services.remark import layers_json, remark
from vibey.services.wording import engine_detail, instant, missing_slots, reason_of
from vibey.store.engines import circuit_of
from vibey.tracing import trace_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vibey.domain.layer import Layer
    from vibey.services.modes import Resolved
    from vibey.services.purse import Purse
    from vibey.services.requirements import Serving
    from vibey.store.statement import Row

View = dict[str, Any]


def _any_job(row: Row[Any], purse: Purse | None, serving: Serving) -> View:
    """What a job's views have in common."""
    return {
        "job_id": row.id,
        "project": row.project,
        "pool": row.pool,
        "title": row.title,
        "labels": row.labels,
        "state": row.state,
        "priority": row.priority,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "engine": row.engine,
        "reason": reason_of(row, purse, serving),
    }


def listed_job(row: Row[Any], purse: Purse | None, serving: Serving) -> View:
    """A job as lists show it; its project's `purse` and the fleet, as `serving`, say why it waits."""
    return _any_job(row, purse, serving) | {
        "created_at": instant(row.created_at),
        "ended_at": instant(row.ended_at),
        "age_seconds": round(row.age_seconds, 3),
    }


def whole_job(row: Row[Any], purse: Purse | None, serving: Serving) -> View:
    """A job with everything it carries, its runs aside; `purse` and `serving` as for `listed_job`."""
    return _any_job(row, purse, serving) | {
        "result": row.result,
        "effort": Effort(row.effort).label,
        "effort_now": Effort(row.effort_now).label,
        "capabilities": list(row.capabilities),
        "engines": list(row.pinned),
        "exclude": list(row.excluded),
        "workspace_engines": None if row.workspace is None else list(row.workspace),
        "avoided": list(row.avoided),
        "handed_off": list(row.handed_off),
        "session": row.session,
        "idempotency_key": row.idempotency_key,
        "task_id": row.task_id,
        "refunds": row.refunds,
        "handoffs": row.handoffs,
        "payload": row.payload,
        "trace_id": trace_of(row.traceparent),
        "run_id": row.run_id,
        "created_at": instant(row.created_at),
        "not_before": instant(row.not_before),
        "held_at": instant(row.held_at),
        "deadline_at": instant(row.deadline_at),
        "cancel_requested_at": instant(row.cancel_requested_at),
        "ended_at": instant(row.ended_at),
    }


def run(row: Row[Any]) -> View:
    """A run of a job."""
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
        "trace_id": trace_of(row.traceparent),
    }


def engine(row: Row[Any], selected: int, expected: float, layers: Iterable[Layer]) -> View:
    """An engine; `selected` and `expected` are the sums its shares are fractions of, `layers` those on it now."""
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
        "configured": row.configured,
        "worker": row.offered is not None,
        "offered": row.offered,
        "restart": missing_slots(row) if (row.offered or 0) < row.slots and row.offered is not None else "",
        "enabled": row.enabled,
        "paused": row.paused,
        "next_probe_at": instant(row.probe_at),
        "resets_at": instant(row.resets_at),
        "detail": engine_detail(row, circuit),
        "remark": remark(row, circuit, others_serve=selected > row.selected_count),
        "demoted_until": instant(row.demoted_until) if row.demoted else None,
        "selected_at": instant(row.selected_at),
        "layers": layers_json(layers),
    }


def pool(key: str, layers: Iterable[Layer]) -> View:
    """A pool that layers are in force on."""
    return {"name": key, "layers": layers_json(layers)}


def slot(of: Row[Any], number: int, held: Row[Any] | None) -> View:
    """A slot of an engine and the run that holds it, if one does."""
    row: Any = held if held is not None else _Nothing()
    return {
        "engine": of.name,
        "tier": of.tier,
        "slot": number,
        "run_id": row.id,
        "job_id": row.job_id,
        "project": row.project,
        "state": row.state,
        "attempt": row.attempt,
        "holder": row.holder,
        "host": row.host,
        "pid": row.pid,
        "granted_at": instant(row.granted_at),
        "age_seconds": _rounded(row.age_seconds),
        "renewed_at": instant(row.renewed_at),
        "renewed_seconds": _rounded(row.renewed_seconds),
        "lease_left_seconds": _rounded(row.lease_seconds),
    }


class _Nothing:
    """Stands for the run of a free slot: every field of it is None."""

    def __getattr__(self, _: str) -> None:
        return None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def mode(resolved: Resolved) -> View:
    """The mode in force, where it comes from, and why."""
    return {
        "mode": resolved.policy.mode.value,
        "mode_source": resolved.source,
        "mode_reason": resolved.reason,
    }


def event(row: Row[Any]) -> View:
    """A line of the ledger."""
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


def _slots_offered(row: Row[Any]) -> dict[str, int | None]:
    """How many runs of each engine a worker can have at work; None for as many as the engine may have."""
    offered = row.slots or [None] * len(row.engines)
    return dict(zip(row.engines, offered, strict=False))


def worker(row: Row[Any]) -> View:
    """A worker seen of late."""
    return {
        "name": row.name,
        "host": row.host,
        "pid": row.pid,
        "engines": list(row.engines),
        "concurrency": row.concurrency,
        "slots": _slots_offered(row),
        "generation": row.generation,
        "version": row.version,
        "problems": dict(row.problems),
        "alive": row.alive,
        "started_at": instant(row.started_at),
        "seen_at": instant(row.seen_at),
    }
