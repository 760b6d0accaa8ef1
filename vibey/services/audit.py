"""Audit: did the invariants hold? Judged from the record of an installation, at work or at rest, without writing.

I1   slots were never exceeded
I2   a job never had two live runs
I3   every job is ended, held by a live run, or queued for a reason; nothing waits for, or points to, what is not there
I4   paid units of a day never were above the cap; each belongs to one run that had to take it, each return to a unit
I5   nothing overflowed while an eligible local slot was free, or fell back beside a local candidate
I6   a run ended once, by the token that held it
I7   credits are shares offered less picks, and sum to zero
I8   the ledger cannot be changed, and tells every move of every job
I9   every run has its one decision, and decisions replay to themselves
I12  a unit is counted for the UTC day it was taken on

All are questions to the tables (`vibey.store.checks`) but I5 and parts of I4 and I9. Those are replayed: the world
each pass recorded is taken through the pass's own decisions (`vibey.services.replay`), and at each paid pick the
job's requirement is put to the local engines once more, and the rules are asked whether it takes a unit of the cap.
An event's numbers alone would not do: an engine whose server is busy, or that no worker serves, is full with slots
unused. Replayed are the latest decisions, all paid picks that a local engine could have spared, and those of caps
that cover every paid run; `replayed` counts them. That each pass began with the credits the one before it had left is
part of I7.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Assign
from vibey.domain.engine import Tier
from vibey.domain.offer import Why
from vibey.services.replay import PAGE, canonical, replayed
from vibey.services.wording import instant
from vibey.store import audit as record
from vibey.store import decisions, metrics
from vibey.store.checks import CHECKS
from vibey.store.views import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from vibey.domain.assessment import Survey
    from vibey.domain.engine import Usage
    from vibey.services.installation import Installation
    from vibey.services.replay import Replayed
    from vibey.store.database import Connection
    from vibey.store.decisions import Pass
    from vibey.store.statement import Row

log = logging.getLogger("vibey.audit")

INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I12")
INTERVAL_MS = 3_600_000
IDLE_TIMES = 100
EXCEPTIONS = frozenset({Why.OVERFLOW.value, Why.FALLBACK.value})


@dataclass(frozen=True, slots=True)
class Violation:
    """A breach of an invariant, told in a sentence that names the rows."""

    invariant: str
    detail: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found, and how much of each kind of row it looked at. `as_of` is the instant it is about."""

    as_of: datetime
    violations: tuple[Violation, ...]
    checked: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.violations

    def to_json(self) -> dict[str, Any]:
        """As one object for programs."""
        return {
            "ok": self.ok,
            "violations": [{"invariant": each.invariant, "detail": each.detail} for each in self.violations],
            "checked": {**self.checked, "invariants": list(INVARIANTS)},
            "as_of": instant(self.as_of),
        }


def audit(installation: Installation) -> Audit:
    """Audit the installation as it is at one instant; of each question at most fifty breaches are told."""
    return installation.database.run(_audit)


def audit_in_turn(installation: Installation) -> bool:
    """Audit and keep what was found, for metrics and pages; says whether it was time for that.

    An hour apart, and further where an audit takes long: it may be at work one part in a hundred of the time.
    """
    last = installation.database.statement(metrics.AUDIT_AGE.first)
    if last is not None and 0 <= last.age_ms < max(INTERVAL_MS, IDLE_TIMES * last.took_ms):
        return False
    began = time.monotonic()
    found = audit(installation)
    took_ms = int((time.monotonic() - began) * 1000)
    told = json.dumps(found.to_json())
    installation.database.statement(
        lambda connection: metrics.KEEP_AUDIT.run(connection, as_of=found.as_of, took_ms=took_ms, found=told)
    )
    for each in found.violations:
        log.error("%s is broken: %s", each.invariant, each.detail)
    return True


def _audit(connection: Connection) -> Audit:
    record.begin(connection)
    as_of: datetime = NOW.scalar(connection)
    found = [Violation(check.invariant, breach) for check in CHECKS for breach in record.breaches(connection, check)]
    replayed = _Replays(connection)
    found += replayed.violations
    found.sort(key=lambda each: INVARIANTS.index(each.invariant))
    return Audit(as_of, tuple(found), {**record.counts(connection), "replayed": replayed.count})


