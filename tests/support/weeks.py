"""Weeks of a few local slots under a constant load, in virtual time, measured daily: how steady is the mode?"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from vibey.domain.measure import Demand, Judge, judge
from vibey.domain.offer import Mode

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
RULES = Judge(overflow_after_ms=10 * MINUTE, window_hours=168, min_sessions=20, min_contention=250_000)
CAP = 10
LOCAL = frozenset({"local"})


@dataclass
class Weeks:
    """Attempts come at random and run for random times; what really happens follows the mode in force.

    `load` is the share of the local slots that all attempts together would keep busy. First come, first served. Under
    hybrid an attempt that waited the threshold is overflowed, at most `CAP` a day. The measurement sees what an
    installation would have recorded by then: the running time of each ended local run, the time so far of one that
    still runs, and the median for all others.
    """

    load: float
    seed: int
    slots: int = 1
    mean_ms: int = 40 * MINUTE
    modes: list[Mode] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set the clock to zero."""
        self._chance = random.Random(self.seed)
        self._free_at = [0] * self.slots
        self._next_at = self._gap()
        self._queue: deque[tuple[int, int]] = deque()
        self._ran: list[tuple[int, int, int | None, int]] = []
        self._overflows: dict[int, int] = {}

    def live(self, weeks: int) -> list[Mode]:
        """Live so long, once; the mode measured at each day's end."""
        mode = Mode.SINGLETON
        for day in range(1, weeks * 7 + 1):
            self._until(day * DAY, mode)
            mode = judge(self._recorded(day * DAY), {"local": self.slots}, "p", RULES, mode).winner
            self.modes.append(mode)
        return self.modes

    @property
    def changes(self) -> int:
        """How often the mode changed, from singleton on."""
        return sum(before is not after for before, after in pairwise([Mode.SINGLETON, *self.modes]))

    def _gap(self) -> int:
        return int(self._chance.expovariate(self.load * self.slots / self.mean_ms))

    def _until(self, end: int, mode: Mode) -> None:
        while self._next_at < end:
            self._queue.append((self._next_at, int(self._chance.uniform(0.5, 1.5) * self.mean_ms)))
            self._next_at += self._gap()
        while self._queue:
            looked_at, running = self._queue[0]
            start = max(looked_at, self._free_at[0])
            leaves_at = looked_at + RULES.overflow_after_ms
            day = leaves_at // DAY
            patient = mode is Mode.SINGLETON or start <= leaves_at or self._overflows.get(day, 0) >= CAP
            if (start if patient else leaves_at) >= end:
                return
            self._queue.popleft()
            if patient:
                heapq.heapreplace(self._free_at, start + running)
                self._ran.append((looked_at, start, start + running, running))
            else:
                self._overflows[day] = self._overflows.get(day, 0) + 1
                self._ran.append((looked_at, leaves_at, None, running))

    def _recorded(self, now: int) -> list[Demand]:
        since = now - RULES.window_hours * 60 * MINUTE
        self._ran = [each for each in self._ran if each[0] > since]
        known = [
            (looked_at, None if end is None else min(running, now - start))
            for looked_at, start, end, running in self._ran
        ]
        known += [(looked_at, None) for looked_at, _ in self._queue if looked_at > since]
        local = sorted(running for _, running in known if running is not None)
        usual = local[(len(local) - 1) // 2] if local else 0
        return [
            Demand(number, 1, "p", 0, looked_at, usual if running is None else running, LOCAL)
            for number, (looked_at, running) in enumerate(sorted(known, key=lambda each: each[0]))
        ]
