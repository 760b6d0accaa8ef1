"""Queue: the jobs of a simulation that are due, by group, so that a pass costs what changes and not what waits.

Jobs that ask for the same form a group. Between two assignments of a pass the world stands still, so all jobs of a
group that come up meanwhile get one answer. Lines are owed only to jobs whose answer is news to them: those queued
since the last pass, or all of the group when its answer has changed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vibey.domain.decide import Request
from vibey.domain.effort import effort_of
from vibey.domain.requirement import Requirement, conversation
from vibey.domain.turn import standing
from vibey.simulate.line import END, FRONT, Line, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.domain.assessment import Survey
    from vibey.domain.decide import Prospect
    from vibey.domain.effort import Effort
    from vibey.domain.offer import Mode
    from vibey.domain.turn import Lot
    from vibey.simulate.line import Place
    from vibey.simulate.trace import Arrival

Answer = tuple[str, str]
"""Outcome (hold, wait) and reason."""


@dataclass(slots=True, eq=False)
class Job:
    """A job on its way. `attempts` are used up; the rest is what its next attempt asks, as on a live installation."""

    number: int
    arrival: Arrival
    shown: str
    effort: Effort
    standing: int
    attempts: int = 0
    refunds: int = 0
    handoffs: int = 0
    avoided: frozenset[str] = frozenset()
    handed_off: frozenset[str] = frozenset()
    affinity: str | None = None
    due_ms: int = 0
    held_ms: int | None = None
    told: Answer | None = None
    waits: bool = False
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = place_of(self.standing, self.number)

    @classmethod
    def of(cls, number: int, arrival: Arrival, shown: str, age_ms: int) -> Job:
        """A job that has just arrived; waiting jobs gain one priority every `age_ms`."""
        stands = standing(arrival.priority, arrival.at_ms, age_ms)
        return cls(number, arrival, shown, effort_of(1, arrival.effort), stands, due_ms=arrival.at_ms)

    def requirement(self) -> Requirement:
        """What its next attempt asks for."""
        arrival = self.arrival
        return Requirement(
            pool="main",
            project=arrival.project,
            effort=self.effort,
            capabilities=arrival.requires,
            excluded=arrival.exclude,
            avoided=self.avoided,
            affinity=self.affinity,
            handed_off=self.handed_off,
        )

    def request(self, requirement: Requirement, now_ms: int, lots: tuple[Lot, ...] = ()) -> Request:
        """Its next attempt as the domain sees it."""
        waited_ms = 0 if self.held_ms is None else now_ms - self.held_ms
        session = conversation(self.arrival.project, self.arrival.session)
        return Request(self.number, self.attempts + 1, requirement, waited_ms, session, lots)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a group's jobs can look forward to: whether any can be granted, with `held_first` only ripe ones.

    `answer` is what the others get, None where there are none.
    """

    room: bool
    held_first: bool
    answer: Answer | None

    @classmethod
    def of(cls, prospect: Prospect) -> Outlook:
        """The outlook a prospect means."""
        waiting = prospect.waiting
        answer = None if waiting is None else ("hold" if prospect.held_first else "wait", waiting)
        return cls(prospect.room > 0, prospect.held_first, answer)


