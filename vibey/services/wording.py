"""Wording: the sentences people read about a job or an engine, made from the facts that admit jobs."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from vibey.domain.offer import Mode, WaitReason
from vibey.domain.settlement import JobState
from vibey.services.display import lasting, many
from vibey.services.requirements import some
from vibey.store.jobs import requirement_of

if TYPE_CHECKING:
    from vibey.services.purse import Purse
    from vibey.services.requirements import Serving
    from vibey.store.statement import Row

HELD = "held"
NOT_LOOKED_AT = "not looked at yet"
# A lease is renewed each third of its length; beyond this part of it a renewal has been missed.
SILENT_PART = 0.5
IN_TURN = "in turn: jobs before it take what comes free"
NO_WORKER = "no live worker serves an engine it may use"
UNSERVED = "no live worker serves it"
START_WORKER = "run vibey up, or start one (celery -A vibey worker)"
CORRECT_FILE = "correct the file there, or put it in force: vibey apply"
WAITS_FOR_EVER = (
    "no configured engine can serve what it asks: apply a configuration that has one, or cancel the job; "
    "vibey explain shows what each engine lacks"
)
WAITS: dict[str, str] = {
    HELD: "held: every local slot it may use is in use, and overflow could follow",
    WaitReason.CAP_SPENT: "only paid engines may serve it now, and the day's paid cap is spent",
    WaitReason.NO_ELIGIBLE_ENGINE: "no engine may serve it now: see vibey engines",
    WaitReason.SLOTS_FULL: "every engine that may serve it is full",
    WaitReason.POOL_TIER_FULL: 'a better pool tier is full, and its pool waits for it (when_full = "wait")',
    WaitReason.NO_SUCH_POOL: "its pool is configured no more: configure it again (vibey apply), or cancel the job",
    WaitReason.NO_WORKER: f"{NO_WORKER}: vibey doctor shows why",
    WaitReason.FALLBACK_NOT_ALLOWED: 'no local engine may serve it now, and paid_fallback = "never" keeps it from paid '
    "ones: see vibey engines",
}


def instant(value: datetime | None) -> str | None:
    """An instant as ISO 8601 in UTC, to the millisecond; None stays None."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_words(value: datetime) -> str:
    """An instant as sentences have it, in the form of the tables: `2026-03-01 14:05:09 UTC`."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def reason_of(job: Row[Any], purse: Purse | None, serving: Serving) -> str:
    """Why a job is where it is.

    The row carries the job's columns, what it asks among them, its group's state as `group_reason`, and as `looked_at`
    whether a tick has come since it was due. `purse` is its project's; it may be None for a job that is not queued.
    `serving` is the fleet as it is now: what a router last wrote of the group is old where no worker is left to route.
    """
    if job.state == JobState.QUEUED:
        return _queued(job, purse, serving)
    stopping = "; asked to stop" if job.cancel_requested_at is not None else ""
    if job.state == JobState.GRANTED:
        return f"has a slot on {job.engine} and waits for its worker to start it{stopping}"
    if job.state == JobState.RUNNING:
        return f"running on {job.engine}{_silence(job)}{stopping}"
    return str(job.reason)


def _silence(job: Row[Any]) -> str:
    """For how long the holder of a running job's lease has not renewed it, where a healthy one would have."""
    if job.silent_seconds is None or not 0 < job.lease_length_seconds * SILENT_PART <= job.silent_seconds:
        return ""
    silent = f", but its worker has been silent for {lasting(job.silent_seconds)}"
    left = job.lease_length_seconds - job.silent_seconds
    if left > 0:
        return f"{silent}; it counts as lost in {lasting(left)} unless it reports"
    # After a start, or an outage, none is ended before a whole lease has passed.
    wait = lasting(job.lease_length_seconds)
    return (
        f"{silent}; unless it reports, the run is ended as lost and the job queued again, {wait} after vibey up at most"
    )


def _queued(job: Row[Any], purse: Purse | None, serving: Serving) -> str:
    if job.not_before is not None and not job.reason:
        return f"asked not to start before {in_words(job.not_before)}"
    if job.not_before is not None:
        return f"backing off until {in_words(job.not_before)} after: {job.reason}"
    waits = _unserved(job, serving) or _waits(job, purse)
    return f"{waits} (before that: {job.reason})" if job.reason else waits


def _unserved(job: Row[Any], serving: Serving) -> str:
    """Why no engine can take a job that is due, found on the fleet as it is now; empty where one could."""
    requirement = requirement_of(job)
    if job.group_reason == WaitReason.NO_SUCH_POOL:
        return ""
    if not serving.could(requirement):
        return _nowhere(job, WAITS_FOR_EVER)
    names = serving.without_worker(requirement)
    if not names:
        return ""
    problems = [serving.problems[name] for name in names if name in serving.problems]
    if not problems:
        return f"{NO_WORKER} ({some(names)}): {START_WORKER}"
    remedy = max(map(unserved_remedy, problems))
    return f"{NO_WORKER} ({some(names)}): {some(problems)}{f'; {remedy}' if remedy else ''}"


