"""Telling: a decision as plain values with sentences: on what grounds, by which way, and what became of each engine.

Shares, credits, weights and factors are fractions of 1: a credit of 1 is one pick owed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vibey.domain.assessment import Exclusion
from vibey.domain.engine import MILLION, Tier
from vibey.domain.offer import Why
from vibey.domain.rotation import UNIT
from vibey.domain.selection import DEMOTED_LABEL, Status, Turn
from vibey.services.requirements import lacking
from vibey.services.verdicts import Ground, Judged, Verdict, verdicts
from vibey.services.wording import UNSERVED, instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vibey.domain.decide import Assign, Decision
    from vibey.domain.engine import EngineFacts
    from vibey.domain.layer import Layer
    from vibey.domain.pool import Pool
    from vibey.domain.requirement import Requirement
    from vibey.domain.selection import Step
    from vibey.services.replay import Question
    from vibey.services.view_rows import View

ONLY = "only"
FAIR = "fair"
TURNS = {Turn.DRAWN: "drawn", Turn.STICKY: "sticky", Turn.YIELDED: "yielded"}
EXCLUDED = {
    Exclusion.DISABLED: "disabled or paused; run: vibey engine resume {name}",
    Exclusion.NOT_INSTALLED: "not installed; run: vibey doctor",
    Exclusion.CONFORMANCE_FAILED: "misconfigured; run: vibey doctor",
    Exclusion.LOGIN_STALE: "its login was refused; log in and run: vibey doctor",
    Exclusion.CIRCUIT_OPEN: "its account's circuit is open until the next trial, or: vibey engine reset {name}",
    Exclusion.NO_WEIGHT: "its weight is 0",
}
NOT_DRAWN = {
    Ground.SLOTS: "{in_use} of {slots} slots in use",
    Ground.BUSY: "its server said that it is busy",
    Ground.NO_WORKER: f"{UNSERVED}; run vibey up, or start a worker",
    Ground.PROBE_OUT: "its circuit is half-open, and the one trial is out",
    Ground.LOCAL_FIRST: "in mode singleton local engines come first, full or not",
    Ground.LOCAL_FREE: "a local engine is free, and paid work is never offered beside it",
    Ground.HELD: "overflow only once the job has been held for {patience:g} s; so far {waited:g} s",
    Ground.CAP_SPENT: "the day's paid cap is spent: nothing paid before midnight UTC",
    Ground.FALLBACK_NOT_ALLOWED: 'paid_fallback = "never" keeps the job from paid engines',
    Ground.POOL_WAITS: "its pool waits for a better class that is full",
    Ground.LOWER_CLASS: "in a lower class than the one that was taken",
    Ground.NOT_IN_POOL: "the pool closes it: its weight there is 0",
}


def engines(question: Question, answer: Decision, live: Mapping[str, str] | None = None) -> list[View]:
    """What became of every engine.

    `live` says of a decision made now better than the world can what keeps each configured engine out.
    """
    return [_engine(each, question, live) for each in verdicts(question, answer)]


def walk(answer: Assign, pool: Pool) -> list[View]:
    """The way through the pool tree, a step for each pool on it."""
    nodes = _nodes(answer, pool)
    return [_step(step, node.select.value) for step, node in zip(answer.selection.steps, nodes, strict=True)]


def turn(answer: Assign) -> list[View]:
    """How the job's project was drawn among those that shared the slots; empty where nobody else had a job."""
    return [_step(step, FAIR) for step in answer.turn]


