"""Demand: the attempts that wanted a local engine, and how long each would have waited had there been no other.

Replayed in queue order on the local slots alone: an attempt joins the queue at its first look, takes a free slot of a
local engine that may serve it, and holds it for its running time there. Its *would-wait* is its replayed start minus
its first look. At one instant slots are freed first, then attempts join, then the queue is served.

The replay knows nothing of the mode that was in force. Judging the runs that really found every slot taken would: with
exact slots no run ever does, and once hybrid relieves the local engines its own evidence would fade.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Demand:
    """One attempt that wanted a local engine. Instants and durations are milliseconds; `eligible` names engines.

    `standing` is its job's place in the queue: see `vibey.domain.turn`.
    """

    job_id: int
    attempt: int
    project: str
    standing: int
    looked_at_ms: int
    running_ms: int
    eligible: frozenset[str]


def would_waits(demand: Iterable[Demand], slots: Mapping[str, int]) -> list[tuple[Demand, int]]:
    """Each attempt that some of these engines could serve, with its would-wait in milliseconds.

    Depends on what the attempts and slots are, never on the order they come in; engines are taken by name.
    """
    names = sorted(name for name, count in slots.items() if count > 0)
    usable: dict[frozenset[str], tuple[int, ...]] = {}
    arrivals: list[_Arrival] = []
    for each in demand:
        places = usable.get(each.eligible)
        if places is None:
            places = usable[each.eligible] = tuple([place for place, name in enumerate(names) if name in each.eligible])
        if places:
            turn = (each.standing, each.job_id, each.attempt, each.running_ms, each.project, places)
            arrivals.append((each.looked_at_ms, turn, each))
    arrivals.sort(key=_moment)
    return _Replay([slots[name] for name in names]).played(arrivals)


def lower_median(values: Iterable[int]) -> int:
    """The lower median; 0 of none, so that demand of a length nobody knows makes nobody wait."""
    ordered: Sequence[int] = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0


# What decides whose turn it is: standing, then the order jobs were enqueued in; the rest only settles what is equal.
_Turn = tuple[int, int, int, int, str, tuple[int, ...]]
_Arrival = tuple[int, _Turn, Demand]


def _moment(arrival: _Arrival) -> tuple[int, _Turn]:
    return arrival[0], arrival[1]


class _Replay:
    """The local slots and their queue at one instant. The queue is kept by what may serve it: few heads to compare."""

    def __init__(self, free: list[int]) -> None:
        self._now = 0
        self._free = free
        self._unused = sum(free)
        self._ends: list[tuple[int, int]] = []
        self._queues: dict[tuple[int, ...], list[tuple[_Turn, int, Demand]]] = {}
        self._waits: list[tuple[Demand, int]] = []

    def played(self, arrivals: list[_Arrival]) -> list[tuple[Demand, int]]:
        """Play everything, sorted by instant and turn, to its end."""
        for number, (instant, turn, each) in enumerate(arrivals):
            if instant != self._now or not number:
                self._serve()
                self._advance(instant)
                self._now = instant
            # The number keeps the queue from ever comparing two attempts that are equal in all that counts.
            heapq.heappush(self._queues.setdefault(turn[-1], []), (turn, number, each))
        self._serve()
        self._advance(None)
        return self._waits

    def _advance(self, until: int | None) -> None:
        """Play every end up to an instant and what each lets start; those at the instant itself only free a slot."""
        ends = self._ends
        while ends and (until is None or ends[0][0] <= until):
            self._now = ends[0][0]
            while ends and ends[0][0] == self._now:
                self._free[heapq.heappop(ends)[1]] += 1
                self._unused += 1
            if self._now != until:
                self._serve()

    def _serve(self) -> None:
        """Let whoever's turn it is start, as long as anybody can."""
        while self._unused:
            ready = [
                (queue[0][0], places)
                for places, queue in self._queues.items()
                if queue and any(self._free[place] for place in places)
            ]
            if not ready:
                return
            _, places = min(ready)
            _, _, each = heapq.heappop(self._queues[places])
            place = next(place for place in places if self._free[place])
            self._free[place] -= 1
            self._unused -= 1
            heapq.heappush(self._ends, (self._now + max(each.running_ms, 0), place))
            self._waits.append((each, self._now - each.looked_at_ms))