class _Replays:
    """The decisions replayed: how many, and what is wrong with them, at most so many breaches of each invariant."""

    def __init__(self, connection: Connection) -> None:
        self.count = 0
        self._told: dict[str, list[str]] = {"I4": [], "I5": [], "I9": []}
        ids = record.replayed_passes(connection)
        for start in range(0, len(ids), PAGE):
            self._page(connection, decisions.read(connection, ids[start : start + PAGE]))

    @property
    def violations(self) -> list[Violation]:
        return [Violation(invariant, detail) for invariant, details in self._told.items() for detail in details]

    def _page(self, connection: Connection, page: Sequence[Pass]) -> None:
        paid = [row.job_id for each in page for row in each.decisions if row.tier == Tier.PAID]
        events = record.paid_events(connection, paid)
        for each in page:
            for found in replayed(each):
                self.count += 1
                if not found.is_same:
                    self._breach("I9", _difference(found))
                for breach in _miscounted(found, events):
                    self._breach("I4", breach)
                for breach in _judged(found, events):
                    self._breach("I5", breach)

    def _breach(self, invariant: str, detail: str) -> None:
        if len(self._told[invariant]) < record.LIMIT:
            self._told[invariant].append(detail)


def _difference(found: Replayed) -> str:
    row = found.row
    whom = f"group {row.requirement_key}" if row.job_id is None else f"job {row.job_id}"
    was, is_now = canonical(found.recorded), canonical(found.replayed)
    return f"decision {row.id} about {whom} of pass {row.pass_id} was recorded as {was}, and replays as {is_now}"


def _miscounted(found: Replayed, events: Mapping[int, Row[Any]]) -> Iterator[str]:
    """Whether a paid run took a unit of the cap exactly if its project's rules, as its pass recorded them, say so."""
    decision, answer = found.row, found.answer
    if decision.tier != Tier.PAID or not isinstance(answer, Assign):
        return
    event = events.get(decision.run_id)
    is_unit = event is not None and event.is_unit
    if answer.counted != is_unit:
        took = "took a unit of the cap" if is_unit else "took no unit of the cap"
        yield f"run {decision.run_id} on {decision.engine} ({decision.outcome}) {took}, against its project's rules"


def _judged(found: Replayed, events: Mapping[int, Row[Any]]) -> Iterator[str]:
    """What is wrong with a paid pick, given what was eligible and how full it was when it was made."""
    decision, question = found.row, found.question
    if question is None or decision.tier != Tier.PAID:
        return
    surveyed, usage = question.surveyed, question.world.usage
    pick = f"run {decision.run_id} on {decision.engine} ({decision.outcome})"
    free = [each.engine.name for each in surveyed.local if usage.free_slots(each.engine) > 0]
    if free:
        yield f"{pick} was granted while {', '.join(free)} had a free slot for it"
    elif decision.outcome == Why.OVERFLOW and not surveyed.local:
        yield f"{pick} was granted though no local engine could serve it, full or not: that is a fallback"
    elif decision.outcome != Why.OVERFLOW and surveyed.local:
        yield f"{pick} was granted though {', '.join(each.engine.name for each in surveyed.local)} could serve it"
    elif decision.outcome == Why.ASSIGN and surveyed.has_local:
        yield f"{pick} was granted for want of a local engine without being called a fallback"
    event = events.get(decision.run_id)
    if event is not None or decision.outcome in EXCEPTIONS:
        yield from _told(pick, None if event is None else event.local_slots, surveyed, usage)


def _told(pick: str, told: Any, surveyed: Survey, usage: Usage) -> Iterator[str]:  # noqa: ANN401  a JSON array
    """Whether the event's numbers are those of the replay."""
    local = [each.engine for each in surveyed.assessments if each.engine.tier is Tier.LOCAL]
    replayed = [{"engine": each.name, "in_use": usage.in_use.get(each.name, 0), "slots": each.slots} for each in local]
    if told != replayed:
        yield f"{pick}: its event tells of the local slots {told}, the replay of its pass of {replayed}"