def unserved_remedy(problem: str) -> str:
    """What to do about a problem that keeps a live worker from serving an engine; empty where the problem says it."""
    return "" if "; restart " in problem else CORRECT_FILE


def _waits(job: Row[Any], purse: Purse | None) -> str:
    """What its group's reason means for a job that is due."""
    reason = job.group_reason
    if reason is None:
        return IN_TURN if job.looked_at else NOT_LOOKED_AT
    known = _nowhere(job, WAITS[reason]) if reason == WaitReason.NO_ELIGIBLE_ENGINE else reason_in_words(reason)
    if purse is None:
        return known
    if reason == HELD:
        return _held(job, purse)
    if reason == WaitReason.CAP_SPENT:
        return cap_spent(purse)
    capped = purse.resolved.policy.mode is Mode.HYBRID and not purse.remaining
    if reason == WaitReason.SLOTS_FULL and capped and purse.concerns(requirement_of(job)):
        return f"{known}, and {_spent(purse)}"
    return known


def _nowhere(job: Row[Any], otherwise: str) -> str:
    """Why no engine may serve a job: its pins or its repository where these leave none that ever could."""
    if job.unknown_pins:
        gone = ", ".join(sorted(job.unknown_pins))
        others = "no" if len(job.unknown_pins) == len(job.pinned) else "no other"
        return (
            f"it may run only on {', '.join(sorted(job.pinned))}, and {gone} is not configured; {others} engine may "
            f"serve it now: apply a configuration that has {gone}, or cancel the job and enqueue it anew"
        )
    if job.workspace is not None and not job.workspace:
        return (
            "no configured engine has workspace_roots that contain the repository it names: add such a root, or cancel "
            "the job"
        )
    return otherwise


def reason_in_words(reason: str) -> str:
    """What a group's reason means, as far as it can be said without its project's cap."""
    return WAITS.get(reason, str(reason).replace("_", " "))


def _held(job: Row[Any], purse: Purse) -> str:
    patience = timedelta(milliseconds=purse.resolved.policy.overflow_after_ms)
    left = f"{purse.remaining} of {purse.limit} paid units are left on {purse.day} (UTC)"
    if job.held_at is None:
        return f"held: every local slot it may use is in use; overflow possible {patience} later; {left}"
    possible = in_words(job.held_at + patience)
    since = in_words(job.held_at)
    return f"held since {since}: every local slot it may use is in use; overflow possible at {possible}; {left}"


def cap_spent(purse: Purse) -> str:
    """Why a job waits that only paid engines may serve now, where its project's cap is spent."""
    return f"only paid engines may serve it now, and {_spent(purse)}"


def _spent(purse: Purse) -> str:
    midnight = datetime.combine(purse.day + timedelta(days=1), time(), UTC)
    return f"the paid cap of {purse.limit} for {purse.day} is spent: nothing paid before {in_words(midnight)}"


def engine_detail(engine: Row[Any], circuit: str) -> str:
    """What keeps an engine from being picked, else what its doctor found; empty when there is neither."""
    return keeps_out(engine, circuit) or str(engine.detail)


def missing_slots(engine: Row[Any]) -> str:
    """What to do where an engine has more slots than its live workers can have at work."""
    return restart(engine.server, engine.slots - (engine.offered or 0))


def restart(worker: str, more: int) -> str:
    """How a worker comes by processes for more slots: it makes as many as it needs when it starts."""
    return f"restart {worker} for {many(more, 'more slot')}: on its machine run vibey down, then vibey up"


def keeps_out(engine: Row[Any], circuit: str) -> str:
    """What keeps an engine from being picked, first things first; empty when nothing does."""
    until = _until(engine)
    repair = "" if until else f"; run: vibey engine reset {engine.name}"
    rules = (
        (not engine.configured, f"removed, {engine.in_use} running"),
        (not engine.enabled, "disabled in the configuration"),
        (engine.paused, f"paused; run: vibey engine resume {engine.name}"),
        (not engine.installed, f"not installed: {engine.detail}"),
        (not engine.conformant, f"misconfigured: {engine.detail}"),
        (not engine.login_ok, f"login refused: {engine.detail}"),
        (circuit != "closed", f"{str(engine.open_reason).replace('_', ' ')}{until}{repair}"),
        (engine.busy, "its server says it is busy"),
        (engine.offered is None, engine.problems or UNSERVED),
        ((engine.offered or 0) < engine.slots, missing_slots(engine)),
    )
    return next((text.removesuffix(": ") for applies, text in rules if applies), "")


def _until(engine: Row[Any]) -> str:
    """When an open circuit lets something through again; empty when only a person can tell."""
    if engine.probe_at is None:
        return ""
    if engine.resets_at is not None and engine.resets_at > engine.probe_at:
        return f" until {in_words(engine.resets_at)}, looked at again at {in_words(engine.probe_at)}"
    return f", next trial {in_words(engine.probe_at)}"