def grounds(question: Question, answer: Assign) -> View:
    """On what grounds the run was granted; `because` says it in a sentence."""
    policy = question.world.policy(question.request.requirement.project)
    load = question.world.load(question.request, question.surveyed)
    local = [each.engine for each in question.surveyed.assessments if each.engine.tier is Tier.LOCAL]
    in_use = question.world.usage.in_use
    found = {
        "mode": policy.mode.value,
        "waited_seconds": load.waited_ms / 1000,
        "threshold_seconds": policy.overflow_after_ms / 1000,
        "cap_left": load.cap_left if answer.counted else None,
        "counted": answer.counted,
        "waived": answer.waived,
        "waiver": _waiver(answer) if answer.waived else None,
        "local_slots": [
            {"engine": each.name, "in_use": in_use.get(each.name, 0), "slots": each.slots} for each in local
        ],
    }
    return {"because": _because(question, answer, found), **found}


def _waiver(answer: Assign) -> str:
    if answer.engine.name in answer.request.requirement.handed_off:
        return "its exclusion after a handoff was waived, as no other engine was left"
    return "an exclusion was waived, as it would have left the tier empty"


def _because(question: Question, answer: Assign, found: View) -> str:
    units = found["cap_left"]
    left = "this took the day's last paid unit" if units == 1 else f"{units} paid units were left, and this took one"
    if answer.why is Why.OVERFLOW:
        held = f"it had been held {found['waited_seconds']:g} s of {found['threshold_seconds']:g} s"
        return f"no local slot it may use was free, and {held}; {left}"
    if answer.why is Why.FALLBACK:
        allowed = left if answer.counted else 'paid_fallback = "allow" takes no unit for it'
        return f"local engines are configured, but none could serve it; {allowed}"
    if answer.engine.tier is Tier.LOCAL:
        return "a local engine that may serve it had a free slot"
    others = "no local engine is in its pool" if not question.surveyed.has_local else "paid engines were offered"
    return f"{others}, and a paid one had a free slot{f'; {left}' if answer.counted else ''}"


def _nodes(answer: Assign, pool: Pool) -> Iterator[Pool]:
    node: Pool | None = pool
    for step in answer.selection.steps:
        if node is not None:
            yield node
            node = node.below(step.chosen)


def _step(step: Step, select: str) -> View:
    members = zip(step.members, step.shares, step.before, step.after, strict=True)
    return {
        "pool": step.pool,
        "select": select,
        "skipped": [
            {"class": label, "found": "full" if found is Status.FULL else "closed"} for label, found in step.skipped
        ],
        "class": step.label,
        "demoted": step.label.startswith(DEMOTED_LABEL),
        "members": [
            {
                "member": name,
                "share": share / UNIT,
                "credit_before": before / UNIT,
                "credit_after": after / UNIT,
            }
            for name, share, before, after in members
        ],
        "chosen": step.chosen,
        "turn": ONLY if len(step.members) == 1 and step.turn is Turn.DRAWN else TURNS[step.turn],
    }


def _engine(judged: Judged, question: Question, live: Mapping[str, str] | None) -> View:
    each, member = judged.assessment, judged.member
    engine = each.engine
    stated = None if member is None else member.share
    own = None if member is None else member.weight
    factors = each.factors
    drawn = judged.step is not None and judged.place is not None
    return {
        "engine": engine.name,
        "tier": engine.tier.value,
        "verdict": judged.verdict.value,
        "ground": judged.ground,
        "detail": _detail(judged, question, live),
        "pool": judged.step.pool if judged.step else None,
        "share": _of(judged, "shares") if drawn else None,
        "credit_before": _of(judged, "before") if drawn else None,
        "credit_after": _of(judged, "after") if drawn else None,
        "weight": (each.weight if stated is None else factors.on(stated)) / MILLION,
        "factors": {
            "base": (factors.base if own is None else own) / MILLION,
            "layers": [_layer(layer) for layer in (member.layers if member else ())],
            "health": factors.health / MILLION,
            "fidelity": factors.fidelity / MILLION,
            "cost": factors.cost / MILLION,
            "affinity": factors.affinity / MILLION,
        },
        "demoted": engine.demoted,
        "waived": each.waived,
        "slots": engine.slots,
        "in_use": question.world.usage.in_use.get(engine.name, 0),
    }


