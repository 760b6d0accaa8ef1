"""Order: which of the jobs that could be granted comes next in a pass: by the queue, or by turns of the projects."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from vibey.domain.fairness import whose_turn
from vibey.domain.turn import level
from vibey.simulate.line import FRONT, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vibey.domain.decide import World
    from vibey.domain.turn import Lot
    from vibey.simulate.line import Place
    from vibey.simulate.queue import Group

Found = tuple["Place", "Group"]


class InOrder:
    """Queue order. A job's answer is found on the world as it is when the pass comes by, at `reached`."""

    lots: tuple[Lot, ...] = ()

    def __init__(self) -> None:
        self.reached: Place = FRONT

    def next(self, groups: Sequence[Group], _: World) -> Found | None:
        """The next job in the queue's order that can be granted, and its group."""
        found = first(groups, self.reached)
        if found is not None:
            self.reached = found[0]
        return found

    def line(self, place: Place) -> Place:
        """Where the line of a grant belongs among the pass's lines: at its job's place."""
        return place


class ByTurns:
    """Turns of projects. Whoever is left is told the world at the pass's end; grants come before that, as drawn."""

    reached: Place = FRONT

    def __init__(self, now_ms: int, age_ms: int) -> None:
        self.lots: tuple[Lot, ...] = ()
        self._now_ms = now_ms
        self._age_ms = age_ms
        self._lines = 0

    def next(self, groups: Sequence[Group], world: World) -> Found | None:
        """The first job that can be granted of the project whose turn it is, and its group."""
        heads = _heads(groups)
        if not heads:
            return None
        chosen, self.lots = whose_turn([(_project(group), self._level(place)) for place, group in heads], world)
        return next(head for head in heads if _project(head[1]) == chosen)

    def line(self, _: Place) -> Place:
        """Where the line of a grant belongs among the pass's lines: before the places of all jobs."""
        self._lines += 1
        return FRONT + self._lines

    def _level(self, place: Place) -> int:
        return level(place // NUMBERS, self._now_ms, self._age_ms)


def first(groups: Iterable[Group], place: Place) -> Found | None:
    """The first job behind a place that can be granted, and its group."""
    best: Found | None = None
    for group in groups:
        following = group.following(place)
        if following is not None and (best is None or following < best[0]):
            best = following, group
    return best


def _heads(groups: Sequence[Group]) -> list[Found]:
    """The first job of each project that can be granted, in queue order."""
    projects: dict[str, list[Group]] = {}
    for group in groups:
        projects.setdefault(_project(group), []).append(group)
    found = (first(each, FRONT) for each in projects.values())
    return sorted((head for head in found if head is not None), key=itemgetter(0))


def _project(group: Group) -> str:
    return group.requirement.project
