"""Preview: what a pool tree would do, without doing it. Spends no credit and touches no memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vibey.domain.rotation import UNIT
from vibey.domain.selection import Field, active, select, shares_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vibey.domain.pool import Pool
    from vibey.domain.selection import CreditKey


def expected_shares(pool: Pool, seen: Field) -> dict[str, int]:
    """The part of the next picks each engine is offered, of `UNIT`; engines of idle lower classes are not in it.

    The root's whole is handed down: a pool gives all it has to its active class, split by share. The parts sum to
    `UNIT` but for less than one for each engine, lost in the splitting, and to 0 when nothing is free.
    """
    return dict(_handed_down(pool, seen, UNIT))


def attempt_order(pool: Pool, seen: Field, credits: Mapping[CreditKey, int]) -> list[str]:
    """Every free engine once, in the order in which one dispatch would turn to them if each refused."""
    order: list[str] = []
    while selection := select(pool, seen, credits):
        order.append(selection.engine)
        seen = replace(seen, offered={name: each for name, each in seen.offered.items() if name != selection.engine})
    return order


def _handed_down(pool: Pool, seen: Field, mass: int) -> Iterator[tuple[str, int]]:
    found = active(pool, seen)
    if found is None:
        return
    _, members, _ = found
    for member, share in zip(members, shares_of(pool, members, seen), strict=True):
        part = mass * share // UNIT
        if member.pool is None:
            yield member.key, part
        else:
            yield from _handed_down(member.pool, seen, part)
