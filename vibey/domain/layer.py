"""Layers: what moves a member's configured weight for a while, each with its own end.

A *schedule* window holds at certain hours, a *preference* is a person's word, a *learned* adjustment comes from how
runs went. Layers multiply; they make the base of the member's weight, and in a pool tiered by weight also its tier.
A layer never closes a member: its factor is positive, and pausing an engine is another act.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from vibey.domain.engine import MILLION

if TYPE_CHECKING:
    from collections.abc import Iterable

MINUTE_MS = 60_000
DAY_MINUTES = 1440
DAY_MS = DAY_MINUTES * MINUTE_MS
# 1970-01-01 was a Thursday; Monday is day 0.
EPOCH_WEEKDAY = 3
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(7))


class LayerKind(StrEnum):
    """Where a layer comes from, in the order they are shown."""

    SCHEDULE = "schedule"
    PREFERENCE = "preference"
    LEARNED = "learned"


@dataclass(frozen=True, slots=True)
class Layer:
    """One factor on a member, in millionths, in force until `until_ms` (milliseconds since the Unix epoch)."""

    kind: LayerKind
    factor: int
    until_ms: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of the week, in UTC, in which a member's weight takes a factor; `until_ms` ends the whole arrangement.

    `start` and `end` are minutes of the day; an end not after its start lies on the day after. `days` are the days
    on which the window starts, Monday 0.
    """

    name: str
    member: str
    factor: int
    start: int = 0
    end: int = DAY_MINUTES
    days: frozenset[int] = EVERY_DAY
    until_ms: int | None = None

    def layer(self, now_ms: int) -> Layer | None:
        """The layer this window lays on its member now; None outside it. Its start belongs to it, its end does not."""
        if self.until_ms is not None and now_ms >= self.until_ms:
            return None
        length = self.end - self.start if self.end > self.start else self.end - self.start + DAY_MINUTES
        today = now_ms // DAY_MS
        for day in (today, today - 1):
            opens = day * DAY_MS + self.start * MINUTE_MS
            closes = opens + length * MINUTE_MS
            if (day + EPOCH_WEEKDAY) % 7 in self.days and opens <= now_ms < closes:
                until = closes if self.until_ms is None else min(closes, self.until_ms)
                return Layer(LayerKind.SCHEDULE, self.factor, until, self.name)
        return None


def scheduled(windows: Iterable[Window], now_ms: int) -> dict[str, tuple[Layer, ...]]:
    """Every member's schedule layers at an instant, in the order of the windows."""
    found: dict[str, tuple[Layer, ...]] = {}
    for window in windows:
        layer = window.layer(now_ms)
        if layer is not None:
            found[window.member] = (*found.get(window.member, ()), layer)
    return found


def product(layers: Iterable[Layer]) -> Fraction:
    """What the layers come to, exactly."""
    factor = Fraction(1)
    for layer in layers:
        factor *= Fraction(layer.factor, MILLION)
    return factor
