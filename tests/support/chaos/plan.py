"""Plan: what a chaos run will do, all of it decided by its seed before anything starts.

A plan is a list of jobs and a list of strikes. Of each strike the seed fixes its kind, its place in the order, how long
it lasts, and its target: a number from 0 to 1, which becomes a process by its place among those that can be struck at
that moment. The same seed gives the same plan, to the letter, on every machine; what the fleet happens to be doing when
a strike falls is the machine's part.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

LEASE_SECONDS = 5
PAST_LEASE = (LEASE_SECONDS + 1.0, LEASE_SECONDS + 3.0)
BRIEF = (0.5, 2.0, 4.0)
# Each kind of fault with its part of the whole, and how many seconds one of it may last.
KINDS: dict[str, tuple[int, Sequence[float]]] = {
    "kill a control worker": (4, (0,)),
    "kill a control worker's main process": (2, (0,)),
    "kill a router": (9, (0,)),
    "kill a build worker": (4, (0,)),
    "kill a build worker's main process": (2, (0,)),
    "kill a holder": (9, (0,)),
    "kill beat": (3, (0,)),
    "kill an engine's process": (11, (0,)),
    "kill a supervisor": (6, (0,)),
    "let a job escape": (4, (0,)),
    "stop a control worker": (3, PAST_LEASE),
    "stop a build worker past its leases": (5, PAST_LEASE),
    "stop a holder for good": (3, (0,)),
    "wipe Redis": (6, (0,)),
    "restart Redis": (3, (0.0, 1.0)),
    "stall Redis": (3, (*BRIEF, 7.0)),
    "restart Postgres at once": (3, (0.0, 1.0)),
    "stall Postgres": (3, (*BRIEF, 7.0)),
    "cut every connection": (3, (0,)),
    "cut some connections": (7, (0,)),
    "stall some connections": (5, (*BRIEF, 7.0)),
    "exhaust connections": (3, (*BRIEF, 7.0)),
    "fill the disk": (4, BRIEF),
    "move a clock": (6, (-7200.0, -30.0, -2.0, 2.0, 30.0, 7200.0, 90000.0)),
    "set the database's clock": (5, (-7200.0, -30.0, -2.0, 2.0, 30.0, 7200.0)),
    "deliver messages again": (10, (0,)),
    "start a second beat": (3, (3.0, 6.0)),
    "route twice without the lock": (10, (0,)),
}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault. `seconds` is how long it lasts; of a clock that is moved or set, by how much."""

    number: int
    kind: str
    target: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.number:4d}  {self.kind}, target {self.target:.3f}, {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Job:
    """One job to enqueue. `cancelled` asks for its cancel once it is there; `key` makes enqueueing it repeatable."""

    key: str
    project: str
    payload: dict[str, Any]
    priority: int = 0
    session: str | None = None
    exclude: tuple[str, ...] = ()
    deadline_seconds: float | None = None
    max_attempts: int = 100
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run will do. `fair_share` is on for even seeds."""

    seed: int
    jobs: tuple[Job, ...]
    strikes: tuple[Strike, ...]

    @classmethod
    def of(cls, seed: int, jobs: int, faults: int, kinds: Sequence[str] = tuple(KINDS)) -> Plan:
        """The plan of a seed: every kind in proportion to its part, and each at least once."""
        strikes = _strikes(_Chance(str(seed)), faults, kinds)
        return cls(seed, tuple(_jobs(_Chance(f"{seed} jobs"), jobs)), tuple(strikes))

    @property
    def fair_share(self) -> bool:
        """Whether projects take turns."""
        return self.seed % 2 == 0

    def __str__(self) -> str:
        head = f"seed {self.seed}: {len(self.jobs)} jobs, {len(self.strikes)} faults, fair_share {self.fair_share}"
        return "\n".join([head, *map(str, self.strikes)])


class _Chance:
    """Draws that are the same on every version of Python: all of them rest on `random()` alone, as promised there."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def number(self) -> float:
        return self._random.random()

    def one(self, among: Sequence[T]) -> T:
        return among[int(self.number() * len(among))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        return [value for _, _, value in sorted((self.number(), n, value) for n, value in enumerate(values))]


def _strikes(chance: _Chance, faults: int, kinds: Sequence[str]) -> list[Strike]:
    parts = [kind for kind in kinds for _ in range(KINDS[kind][0])]
    chosen = [*kinds, *(chance.one(parts) for _ in range(faults))][:faults]
    order = chance.shuffled(chosen)
    return [
        Strike(number, kind, chance.number(), float(chance.one(KINDS[kind][1])))
        for number, kind in enumerate(order, start=1)
    ]


def _jobs(chance: _Chance, count: int) -> list[Job]:
    return [_job(chance, number) for number in range(count)]


def _job(chance: _Chance, number: int) -> Job:
    payload: dict[str, Any] = {"seconds": chance.one((0, 0, 0, 0.02, 0.05, 0.1, 0.3, 0.3, 0.6, 1.2))}
    special = chance.number()
    job: dict[str, Any] = {}
    if special < 0.04:
        payload["family"] = True
    elif special < 0.07:
        payload["fails"] = chance.one((1, 2))
    elif special < 0.09:
        payload["hands_off"] = chance.one(("near", "side"))
    elif special < 0.10:
        payload["seconds"] = LEASE_SECONDS + 3
    elif special < 0.13:
        job["cancelled"] = True
        payload["seconds"] = chance.one((0.3, 5))
    elif special < 0.15:
        job["deadline_seconds"] = chance.one((0.5, 3, 20))
    elif special < 0.16:
        job["max_attempts"] = 1
        payload["fails"] = 9
    elif special < 0.20:
        job["exclude"] = (chance.one(("near", "side", "far")),)
    elif special < 0.32:
        job["session"] = f"talk-{int(chance.number() * 12)}"
    project = chance.one(("web", "web", "web", "lab"))
    return Job(f"chaos-{number}", project, payload, chance.one((0, 0, 0, 1, 5)), **job)
