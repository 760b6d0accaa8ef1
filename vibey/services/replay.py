"""Replay: put what each pass recorded to the functions that decided it, and see whether the same comes out.

A pass keeps its world, the requirements asked and, with each decision, what its job brought along: attempt, session,
how long it had been held. Put to `decide` and `prospect` again, these must give the same outcome, engine and trace, in
the same bytes of canonical JSON. Why a group waits was found on the world before the pass's grants; each grant on the
world the one before it left.

What the replay needs of the database is read in pages of passes, each in a transaction of its own, so that neither
side's cost grows with the length of the record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Assign, Hold, Request, decide, prospect
from vibey.domain.snapshot import requirement_of, trace_json, world_of
from vibey.domain.turn import Lot, is_turn
from vibey.services.absence import absent
from vibey.services.prune import record_begins
from vibey.services.record import outcome_of, unfolded
from vibey.services.wording import instant
from vibey.store import decisions as record
from vibey.store.views import JOB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from vibey.domain.assessment import Survey
    from vibey.domain.decide import Decision, World
    from vibey.domain.requirement import Requirement
    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.decisions import Pass
    from vibey.store.statement import Row

PAGE = 20
# So many differences are told; all are counted.
TOLD = 100


@dataclass(frozen=True, slots=True)
class Question:
    """What a decision was made from: a request, the world at its turn, and how the fleet was surveyed for it."""

    request: Request
    world: World
    surveyed: Survey


@dataclass(frozen=True, slots=True)
class Replayed:
    """A decision as recorded and as replayed, both as JSON values; `question` and `answer` as the domain has them.

    `answer` is None for a group's decision, and so is everything else where the record cannot be read: then `replayed`
    says why.
    """

    row: Row[Any]
    recorded: dict[str, Any]
    replayed: dict[str, Any]
    question: Question | None = None
    answer: Decision | None = None

    @property
    def is_same(self) -> bool:
        """Whether the replay gave what was recorded, to the byte."""
        return canonical(self.recorded) == canonical(self.replayed)

    def to_json(self) -> dict[str, Any]:
        """A difference, for programs."""
        return {
            "decision": self.row.id,
            "pass": self.row.pass_id,
            "job": self.row.job_id,
            "recorded": self.recorded,
            "replayed": self.replayed,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What a replay found: how many decisions there were, how many came out the same, the first that did not.

    What is about jobs that ended before `record_begins` was removed, None if nothing was.
    """

    replayed: int
    same: int
    differing: tuple[Replayed, ...]
    record_begins: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """`replayed`, `same` and `differing`, of which at most `TOLD` are listed, and `record_begins`."""
        return {
            "replayed": self.replayed,
            "same": self.same,
            "differing": [each.to_json() for each in self.differing],
            "record_begins": instant(self.record_begins),
        }


def replay(
    installation: Installation,
    *,
    since: datetime | timedelta | None = None,
    job: int | None = None,
    watch: Callable[[int, int], None] = lambda _done, _of: None,
) -> Report:
    """Replay every decision since an instant, or so long ago by the database's clock; of one job only when named.

    `watch` is told, after each page, how far of how much it is. UnknownName when there is no such job.
    """
    count = unlike = 0
    differing: list[Replayed] = []
    for page in _pages(installation, since, job, watch):
        for each in page:
            for found in replayed(each):
                if job is not None and found.row.job_id != job:
                    continue
                count += 1
                if not found.is_same:
                    unlike += 1
                    differing.extend([found][: TOLD - len(differing)])
    begins = installation.database.statement(record_begins)
    return Report(count, count - unlike, tuple(differing), begins)


def replayed(kept: Pass) -> Iterator[Replayed]:
    """Every decision of a pass, replayed in order. A record that cannot be read is a difference, never an error."""
    try:
        world = world_of(kept.row.world)
        asked = [requirement_of(each) for each in kept.row.asked]
    except Exception as error:  # noqa: BLE001  what was tampered with may fail in any way
        for row in kept.decisions:
            yield _unreadable(row, error)
        return
    yield from _Fold(world, asked, kept.row.classes).all(kept.decisions)


