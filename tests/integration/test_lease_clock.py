"""Leases under ticks that are late, a database that goes away, a machine that sleeps and a clock that is set.

Time is virtual: the test sets the clock of its database, and plays beat, holders and outages against it. Each schedule
is played with a run whose holder renews, and one whose holder is dead from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clock import DatabaseClock
from tests.support.installation import Bench, noop
from vibey.services.audit import audit
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.tick import tick
from vibey.store import runs

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 60.0
GAP = LEASE / 10
JUDGED = LEASE * 6 / 5
SAFE = LEASE * 0.9
"""A holder that could not renew has killed what it started so long after its last renewal."""
HOUR = 3600.0
RETRY = 1.0
MINUTE = 60.0


@dataclass(frozen=True)
class Part:
    """Some time of a schedule: ticks so far apart, at most; before it a gap of some kind, and a step of the clock.

    In a gap neither ticks nor renewals reach the database. After it a tick is always first.
    """

    seconds: float
    spacing: float = 5.0
    gap: float = 0.0
    step: float = 0.0
    beat_away: bool = False
    """Whether only ticks are missing in the gap, and holders renew."""


@dataclass
class Play:
    """One schedule, played on an installation whose two engines have a run each."""

    bench: Bench
    clock: DatabaseClock
    healthy: tuple[int, int]
    dead: tuple[int, int]
    now: float = 0.0
    next_renewal: float = LEASE / 3
    ended_at: float | None = None
    ticks: list[float] = field(default_factory=list)

    def play(self, parts: list[Part]) -> None:
        """Play all parts; but not further than it takes, once the dead run has been ended, for a renewal."""
        for part in parts:
            self._gap(part)
            ends = self.now + part.seconds
            next_tick = self.now
            while next_tick <= ends:
                self._until(next_tick)
                self._tick()
                next_tick += part.spacing
                if self.ended_at is not None:
                    return self._until(self.next_renewal)
            self._until(ends)
        return None

    def _gap(self, part: Part) -> None:
        if part.beat_away:
            self._until(self.now + part.gap)
        else:
            self._pass(part.gap)
            self.next_renewal = max(self.next_renewal, self.now + RETRY) if part.gap else self.next_renewal
        if part.step:
            self.clock.move(part.step)

    def _until(self, instant: float) -> None:
        """Let time pass, with the renewals of the healthy holder."""
        while self.next_renewal <= instant:
            self._pass(max(0.0, self.next_renewal - self.now))
            self.renew()
            self.next_renewal = self.now + LEASE / 3
        self._pass(instant - self.now)

    def _pass(self, seconds: float) -> None:
        if seconds > 0:
            self.clock.move(seconds)
            self.now += seconds

    def renew(self) -> None:
        """Renew the lease of the healthy run, which must not have been ended."""
        run, token = self.healthy
        renewed = self.bench.installation.database.statement(
            lambda connection: runs.RENEW.first(connection, run=run, token=token, lease_ms=LEASE * 1000, tail=None)
        )
        assert renewed is not None, f"the healthy run was ended by {self.now} s, ticks at {self.ticks}"

    def _tick(self) -> None:
        done = tick(self.bench.installation)
        self.ticks.append(self.now)
        if done.lost:
            assert self.ended_at is None
            self.ended_at = self.now


@pytest.fixture
def clock(database_url: str) -> DatabaseClock:
    """The clock of this test's database; it stands."""
    return DatabaseClock(database_url, standing=True)


@pytest.fixture
def bench(clock: DatabaseClock, open_bench: Callable[..., Bench]) -> Bench:  # noqa: ARG001  before the first session
    """Two engines with a slot each, and leases of a minute."""
    return open_bench(engine={"l": noop(), "m": noop()}, engines={"lease_seconds": int(LEASE), "mode": "singleton"})


def played(bench: Bench, clock: DatabaseClock, parts: list[Part]) -> Play:
    """A schedule, played, with what holds for each: the healthy run was never ended, nor the dead one too early."""
    end_all(bench)
    bench.staff()
    bench.enqueue(2, max_attempts=1)
    route(bench.installation, "main")
    healthy, dead = ((run, token) for run, token, _ in bench.live())
    for run, token in (healthy, dead):
        assert _start(bench.installation, run, token) is not None
    play = Play(bench, clock, healthy, dead)
    play.play(parts)
    play.renew()
    assert play.ended_at is None or play.ended_at >= SAFE
    return play


