"""Moment: one instant on the two clocks a lease is judged by."""

from __future__ import annotations

import time
from dataclasses import dataclass

from vibey.engines.supervisor import BOOT_CLOCK

_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """Nanoseconds of the monotonic clock, and of the clock that goes on while the machine sleeps.

    Both are shared by every process of this boot, so a moment means the same on either side of a socket.
    """

    monotonic_ns: int
    boot_ns: int

    @classmethod
    def now(cls) -> Moment:
        """This instant."""
        return cls(time.monotonic_ns(), time.clock_gettime_ns(BOOT_CLOCK))

    def plus(self, seconds: float) -> Moment:
        """The instant so many seconds later (earlier, if negative)."""
        shift = int(seconds * _BILLION)
        return Moment(self.monotonic_ns + shift, self.boot_ns + shift)

    def awake_seconds_since(self, earlier: Moment) -> float:
        """How long after the earlier moment it came, not counting sleep."""
        return (self.monotonic_ns - earlier.monotonic_ns) / _BILLION

    def has_come(self) -> bool:
        """Whether either clock has reached it: after a sleep, the one that counted the sleep is first."""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """How long until it comes by either clock, never negative."""
        now = Moment.now()
        left = min(self.monotonic_ns - now.monotonic_ns, self.boot_ns - now.boot_ns)
        return max(0.0, left / _BILLION)

    def has_come_awake(self) -> bool:
        """Whether it has come, not counting sleep."""
        return self.awake_seconds_left() <= 0

    def awake_seconds_left(self) -> float:
        """How long until it comes, not counting sleep, never negative: nobody is silent or late while asleep."""
        return max(0.0, (self.monotonic_ns - time.monotonic_ns()) / _BILLION)