@dataclass(slots=True)
class Surveys:
    """What a group is worth knowing of while the fleet is as in its state of this number.

    Surveys by affinity; outlooks by all they depend on besides: which engines are full, whether a unit of the cap is
    left, and the project's mode.
    """

    state: int
    by_affinity: dict[str | None, Survey] = field(default_factory=dict)
    outlooks: dict[tuple[frozenset[str], bool, Mode], Outlook] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Group:
    """The due jobs of one requirement, in queue order; `ripe` are those held for the threshold.

    `answers` are those of the pass under way, each with the place it holds from; where all jobs are granted there are
    none. `told` are those of the last pass, which is what all jobs know but the `fresh`.
    """

    requirement: Requirement
    line: Line = field(default_factory=Line)
    jobs: dict[Place, Job] = field(default_factory=dict)
    ripe: Line = field(default_factory=Line)
    held: list[tuple[int, Place]] = field(default_factory=list)
    fresh: list[Place] = field(default_factory=list)
    outlook: Outlook | None = None
    answers: list[tuple[Place, Answer]] = field(default_factory=list)
    told: list[tuple[Place, Answer]] = field(default_factory=list)
    surveys: Surveys = field(default_factory=lambda: Surveys(0))
    request: Request = field(init=False)

    def __post_init__(self) -> None:
        self.request = Request(0, 1, self.requirement)

    def add(self, job: Job) -> None:
        """Take a job in."""
        place = job.place
        self.line.add(place)
        self.jobs[place] = job
        self.fresh.append(place)
        if job.held_ms is not None:
            heapq.heappush(self.held, (job.held_ms, place))

    def take(self, place: Place) -> Job:
        """Take a job out."""
        self.line.remove(place)
        if self.ripe and place in self.ripe:
            self.ripe.remove(place)
        return self.jobs.pop(place)

    def hold(self, job: Job, now_ms: int) -> None:
        """Note a job's first hold of its attempt."""
        job.held_ms = now_ms
        heapq.heappush(self.held, (now_ms, job.place))

    def ripen(self, since_ms: int) -> None:
        """Count those held since then, or before, as held for long enough."""
        while self.held and self.held[0][0] <= since_ms:
            held_ms, place = heapq.heappop(self.held)
            job = self.jobs.get(place)
            if job is not None and job.held_ms == held_ms and place not in self.ripe:
                self.ripe.add(place)

    def see(self, outlook: Outlook, place: Place) -> None:
        """Note what the group can look forward to from a place of the queue on; at its front, to all of them."""
        if place == FRONT:
            self.answers = []
        self.outlook = outlook
        answer, answers = outlook.answer, self.answers
        if answer is not None and (not answers or answers[-1][1] != answer):
            answers.append((place if answers else FRONT, answer))

    def join(self) -> None:
        """Take part in a pass under way, up to which it stood."""
        self.answers = [*self.told]

    @property
    def stands(self) -> bool:
        """Whether all its jobs have been told what they would be told again while nothing moves."""
        return len(self.told) == 1 and not self.fresh and not self.ripe

    def following(self, place: Place) -> Place | None:
        """The first job behind a place that could be granted now."""
        if self.outlook is None or not self.outlook.room:
            return None
        return (self.ripe if self.outlook.held_first else self.line).after(place)

    @property
    def owes(self) -> bool:
        """Whether a pass that has ended may be news to some job; if not, what it found is forgotten."""
        if not self.answers:
            self.fresh.clear()
            return False
        if self.fresh or self.answers != self.told:
            return True
        self.answers = []
        return False

    def owed(self) -> Iterator[tuple[Job, Answer]]:
        """The jobs whose answer is news to them, once a pass has ended; after this they count as told."""
        answers, places = self.answers, self.fresh
        if answers != self.told:
            places = [each for start, end in _changed(self.told, answers) for each in self.line.between(start, end)]
            places += self.fresh
        self.answers, self.told, self.fresh = [], answers, []
        starts = [start for start, _ in answers]
        for place in places:
            job = self.jobs.get(place)
            if job is None:
                continue
            answer = answers[bisect_right(starts, place) - 1][1]
            if job.told != answer:
                job.told = answer
                yield job, answer


def _changed(before: list[tuple[Place, Answer]], after: list[tuple[Place, Answer]]) -> Iterator[tuple[Place, Place]]:
    """The stretches of the queue for which two lists of answers differ."""
    starts = sorted({start for start, _ in (*before, *after)})
    for start, end in zip(starts, [*starts[1:], END], strict=True):
        if _at(before, start) != _at(after, start):
            yield start, end


def _at(answers: list[tuple[Place, Answer]], place: Place) -> Answer | None:
    return next((answer for start, answer in reversed(answers) if start <= place), None)


_Asked = tuple[str, "Effort", frozenset[str], frozenset[str], frozenset[str], frozenset[str]]


class Queue:
    """All due jobs, by group."""

    def __init__(self) -> None:
        self._groups: dict[_Asked, Group] = {}
        self.length = 0

    def add(self, job: Job) -> None:
        """Queue a job that is due."""
        arrival = job.arrival
        asked = (arrival.project, job.effort, arrival.requires, arrival.exclude, job.avoided, job.handed_off)
        group = self._groups.get(asked)
        if group is None:
            group = self._groups[asked] = Group(replace(job.requirement(), affinity=None))
        group.add(job)
        job.waits = True
        self.length += 1

    def take(self, group: Group, place: Place) -> Job:
        """Take a job that was granted out of its group."""
        self.length -= 1
        group.jobs[place].waits = False
        return group.take(place)

    def groups(self) -> list[Group]:
        """The groups that have a job; those that have none are forgotten when they are many."""
        live = [group for group in self._groups.values() if group.line]
        if len(self._groups) > 2 * len(live) + 64:
            self._groups = {asked: group for asked, group in self._groups.items() if group.line}
        return live

    @property
    def held(self) -> int:
        """How many jobs are held because overflow could follow."""
        return sum(job.told is not None and job.told[0] == "hold" for job in self._waiting())

    def jobs(self) -> Iterator[Job]:
        """Every due job, in queue order."""
        yield from sorted(self._waiting(), key=lambda job: job.place)

    def _waiting(self) -> Iterator[Job]:
        return (job for group in self._groups.values() for job in group.jobs.values())
