"""Forecast: the earliest instant at which a queued job could start, as far as that is known without anybody acting.

Known are the ends of a backoff, of a hold and of a server's busyness, a circuit's next trial, and midnight, when caps
begin anew. At each of them, in order, the job is put to the router's own `decide` on the world as it will be if no slot
is freed before: the first that grants it is the answer. A slot freed earlier, or a person, may of course be quicker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from vibey.domain.decide import UNKNOWN, Assign, Hold, decide
from vibey.domain.engine import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from vibey.domain.decide import Decision, Request, World

NOW, BACKOFF, HOLD_END, PROBE, BUSY_END, MIDNIGHT = "now", "backoff", "hold_end", "probe", "busy_end", "midnight"


@dataclass(frozen=True, slots=True)
class Earliest:
    """An instant, what comes then, and the engine that would take the job."""

    at: datetime
    by: str
    engine: str


@dataclass(frozen=True, slots=True)
class Coming:
    """What is known to come: `probes` by account, `frees` by engine whose server is busy, and the next day's caps.

    `not_before` ends a backoff, `held_at` is the attempt's first hold; None where there is none.
    """

    now: datetime
    day: date
    limits: Mapping[str, int]
    probes: Mapping[str, datetime]
    frees: Mapping[str, datetime]
    not_before: datetime | None = None
    held_at: datetime | None = None


def earliest(request: Request, world: World, coming: Coming) -> Earliest | None:
    """The first known instant at which the job would be granted a run; None when none is known."""
    begins = max(coming.now, coming.not_before or coming.now)
    instants = _instants(coming, begins)
    held_at = coming.held_at
    while instants:
        at, by = instants.pop(0)
        answer = _answer_at(at, held_at, request, world, coming)
        if isinstance(answer, Assign):
            return Earliest(at, by, answer.engine.name)
        if isinstance(answer, Hold):
            held_at = held_at or at
            policy = world.policy(request.requirement.project)
            ends = held_at + timedelta(milliseconds=policy.overflow_after_ms)
            if ends > at and (ends, HOLD_END) not in instants:
                instants = sorted([*instants, (ends, HOLD_END)])
    return None


def _instants(coming: Coming, begins: datetime) -> list[tuple[datetime, str]]:
    first = (begins, NOW if begins == coming.now else BACKOFF)
    later = [(_midnight(coming.day), MIDNIGHT)]
    later += [(at, PROBE) for at in coming.probes.values()]
    later += [(at, BUSY_END) for at in coming.frees.values()]
    return [first, *sorted(each for each in later if each[0] > begins)]


def _midnight(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), time(), UTC)


def _answer_at(at: datetime, held_at: datetime | None, request: Request, world: World, coming: Coming) -> Decision:
    waited = timedelta() if held_at is None else at - held_at
    asked = replace(request, waited_ms=max(0, waited // timedelta(milliseconds=1)))
    return decide(asked, _world_at(at, world, coming))


def _world_at(at: datetime, world: World, coming: Coming) -> World:
    """The world as it will be then, everything else being the same."""
    engines = tuple(
        replace(
            each,
            phase=Phase.HALF_OPEN if _is_due(coming.probes, each.account, at, each.phase) else each.phase,
            busy=each.busy and not (each.name in coming.frees and coming.frees[each.name] <= at),
        )
        for each in world.engines
    )
    caps = coming.limits if at >= _midnight(coming.day) else world.caps
    # Which engines are full follows from the rest, and is found anew.
    return replace(world, engines=engines, caps=caps, full=UNKNOWN)


def _is_due(probes: Mapping[str, datetime], account: str, at: datetime, phase: Phase) -> bool:
    return phase is Phase.OPEN and account in probes and probes[account] <= at
