"""Wording: the sentences people read about a job or an engine, made from the facts that admit jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vibey.domain.offer import WaitReason
from vibey.domain.settlement import JobState

if TYPE_CHECKING:
    from vibey.store.statement import Row

NOT_LOOKED_AT = "not looked at yet"
WAITS = {
    WaitReason.NO_ELIGIBLE_ENGINE: "no engine may serve it now: see vibey engines",
    WaitReason.SLOTS_FULL: "every engine that may serve it is full",
    WaitReason.NO_WORKER: "no live worker serves an engine it may use: run vibey up, or start a worker",
}


def instant(value: datetime | None) -> str | None:
    """An instant as ISO 8601 in UTC, to the millisecond; None stays None."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def reason_of(job: Row[Any]) -> str:
    """Why a job is where it is; the row carries the job's columns and its group's state as `group_reason`."""
    if job.state == JobState.QUEUED:
        return _queued(job)
    stopping = "; asked to stop" if job.cancel_requested_at is not None else ""
    if job.state == JobState.GRANTED:
        return f"has a slot on {job.engine} and waits for its worker to start it{stopping}"
    if job.state == JobState.RUNNING:
        return f"running on {job.engine}{stopping}"
    return str(job.reason)


def _queued(job: Row[Any]) -> str:
    if job.not_before is not None:
        return f"backing off until {instant(job.not_before)} after: {job.reason or 'a failed attempt'}"
    if job.group_reason is None:
        return NOT_LOOKED_AT
    waits = WAITS.get(job.group_reason, str(job.group_reason).replace("_", " "))
    return f"{waits} (before that: {job.reason})" if job.reason else waits


def engine_detail(engine: Row[Any], circuit: str) -> str:
    """What keeps an engine from being picked, first things first; empty when nothing does."""
    until = f", next trial {instant(engine.probe_at)}" if engine.probe_at is not None else ""
    repair = "" if until else f"; run: vibey engine reset {engine.name}"
    rules = (
        (not engine.enabled, "disabled in the configuration"),
        (engine.paused, f"paused; run: vibey engine resume {engine.name}"),
        (not engine.installed, f"not installed: {engine.detail}"),
        (not engine.conformant, f"misconfigured: {engine.detail}"),
        (not engine.login_ok, f"login refused: {engine.detail}"),
        (circuit != "closed", f"{str(engine.open_reason).replace('_', ' ')}{until}{repair}"),
        (engine.busy, "its server says it is busy"),
        (not engine.staffed, "no live worker serves it"),
    )
    return next((text.removesuffix(": ") for applies, text in rules if applies), engine.detail)
