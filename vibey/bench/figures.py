"""Figures: what a measurement found, round by round, and the bar it is held against."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit: the least a figure may be, or with `ceiling` the most."""

    limit: float
    ceiling: bool = False

    def met(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        return value <= self.limit if self.ceiling else value >= self.limit

    @override
    def __str__(self) -> str:
        """As a person writes it."""
        return f"{'≤' if self.ceiling else '≥'} {self.limit:,g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity: a sample from each round, in `unit`. Without a bar it is there for context."""

    row: str
    what: str
    unit: str
    samples: tuple[float, ...]
    bar: Bar | None = None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.samples)

    @property
    def met(self) -> bool | None:
        """Whether the median keeps the bar; None without one."""
        return None if self.bar is None else self.bar.met(self.median)

    def to_json(self) -> dict[str, Any]:
        """The figure as JSON values; `low` and `high` are the spread over the rounds."""
        return {
            "row": self.row,
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "low": min(self.samples),
            "high": max(self.samples),
            "samples": list(self.samples),
            "bar": str(self.bar) if self.bar else None,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. `quick` is the form for continuous integration: everything once and small."""

    rounds: int
    quick: bool = False

    def pick(self, full: int, quick: int) -> int:
        """The count that suits the scale."""
        return quick if self.quick else full

    def in_turn(self, *sides: Callable[[], float]) -> list[tuple[float, ...]]:
        """Measure the sides in turn, A B A B, and return the samples of each."""
        found: list[list[float]] = [[] for _ in sides]
        for number in range(self.rounds):
            for samples, side in zip(found, sides, strict=True):
                samples.append(side())
            say(f"  round {number + 1} of {self.rounds}")
        return [tuple(samples) for samples in found]


def percentiles(rounds: Sequence[Sequence[float]], part: int) -> tuple[float, ...]:
    """Of each round, the value that so many percent of its own do not exceed."""
    return tuple(statistics.quantiles(each, n=100, method="inclusive")[part - 1] for each in rounds)


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """The ratio of each round's pair."""
    return tuple(one / other for one, other in zip(above, below, strict=True))


def rate(count: int, work: Callable[[], object]) -> float:
    """How many of `count` things a second `work` does; seconds of the monotonic clock."""
    began = perf_counter()
    work()
    return count / (perf_counter() - began)


def say(line: str) -> None:
    """Tell whoever waits how far it is, on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
