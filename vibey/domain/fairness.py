"""Fairness: decide a batch of jobs with projects taking turns, instead of in queue order.

At each step every project offers the first of its jobs that could be granted in the world as it is; `vibey.domain.turn`
draws one of the projects, its job is decided, and the world moves on. A job that cannot be granted costs its project
nothing. What could be granted is found by deciding, and found again only when the world has become fuller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from vibey.domain.decide import Assign, decide
from vibey.domain.turn import highest, turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vibey.domain.assessment import Survey
    from vibey.domain.decide import Decision, Request, World
    from vibey.domain.turn import Lot


@dataclass(frozen=True, slots=True)
class Queued:
    """A queued job, and the priority it has grown to by now."""

    request: Request
    level: int


def whose_turn(heads: Sequence[tuple[str, int]], world: World) -> tuple[str, tuple[Lot, ...]]:
    """Whose turn it is, and what was drawn to find out, from the level of each project's first job, in queue order."""
    among = highest(heads)
    return turn(world.pool.key, {name: world.policy(name).weight for name in among}, world.credits)


def evolve_fairly(queue: Iterable[Queued], world: World) -> Iterator[tuple[Assign, World]]:
    """What is granted of these jobs, which come in queue order, with the world each leaves behind for the next."""
    lines = _Lines(queue, world)
    while (found := lines.next()) is not None:
        yield found, lines.world


class _Lines:
    """Each project's jobs that may still be granted, in queue order."""

    def __init__(self, queue: Iterable[Queued], world: World) -> None:
        self.world = world
        self._lines: dict[str, deque[tuple[int, Queued]]] = {}
        self._surveys: dict[tuple[object, ...], Survey] = {}
        # Projects whose first job is known to be grantable in the world as it is.
        self._ready: set[str] = set()
        for place, each in enumerate(queue):
            self._lines.setdefault(_project(each), deque()).append((place, each))

    def next(self) -> Assign | None:
        """Grant one job; None when none is left that could be."""
        heads = sorted((head for project in list(self._lines) if (head := self._head(project))), key=itemgetter(0))
        if not heads:
            return None
        project, lots = whose_turn([(_project(each), each.level) for _, each in heads], self.world)
        request = self._lines[project].popleft()[1].request
        return self._granted(replace(request, lots=lots))

    def _granted(self, request: Request) -> Assign:
        decision = self._decided(request)
        assert isinstance(decision, Assign)  # noqa: S101  (credits do not say whether a job can be granted, only where)
        before, self.world = self.world, self.world.after(decision)
        self._ready.discard(request.requirement.project)
        if self.world.full is not before.full or decision.counted:
            self._ready.clear()
        return decision

    def _head(self, project: str) -> tuple[int, Queued] | None:
        """A project's first job that can be granted now. Those before it are dropped: the world only grows fuller."""
        line = self._lines[project]
        while line:
            if project in self._ready or isinstance(self._decided(line[0][1].request), Assign):
                self._ready.add(project)
                return line[0]
            line.popleft()
        del self._lines[project]
        return None

    def _decided(self, request: Request) -> Decision:
        return decide(request, self.world, self.world.surveyed(request.requirement, self._surveys))


def _project(queued: Queued) -> str:
    return queued.request.requirement.project