def end_all(bench: Bench) -> None:
    """Let every lease be over."""
    bench.rows("update installation set lease_clock_ms = lease_clock_ms + 1000000, last_tick_at = clock_timestamp()")
    tick(bench.installation)
    assert bench.rows("select 1 from jobs where ended_at is null") == []


SCHEDULES = {
    "ticks on time": ([Part(2 * MINUTE)], JUDGED + 5),
    "ticks always late, by a little": ([Part(3 * MINUTE, spacing=8)], 13 * 8),
    "ticks always more than a third of a lease apart": ([Part(5 * MINUTE, spacing=22)], 13 * 22),
    "ticks always more than a lease apart": ([Part(20 * MINUTE, spacing=90)], 13 * 90),
    "beat away for hours and back": ([Part(30), Part(2 * MINUTE, gap=3 * HOUR, beat_away=True)], 3 * HOUR + JUDGED + 5),
    "beat away for hours, again and again": (
        [Part(5, gap=2 * HOUR, beat_away=True) for _ in range(10)],
        8 * (2 * HOUR + 5),
    ),
    "the database away for hours and back": ([Part(30), Part(2 * MINUTE, gap=3 * HOUR)], 3 * HOUR + JUDGED + 5),
    "a database that restarts every minute": ([Part(50, gap=10) for _ in range(4)], 60 + JUDGED),
    "a database that is there a few seconds of each minute": ([Part(5, gap=55) for _ in range(10)], 8 * MINUTE),
    "a laptop that is closed and opened again": ([Part(5, gap=HOUR) for _ in range(10)], 8 * (HOUR + 5)),
    "the clock set forward": ([Part(20), Part(2 * MINUTE, step=2 * HOUR)], JUDGED + 5),
    "the clock set back": ([Part(20), Part(2 * MINUTE, step=-2 * HOUR)], JUDGED + 5),
    "the clock set forward and back": (
        [Part(20, step=2 * HOUR), Part(20, step=-2 * HOUR), Part(2 * MINUTE)],
        JUDGED + 5,
    ),
    "a clock that is set back every minute": ([Part(60, step=-HOUR) for _ in range(3)], JUDGED + 5),
    "a clock that goes back and forth": (
        [Part(30, step=(-1) ** number * HOUR) for number in range(6)],
        JUDGED + 10,
    ),
    "late ticks, restarts and steps": (
        [Part(30, spacing=7, gap=20, step=step) for step in (0, HOUR, -HOUR, 0, 0, 30, -30, 0)],
        5 * MINUTE,
    ),
}


def test_the_schedules(bench: Bench, clock: DatabaseClock) -> None:
    """In each the dead run is ended within the bound that is stated, and the healthy one is not."""
    for name, (parts, bound) in SCHEDULES.items():
        play = played(bench, clock, parts)
        assert play.ended_at is not None, f"{name}: the dead run was never ended"
        assert play.ended_at <= bound, f"{name}: the dead run was ended after {play.ended_at} s, not {bound}"
    end_all(bench)
    assert audit(bench.installation).violations == ()


parts = st.builds(
    Part,
    seconds=st.sampled_from((2.0, 5.0, 30.0)),
    spacing=st.sampled_from((2.5, 7.0, 30.0)),
    gap=st.sampled_from((0.0, 0.0, 3.0, 20.0, 90.0, HOUR)),
    step=st.sampled_from((0.0, 0.0, 0.0, -HOUR, -30.0, -2.0)),
    beat_away=st.booleans(),
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(parts, min_size=1, max_size=8))
def test_any_schedule(bench: Bench, clock: DatabaseClock, drawn: list[Part]) -> None:
    """The dead run is ended when its lease is over by what ticks counted, and nothing else puts that off."""
    play = played(bench, clock, [*drawn, Part(JUDGED + 10)])
    assert play.ended_at is not None
    late = [(later - earlier) for earlier, later in zip([0.0, *play.ticks], play.ticks, strict=False)]
    steps = sum(GAP for part in drawn if part.step < 0)
    uncounted = sum(gap - GAP for gap in late if gap > GAP)
    assert play.ended_at <= JUDGED + GAP + uncounted + steps
