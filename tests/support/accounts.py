"""An account told as a story, in virtual time: when its engines may start runs, and how many, told without the domain.

There is one account with a few engines, and jobs that are all alike. The story has a clock, a queue, slots and a guard
of its own (`oracles.Guard`); of the simulation it reads only which job went to which engine, to say how many may go at
each instant, that each has a slot, and when it ends. What it counts, instant by instant, has to be what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.oracles import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Granted = tuple[int, int, str]
"""An instant in seconds, a job's number, and the engine it went to."""


@dataclass
class Going:
    """A run under way; `verdict` is how it ends and the wait it is told, None for well."""

    job: int
    engine: str
    ends: int
    verdict: tuple[str, int] | None
    is_probe: bool


@dataclass
class Account:
    """The account's books. `ill` is how runs of an engine end, with the wait for the reset; times are milliseconds."""

    slots: Mapping[str, int]
    guard: Guard
    ill: dict[str, tuple[str, int]] = field(default_factory=dict)
    going: list[Going] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    seconds: dict[int, int] = field(default_factory=dict)

    def room(self, now: int) -> dict[str, int]:
        """How many runs each engine may start now, the account's probe aside."""
        used = {name: sum(run.engine == name for run in self.going) for name in self.slots}
        phase = self.guard.phase(now)
        if phase == "open" or (phase == "half_open" and any(run.is_probe for run in self.going)):
            return dict.fromkeys(self.slots, 0)
        back = self.guard.ramp
        limits = {name: most if back is None else min(most, back) for name, most in self.slots.items()}
        return {name: max(0, limits[name] - used[name]) for name in self.slots}

    def may_start(self, now: int) -> int:
        """How many of the queued jobs start now: the one probe, or as many as there is room for."""
        room = sum(self.room(now).values())
        return min(len(self.queue), min(room, 1) if self.guard.phase(now) == "half_open" else room)

    def start(self, now: int, job: int, engine: str) -> None:
        """A queued job begins on an engine, which must have room."""
        assert self.queue[0] == job, f"at {now} job {job} went before {self.queue[0]}"
        assert self.room(now)[engine] > 0, f"at {now} job {job} went to {engine}, which had no room"
        self.queue.remove(job)
        verdict = self.ill.get(engine)
        ends = now if verdict else now + self.seconds[job] * 1000
        self.going.append(Going(job, engine, ends, verdict, self.guard.phase(now) == "half_open"))

    def end(self, now: int) -> None:
        """Whoever is done ends, in the order they began; a job that failed is queued again, in its place."""
        for run in [each for each in self.going if each.ends <= now]:
            self.going.remove(run)
            if run.verdict is None:
                self.guard.hear("success", now, None, max(self.slots.values()))
            else:
                failure, resets = run.verdict
                known = self.guard.resets
                asks_early = self.guard.phase(now) == "half_open" and known is not None and known > now
                self.guard.hear(failure, now, known if asks_early else now + resets)
                self.queue = sorted([*self.queue, run.job])

    def fall_ill(self, now: int, engine: str, failure: str, resets: int) -> None:
        """From now on every run there ends at once, also those under way."""
        self.ill[engine] = failure, resets
        for run in self.going:
            if run.engine == engine:
                run.ends, run.verdict = now, run.verdict or (failure, resets)

    def recover(self, engine: str) -> None:
        """It is well again; and a person who sees to an engine sees to the login, too."""
        self.ill.pop(engine, None)
        if self.guard.reason == "login_failed":
            self.guard = Guard(self.guard.recheck, jitter=0)

    def coming(self, now: int) -> Iterator[int]:
        """When something happens by itself."""
        yield from (run.ends for run in self.going if run.ends > now)
        if self.guard.due is not None and self.guard.due[0] > now:
            yield self.guard.due[0]


def tell(account: Account, happenings: Sequence[tuple[int, str, str, int]], granted: Sequence[Granted]) -> None:
    """Follow a simulation to its end; AssertionError where it granted what it may not, or did not what it may.

    A happening is (second, what, engine, number): a `job` of so many seconds, `up`, or a failure with so many seconds
    until its reset.
    """
    ahead, told, now, jobs = list(happenings), list(granted), 0, 0
    while True:
        instants = [*account.coming(now), *(each[0] * 1000 for each in ahead[:1])]
        if not instants:
            break
        now = min(instants)
        present = [each for each in ahead if each[0] * 1000 == now]
        ahead = ahead[len(present) :]
        for _, what, engine, number in present:
            if what == "up":
                account.recover(engine)
            elif what != "job":
                account.fall_ill(now, engine, what, number * 1000)
        account.end(now)
        for _, what, _, number in present:
            if what == "job":
                jobs += 1
                account.seconds[jobs] = number
                account.queue.append(jobs)
        while count := account.may_start(now):
            for at, job, engine in told[:count]:
                assert at == now, f"at {now} {count} could start, but the next did at {at}"
                account.start(now, job, engine)
            assert len(told) >= count, f"at {now} {count} could start, and nothing did"
            told = told[count:]
            account.end(now)
    assert not told, f"{told[0]} was not to be"
