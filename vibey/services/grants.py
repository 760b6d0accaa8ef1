"""Grants: a pass's assignments as the rows and events that carry them out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vibey import tracing
from vibey.domain.engine import Tier
from vibey.domain.offer import Why
from vibey.domain.rotation import UNIT
from vibey.domain.turn import is_turn
from vibey.store.ledger import Event
from vibey.store.runs import Granted, Grants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.decide import Assign, World
    from vibey.domain.requirement import Requirement
    from vibey.domain.selection import CreditKey
    from vibey.services.outlook import Outlook
    from vibey.services.record import Record
    from vibey.store.jobs import Head


NAMED = 50


def warmed(requirement: Requirement, head: Head) -> Requirement:
    """The group's requirement as one of its jobs has it: with the engine of its previous attempt."""
    return requirement if head.affinity is None else replace(requirement, affinity=head.affinity)


def spans(assigned: Sequence[Assign], parents: Mapping[int, str], began_ns: int) -> dict[int, tracing.Span]:
    """The spans of the assignments, by job, begun with their pass; only jobs that are traced have one.

    `parents` are the spans that enqueued jobs.
    """
    if not tracing.is_on() and not parents:
        return {}
    found = {}
    for decision in assigned:
        job = decision.request.job_id
        found[job] = tracing.begin("vibey.route", "internal", parents.get(job), _told(decision), began_ns=began_ns)
    return found


def written(
    outlook: Outlook, assigned: Sequence[Assign], after: World, record: Record, spans: Mapping[int, tracing.Span]
) -> Grants:
    """What the store needs to carry out the assignments, in their order, and to keep the record they go into.

    `after` is the world they leave behind.
    """
    for decision in assigned:
        row = _row(outlook, decision)
        if span := spans.get(decision.request.job_id):
            row["traceparent"] = span.traceparent
        record.assignment(decision, row)
    picks = Counter([(decision.engine.name, decision.why) for decision in assigned])
    shifts = moved(outlook.world, after)
    return Grants(
        record=record.kept(),
        credits={key: after.credits[key] for key in shifts},
        picks=picks,
        expected=expected(picks, shifts),
        sessions={key: member for decision in assigned for key, member in decision.memories().items()},
    )


def moved(before: World, after: World) -> dict[CreditKey, int]:
    """How far each credit was moved, of those that were."""
    known = before.credits
    return {key: credit - known.get(key, 0) for key, credit in after.credits.items() if credit != known.get(key, 0)}


def expected(picks: Mapping[tuple[str, Why], int], shifts: Mapping[CreditKey, int]) -> dict[str, int]:
    """The shares each engine was offered, in units of 10^-12 of a pick: what it was picked for, and what it is owed.

    A credit is what was offered less what was picked. Nested pools hand theirs on, and no configured engine has their
    name; what moved of the turns of projects is no engine's.
    """
    offered: Counter[str] = Counter()
    for (engine, _), times in picks.items():
        offered[engine] += times * UNIT
    for (pool, member), shift in shifts.items():
        if not is_turn(pool):
            offered[member] += shift
    return dict(offered)


def granted(row: Sequence[Any], decision: Assign) -> Granted:
    """The run that a row (id, token, job, engine) made, as its build message needs it."""
    run_id, token, job_id, engine = row
    request = decision.request
    return Granted(run_id, token, job_id, engine, request.requirement.project, request.attempt)


def hold_grounds(outlook: Outlook, requirement: Requirement) -> dict[str, Any]:
    """What the event of a first hold says of the moment beside `local_slots`: the threshold, the cap."""
    world = outlook.world
    left = world.caps.get(world.purse(requirement.project), 0)
    return _common(outlook, requirement.project) | {"waited_seconds": 0, "cap_remaining": left}


def local_slots(world: World) -> dict[str, Any]:
    """What the events of all first holds of a moment say of the slots found in use.

    Of more than `NAMED` local engines only the first are named, as each job has such an event, and how many are not.
    The record of the pass has them all.
    """
    in_use = world.usage.in_use
    local = [(each.name, in_use.get(each.name, 0), each.slots) for each in world.engines if each.tier is Tier.LOCAL]
    omitted = {"local_slots_omitted": len(local) - NAMED} if len(local) > NAMED else {}
    return _slots(local[:NAMED]) | omitted


def _told(decision: Assign) -> tracing.Attributes:
    """What a span tells of an assignment."""
    request = decision.request
    return {
        "vibey.job_id": request.job_id,
        "vibey.attempt": request.attempt,
        "vibey.project": request.requirement.project,
        "vibey.pool": request.requirement.pool,
        "vibey.engine": decision.engine.name,
        "vibey.tier": decision.engine.tier.value,
        "vibey.why": decision.outcome,
        "vibey.held_seconds": request.waited_ms / 1000,
    }


def _row(outlook: Outlook, decision: Assign) -> dict[str, Any]:
    """What the store is told of an assignment; it finds the engine's account and tier itself."""
    row: dict[str, Any] = {
        "job_id": decision.request.job_id,
        "engine": decision.engine.name,
        "attempt": decision.request.attempt,
        "outcome": decision.outcome,
    }
    if decision.counted:
        row["counted"] = True
    if decision.grounds or decision.waived:
        row["notes"] = _notes(outlook, decision)
    return row


# The event that records why paid work was justified, by the ground a run was granted on. Each may be a unit of the cap.
PAID_EVENTS = {
    Why.ASSIGN: Event.PAID_ASSIGNMENT_SELECTED,
    Why.OVERFLOW: Event.ENGINE_OVERFLOW_SELECTED,
    Why.FALLBACK: Event.PAID_FALLBACK_SELECTED,
}


def _notes(outlook: Outlook, decision: Assign) -> list[dict[str, Any]]:
    """The further events of an assignment: its ground for paid work, and an exclusion that was waived."""
    notes: list[dict[str, Any]] = []
    attempt = {"attempt": decision.request.attempt}
    if decision.grounds is not None:
        kind = PAID_EVENTS[decision.why].value
        notes.append({"kind": kind, "unit": decision.counted, "data": _paid(outlook, decision) | attempt})
    if decision.waived:
        back = decision.engine.name in decision.request.requirement.handed_off
        data = attempt | {"reason": "handoff" if back else "effort"}
        notes.append({"kind": Event.EXCLUSION_WAIVED.value, "unit": False, "data": data})
    return notes


def _paid(outlook: Outlook, decision: Assign) -> dict[str, Any]:
    project = decision.request.requirement.project
    data = _common(outlook, project)
    grounds = decision.grounds
    if grounds is None:
        return data
    data |= _slots(grounds.local) | {"waited_seconds": grounds.waited_ms / 1000, "engine": decision.engine.name}
    if decision.counted:
        data |= {
            "paid_today": max(0, data["paid_daily_cap"] - grounds.cap_left),
            "cap_remaining_after": grounds.cap_left - 1,
            "utc_day": outlook.at.date().isoformat() if outlook.at else None,
        }
    return data


def _slots(local: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    return {"local_slots": [{"engine": name, "in_use": used, "slots": slots} for name, used, slots in local]}


def _common(outlook: Outlook, project: str) -> dict[str, Any]:
    resolved = outlook.resolved[project]
    return {
        "mode": resolved.policy.mode.value,
        "mode_source": resolved.source,
        "mode_reason": resolved.reason,
        "overflow_after_seconds": resolved.policy.overflow_after_ms / 1000,
        "paid_daily_cap": outlook.limit(project),
        "paid_daily_cap_scope": resolved.scope,
    }