def _of(judged: Judged, what: str) -> float:
    values: tuple[int, ...] = getattr(judged.step, what)
    return values[judged.place or 0] / UNIT


def _layer(layer: Layer) -> View:
    until = None if layer.until_ms is None else datetime.fromtimestamp(layer.until_ms / 1000, UTC)
    return {
        "kind": layer.kind.value,
        "factor": layer.factor / MILLION,
        "until": instant(until),
        "note": layer.note,
    }


def _detail(judged: Judged, question: Question, live: Mapping[str, str] | None) -> str:
    engine = judged.assessment.engine
    requirement = question.request.requirement
    if judged.verdict is Verdict.EXCLUDED:
        return _excluded(judged, requirement, live)
    if judged.verdict is Verdict.CHOSEN:
        return _chosen(judged)
    if judged.verdict is Verdict.LOST:
        share, credit = _of(judged, "shares"), _of(judged, "before")
        return f"offered, but the draw in {_pool(judged)} went to another: share {share:.3f}, credit {credit:+.3f}"
    found = "" if live is None or judged.ground != Ground.NO_WORKER else live.get(engine.name, "")
    if found not in {"", UNSERVED}:
        return found
    policy = question.world.policy(requirement.project)
    wanted = ": one has to be freed" if live is not None and judged.ground == Ground.SLOTS else ""
    told = NOT_DRAWN[Ground(str(judged.ground))].format(
        in_use=question.world.usage.in_use.get(engine.name, 0),
        slots=engine.slots,
        patience=policy.overflow_after_ms / 1000,
        waited=question.request.waited_ms / 1000,
    )
    return f"{told}{wanted}"


def _chosen(judged: Judged) -> str:
    step = judged.step
    if step is None or len(step.members) == 1:
        return "the only one offered and free there"
    how = {
        Turn.DRAWN: "drawn: the largest credit once each had gained its share",
        Turn.STICKY: "taken again for its session, and charged like a draw",
        Turn.YIELDED: "drawn in place of the session's own, which was full and stays remembered",
    }[step.turn]
    return f"{how}; share {_of(judged, 'shares'):.3f}, credit {_of(judged, 'before'):+.3f}"


def _pool(judged: Judged) -> str:
    return f"pool {judged.step.pool}" if judged.step else "its pool"


def _excluded(judged: Judged, requirement: Requirement, live: Mapping[str, str] | None) -> str:
    engine: EngineFacts = judged.assessment.engine
    exclusion = judged.assessment.exclusion
    if exclusion is None:
        return ""
    if exclusion in EXCLUDED:
        better = "" if live is None else live.get(engine.name, "")
        return (
            EXCLUDED[exclusion].format(name=engine.name) if exclusion is Exclusion.NO_WEIGHT or not better else better
        )
    if exclusion is Exclusion.NOT_PINNED and live is not None:
        gone = sorted(requirement.pinned - live.keys())
        known = f"; not configured: {', '.join(gone)}" if gone else ""
        return f"{_unsuitable(exclusion, engine, requirement)}{known}"
    return _unsuitable(exclusion, engine, requirement)


def _unsuitable(exclusion: Exclusion, engine: EngineFacts, requirement: Requirement) -> str:
    """Why the engine may not have the job, whatever state it is in."""
    if exclusion is Exclusion.NOT_PINNED:
        return f"the job may run only on {', '.join(sorted(requirement.pinned))}"
    if exclusion is Exclusion.NO_WORKSPACE:
        return "it has no workspace_roots that contain the repository the job names"
    if exclusion is Exclusion.MISSING_CAPABILITY:
        return lacking(requirement, engine.capabilities)
    if engine.name in requirement.excluded:
        return "the job excludes it"
    if engine.name in requirement.handed_off:
        return "it gave the job back (handoff), and another engine is left"
    return "an earlier attempt of the job ran there and had to go elsewhere"
