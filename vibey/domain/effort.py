"""Effort: how hard a job asks its engine to try, and the ladder that raises it with attempts."""

from __future__ import annotations

from enum import IntEnum


class Effort(IntEnum):
    """Ordered levels; `ULTRA` is only ever asked for, never reached by the ladder."""

    TRIVIAL = 0
    LOW = 1
    STANDARD = 2
    HIGH = 3
    MAX = 4
    ULTRA = 5

    @classmethod
    def named(cls, name: str) -> Effort:
        """The level with this lower-case name; KeyError when there is none."""
        return cls[name.upper()]

    @property
    def label(self) -> str:
        """The lower-case name used in configuration, command line and JSON."""
        return self.name.lower()


LADDER = (Effort.LOW, Effort.LOW, Effort.STANDARD, Effort.STANDARD, Effort.HIGH)


def effort_of(attempt: int, asked: Effort) -> Effort:
    """Effort of the given attempt (counted from 1): the job's own, or the ladder's if that is higher."""
    step = min(max(attempt, 1), len(LADDER)) - 1
    return max(asked, LADDER[step])


def rises(attempt: int, asked: Effort) -> bool:
    """Whether this attempt asks for more than the one before it did."""
    return attempt > 1 and effort_of(attempt, asked) > effort_of(attempt - 1, asked)


def achieved(requested: Effort, offered: tuple[Effort, ...]) -> Effort:
    """What an engine offering these levels really reaches: the highest not above the request, else its lowest.

    An engine that declares no levels is taken at its word and reaches any.
    """
    if not offered:
        return requested
    fitting = [level for level in offered if level <= requested]
    return max(fitting) if fitting else min(offered)
