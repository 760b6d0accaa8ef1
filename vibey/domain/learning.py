"""Learning: what the record of an engine's runs says about its weight. It only ever lowers, and only for a while.

Judged are runs whose end says something about the engine: it did the work, or failed by its own fault. What the
judgement is made of never depends on a factor laid earlier, so that a review repeated finds the same again and nothing
compounds. An engine that gets so little work that too few runs are left to judge it by is not judged: the factor
lapses, and the next runs decide anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from vibey.domain.engine import MILLION

LEAST_RUNS = 5
# Of so many runs in a hundred, at least, failed: the factor in millionths; worst first.
STEPS = ((50, MILLION // 10), (20, MILLION // 2))


@dataclass(frozen=True, slots=True)
class History:
    """An engine's runs in the window that say something about it, and how many of them failed."""

    engine: str
    runs: int
    failed: int


def learned(history: History) -> int | None:
    """The factor on the engine's weight, in millionths; None when there is no ground to lower it."""
    if history.runs < LEAST_RUNS:
        return None
    return next((factor for percent, factor in STEPS if history.failed * 100 >= history.runs * percent), None)
