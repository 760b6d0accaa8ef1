"""Starts: when a queued job could start at the earliest, as far as that is known, told in words.

One reading of what is known to come serves all the jobs of a pool; `vibey.services.forecast` finds each one's instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Request, Wait, decide
from vibey.domain.offer import WaitReason
from vibey.domain.requirement import conversation
from vibey.services import forecast
from vibey.services.wording import instant
from vibey.store import engines
from vibey.store.jobs import requirement_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from vibey.domain.decide import World
    from vibey.services.forecast import Earliest
    from vibey.services.purse import Purse
    from vibey.services.view_rows import View
    from vibey.store.database import Connection
    from vibey.store.statement import Row

BY = {
    forecast.NOW: "now: the router can grant it {engine} at once, after jobs before it",
    forecast.BACKOFF: "when its backoff ends, on {engine}",
    forecast.HOLD_END: "when it has been held long enough to overflow to {engine}, or once a local slot is freed",
    forecast.PROBE: "at the next trial of a circuit, on {engine}, or once a slot is freed",
    forecast.BUSY_END: "when a busy server is asked again, on {engine}",
    forecast.MIDNIGHT: "when the day's paid cap begins anew, on {engine}, or once a slot is freed",
}
# Of a job that no local engine may serve: it waits for no slot.
MIDNIGHT_ALONE = "when the day's paid cap begins anew, on {engine}"
UNKNOWN_START = "no instant is known: {first}"
# What has to come first, by why the job waits; a job that is held, or would be granted, waits for others' slots.
FIRST: dict[WaitReason, str] = {
    WaitReason.NO_WORKER: "a live worker has to serve an engine it may use (vibey doctor shows why none does)",
    WaitReason.NO_ELIGIBLE_ENGINE: "an engine has to become able to take it (vibey explain shows what each lacks)",
    WaitReason.FALLBACK_NOT_ALLOWED: "a local engine has to become able to take it (vibey explain says why none is)",
    WaitReason.NO_SUCH_POOL: "its pool has to be configured again (vibey apply)",
}
SLOT_FIRST = "a slot has to be freed"
PINS_FIRST = "{gone} has to be configured again (vibey apply), or cancel the job and enqueue it anew"
TOO_LATE = "its deadline comes before any start that is known"


def asked(job: Row[Any]) -> Request:
    """The job as the router will see it."""
    requirement = replace(requirement_of(job), affinity=job.affinity)
    waited_ms = 0 if job.held_at is None else int((job.now - job.held_at).total_seconds() * 1000)
    session = conversation(job.project, job.session)
    return Request(job.id, job.attempt + 1, requirement, max(0, waited_ms), session)


@dataclass(frozen=True, slots=True)
class Known:
    """A pool's world as it is, and what is known to come there: trials, busy servers, the next day's caps."""

    world: World
    day: date
    limits: Mapping[str, int]
    probes: Mapping[str, datetime]
    frees: Mapping[str, datetime]

    @classmethod
    def of(cls, connection: Connection, world: World, purses: Mapping[str, Purse]) -> Known:
        """Read it; `purses` are those of the jobs' projects, of which there is at least one."""
        rows = engines.coming(connection, [each.name for each in world.engines])
        return cls(
            world,
            day=next(iter(purses.values())).day,
            limits={name: purse.limit for name, purse in purses.items()},
            probes={row.account: row.probe_at for row in rows if row.probe_at is not None},
            frees={row.name: row.busy_until for row in rows if row.busy_until is not None},
        )

    def earliest(self, request: Request, job: Row[Any]) -> View:
        """The earliest known start of a queued job: `at`, `by`, `engine` and `words`; `at` is None when none is known.

        The row carries the job's `now`, `not_before`, `held_at` and `deadline_at`.
        """
        coming = forecast.Coming(
            now=job.now,
            day=self.day,
            limits=self.limits,
            probes=self.probes,
            frees=self.frees,
            not_before=job.not_before,
            held_at=job.held_at,
        )
        needs_cap = not self.world.survey(request.requirement).local
        found = forecast.earliest(request, self.world, coming)
        if found is None:
            return {"at": None, "by": None, "engine": None, "words": self._first(request, job)}
        return _told(found, job.deadline_at, needs_cap=needs_cap)

    def _first(self, request: Request, job: Row[Any]) -> str:
        """What has to change before a job can start for which no instant is known."""
        if job.unknown_pins and len(job.unknown_pins) == len(job.pinned):
            return UNKNOWN_START.format(first=PINS_FIRST.format(gone=", ".join(sorted(job.unknown_pins))))
        answer = decide(request, self.world)
        first = FIRST.get(answer.reason, SLOT_FIRST) if isinstance(answer, Wait) else SLOT_FIRST
        return UNKNOWN_START.format(first=first)


def _told(first: Earliest, deadline: datetime | None, *, needs_cap: bool) -> View:
    words = MIDNIGHT_ALONE if needs_cap and first.by == forecast.MIDNIGHT else BY[first.by]
    words = words.format(engine=first.engine)
    if deadline is not None and first.at >= deadline:
        words = TOO_LATE
    return {"at": instant(first.at), "by": first.by, "engine": first.engine, "words": words}
