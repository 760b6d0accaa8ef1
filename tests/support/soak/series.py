"""Series: what was seen of one subject by one measure, a track for each process or other thing it was seen of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

Point = tuple[float, float]
"""Seconds since the beginning, and the value then."""

MEMORY = "memory"
MOST_POINTS = 120
FEWEST_POINTS = 8
FIFTH = 5
# The median distance from the median, as a standard deviation of a bell curve.
DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class Track:
    """Points of one thing in order of time, two at least."""

    points: tuple[Point, ...]

    @property
    def seconds(self) -> float:
        """From its first point to its last."""
        return self.points[-1][0] - self.points[0][0]

    @property
    def first(self) -> float:
        """The median of its first fifth."""
        return median(value for _, value in self.points[: self._fifth])

    @property
    def last(self) -> float:
        """The median of its last fifth."""
        return median(value for _, value in self.points[-self._fifth :])

    @property
    def _fifth(self) -> int:
        return max(1, len(self.points) // FIFTH)

    @property
    def halves(self) -> tuple[Track, Track]:
        """The first half of its points, and the second."""
        middle = len(self.points) // 2
        return Track(self.points[:middle]), Track(self.points[middle:])

    @property
    def slope(self) -> float:
        """Theil and Sen's: the median of the slopes between any two points, in units a second.

        Nearly a third of the points may be anything at all without moving it far.
        """
        points = thinned(self.points)
        return median(
            (later - value) / (then - at)
            for place, (at, value) in enumerate(points)
            for then, later in points[place + 1 :]
        )

    def chance(self, slope: float) -> float:
        """By how much the points' swing about a line of this slope may alone make its end seem to be off."""
        points = thinned(self.points)
        off = [value - slope * at for at, value in points]
        usual = median(off)
        deviation = DEVIATION * median(abs(each - usual) for each in off)
        return 2 * deviation * math.sqrt(12 / len(points))


@dataclass(slots=True)
class Series:
    """One subject by one measure: bytes of `memory`, else a count. Tracks by the number of what was seen."""

    subject: str
    measure: str
    seen: dict[int, list[Point]] = field(default_factory=dict)

    def add(self, number: int, at: float, value: float) -> None:
        """Note a value."""
        self.seen.setdefault(number, []).append((at, value))

    def tracks(self, warm: float, settling: float) -> list[Track]:
        """What is judged: points after the first `warm` seconds, and after each thing's own first `settling` ones.

        Things that were not there for long enough are left out: a process that ended leaks no more.
        """
        found = []
        for points in self.seen.values():
            begin = max(warm, points[0][0] + settling)
            judged = tuple(point for point in points if point[0] >= begin)
            if len(judged) >= FEWEST_POINTS:
                found.append(Track(judged))
        return found


def thinned(points: tuple[Point, ...]) -> list[Point]:
    """At most `MOST_POINTS` points for as many as there are: the medians of neighbours."""
    size = -(-len(points) // MOST_POINTS)
    pieces = (points[start : start + size] for start in range(0, len(points), size))
    return [(median(at for at, _ in piece), median(value for _, value in piece)) for piece in pieces]