def canonical(value: Mapping[str, Any]) -> str:
    """The one text of a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class _Fold:
    """Decisions of one pass, each made on the world the one before it left."""

    def __init__(self, world: World, asked: Sequence[Requirement], classes: Sequence[Sequence[Any]]) -> None:
        self._began = self._world = world
        self._asked = asked
        self._classes = classes
        self._surveys: dict[tuple[object, ...], Survey] = {}

    def all(self, rows: Sequence[Row[Any]]) -> Iterator[Replayed]:
        for row in rows:
            yield self._guarded(row)

    def _guarded(self, row: Row[Any]) -> Replayed:
        try:
            return self._group(row) if row.job_id is None else self._job(row)
        except Exception as error:  # noqa: BLE001  as above
            return _unreadable(row, error)

    def _job(self, row: Row[Any]) -> Replayed:
        trace = unfolded(row.trace, self._classes)
        waited_ms, session = trace.get("waited_ms", 0), trace.get("session")
        request = Request(row.job_id, row.attempt, self._asked[row.asked], waited_ms, session, _lots(trace))
        question = Question(request, self._world, self._survey(request.requirement))
        answer = decide(request, self._world, question.surveyed)
        self._world = self._world.after(answer)
        recorded = _told(row.outcome, row.engine, row.tier, trace)
        return Replayed(row, recorded, _answered(answer), question, answer)

    def _group(self, row: Row[Any]) -> Replayed:
        requirement = self._asked[row.asked]
        request = Request(0, 1, requirement)
        question = Question(request, self._began, self._survey(requirement))
        reason = prospect(question.surveyed, self._began, request).waiting
        recorded = _told(row.outcome, row.engine, row.tier, row.trace) | {"group": row.requirement_key}
        answered = _told(outcome_of(reason), None, None, {"reason": reason}) | {"group": requirement.key}
        return Replayed(row, recorded, answered, question)

    def _survey(self, requirement: Requirement) -> Survey:
        return self._began.surveyed(requirement, self._surveys)


def _lots(trace: Mapping[str, Any]) -> tuple[Lot, ...]:
    """What was drawn to find that it is the project's turn: the steps before those through the pool."""
    steps = (step for step in trace["steps"] if is_turn(step[0]))
    return tuple(Lot(key, tuple(members), tuple(shares)) for key, _, _, members, shares, *_ in steps)


def _answered(answer: Decision) -> dict[str, Any]:
    if isinstance(answer, Assign):
        return _told(answer.outcome, answer.engine.name, answer.engine.tier.value, trace_json(answer))
    trace = {"retry_ms": answer.retry_ms} if isinstance(answer, Hold) else {"reason": answer.reason.value}
    return _told(answer.outcome, None, None, trace)


def _told(outcome: str, engine: str | None, tier: str | None, trace: Mapping[str, Any]) -> dict[str, Any]:
    return {"outcome": outcome, "engine": engine, "tier": tier, "trace": dict(trace)}


def _unreadable(row: Row[Any], error: Exception) -> Replayed:
    recorded = {"outcome": row.outcome, "engine": row.engine, "tier": row.tier, "trace": row.trace}
    return Replayed(row, recorded, {"unreadable": f"{type(error).__name__}: {error}"})


def _pages(
    installation: Installation,
    since: datetime | timedelta | None,
    job: int | None,
    watch: Callable[[int, int], None],
) -> Iterator[list[Pass]]:
    bounds = installation.database.run(lambda connection: _bounds(connection, since, job))
    if bounds is None:
        return
    first, last = bounds

    def page(reached: int) -> list[Pass]:
        return installation.database.run(lambda connection: record.page(connection, reached, last, PAGE, job))

    found = page(first)
    while found:
        yield found
        reached = found[-1].row.id + 1
        watch(reached - first, last - first + 1)
        found = page(reached)


def _bounds(connection: Connection, since: datetime | timedelta | None, job: int | None) -> tuple[int, int] | None:
    if job is not None and JOB.first(connection, id=job) is None:
        raise absent(connection, job)
    if isinstance(since, timedelta):
        return record.bounds(connection, seconds=since.total_seconds())
    return record.bounds(connection, since=since)
