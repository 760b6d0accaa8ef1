"""A second telling of how a pool tree is walked, in exact fractions and without the code under test.

It shares `Pool` and `Member` as plain data (key, select, members, weights, tiers, layers) and nothing they compute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from vibey.domain.pool import Select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from vibey.domain.pool import Member, Pool

MILLION = 10**6
# Two credits closer than this, yet unequal, are a draw the stored credits may decide either way.
NEAR = Fraction(1, 10**6)


def leaves(member: Member) -> list[str]:
    """The engines under a member."""
    if member.pool is None:
        return [member.key]
    return [name for each in member.pool.members for name in leaves(each)]


def laid(member: Member) -> Fraction:
    """A member's layers as one factor."""
    factor = Fraction(1)
    for layer in member.layers:
        factor *= Fraction(layer.factor, MILLION)
    return factor


def leaf_factors(member: Member) -> Iterator[Fraction]:
    """The layers on the way from below a member to each of its engines."""
    if member.pool is None:
        yield Fraction(1)
        return
    for each in member.pool.members:
        for factor in leaf_factors(each):
            yield laid(each) * factor


def standing(member: Member) -> Fraction:
    """The weight a member stands at: its own, its layers, and the mean of what lies below."""
    own = Fraction(MILLION if member.weight is None else member.weight, MILLION)
    below = list(leaf_factors(member))
    return own * laid(member) * sum(below, Fraction(0)) / len(below)


class Ambiguous(Exception):
    """Two credits are so near that exact fractions and stored credits may part."""


@dataclass
class Walker:
    """A tree with engines' weights, and the rotation's state in fractions; `picks` and `entitled` by (pool, member)."""

    pool: Pool
    weights: Mapping[str, int]
    credit: dict[tuple[str, str], Fraction] = field(default_factory=dict)

    def order(self, pool: Pool, opened: Collection[str], demoted: Collection[str]) -> list[list[Member]]:
        """The open members in classes, best first."""
        live = [member for member in pool.members if self._open(member, opened)]
        if pool.select is Select.WEIGHTED:
            return [live] if live else []
        ranks: dict[tuple[object, ...], list[Member]] = {}
        for place, member in enumerate(pool.members):
            if member not in live:
                continue
            last = self.is_demoted(member, opened, demoted)
            if pool.select is Select.ORDERED:
                rank: Fraction | int = -place
            elif pool.by_weight:
                rank = standing(member)
            else:
                rank = member.tier or 0
            ranks.setdefault((last, -rank), []).append(member)
        return [ranks[key] for key in sorted(ranks)]

    def is_demoted(self, member: Member, opened: Collection[str], demoted: Collection[str]) -> bool:
        """Whether everything open under a member is demoted."""
        return all(name in demoted for name in leaves(member) if name in opened)

    def draw(self, opened: Collection[str], demoted: Collection[str] = ()) -> str | None:
        """One walk that pays; raises `Ambiguous` where nobody could say."""
        pool: Pool | None = self.pool
        chosen = None
        while pool is not None:
            classes = self.order(pool, opened, demoted)
            if not classes:
                return None
            member = self._taken(pool, classes[0], opened, demoted)
            pool, chosen = member.pool, member.key
        return chosen

    def shares(
        self, pool: Pool, members: list[Member], opened: Collection[str], demoted: Collection[str]
    ) -> list[Fraction]:
        """The share of each member of one class."""
        if pool.select is Select.TIERED and pool.by_weight:
            return [Fraction(1, len(members))] * len(members)
        raw = []
        for member in members:
            weight = standing(member)
            if member.pool is None and member.weight is None:
                weight = Fraction(self.weights[member.key], MILLION) * laid(member)
            # Weights that are shared by are whole millionths; only those that make classes are exact.
            weight = Fraction(max(1, int(weight * MILLION)), MILLION)
            if pool.select is Select.WEIGHTED and self.is_demoted(member, opened, demoted):
                weight /= 100
            raw.append(weight)
        return [weight / sum(raw) for weight in raw]

    def _open(self, member: Member, opened: Collection[str]) -> bool:
        return member.weight != 0 and any(name in opened for name in leaves(member))

    def _taken(self, pool: Pool, members: list[Member], opened: Collection[str], demoted: Collection[str]) -> Member:
        owed = [
            self.credit.get((pool.key, member.key), Fraction(0)) + share
            for member, share in zip(members, self.shares(pool, members, opened, demoted), strict=True)
        ]
        best = max(owed)
        if any(0 < best - each < NEAR for each in owed):
            raise Ambiguous
        place = owed.index(best)
        for member, each in zip(members, owed, strict=True):
            self.credit[pool.key, member.key] = each - (member is members[place])
        return members[place]
