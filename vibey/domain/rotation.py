"""Smooth weighted round robin, with credits kept in share units.

nginx's algorithm (commit 52327e0627f4, 2012) divided by the total weight: on each draw every member gains its
share and the winner, the one with the largest credit, pays one whole unit. Dividing makes the state independent
of the scale of the weights: at any time credit = entitlement − picks, and the credits of a class sum to 0,
whatever happens to weights and membership in between. Members that take no part are frozen.

A unit is 10^12. Shares are apportioned by largest remainder so that they sum to the unit exactly. Credits less
than half a millionth apart count as equal, because the remainders of that apportionment would otherwise break ties
wrongly. (Rounding each credit to a grid would not do: a tie that lies on the grid's edge still breaks, as does the
ninth pick among 715, 106, 331.)
"""

from __future__ import annotations

from functools import lru_cache
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

UNIT = 10**12
TIE = UNIT // 2_000_000


@lru_cache(maxsize=4096)
def shares(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Each member's share of the unit, in proportion to its weight, by largest remainder; they sum to `UNIT`.

    Weights are non-negative integers with a positive sum. Equal remainders go to the earlier member.
    """
    total = sum(weights)
    floors = [weight * UNIT // total for weight in weights]
    remainders = [weight * UNIT % total for weight in weights]
    missing = UNIT - sum(floors)
    for index in sorted(range(len(weights)), key=lambda i: -remainders[i])[:missing]:
        floors[index] += 1
    return tuple(floors)


def draw(credits: Sequence[int], gains: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """One pick: the winner's index and every credit after it.

    `credits` and `gains` run parallel, in declared order; ties go to the earlier member.
    """
    after = list(map(add, credits, gains))
    least = max(after) - TIE
    winner = [value > least for value in after].index(True)
    after[winner] -= UNIT
    return winner, tuple(after)


def charge(credits: Sequence[int], gains: Sequence[int], chosen: int) -> tuple[int, ...]:
    """Every credit after a pick that was made without a draw, and is paid for like one."""
    after = list(map(add, credits, gains))
    after[chosen] -= UNIT
    return tuple(after)
