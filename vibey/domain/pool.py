"""Pools: trees of engines, and the best-first classes every selection mode compiles to.

| `select` | classes | shares in a class |
|---|---|---|
| ordered | one for each member, in order | the whole |
| weighted | one | by weight |
| tiered | by the member's integer pool tier, higher first | by weight |
| tiered by weight | by the member's standing weight, higher first | even |

A member's *standing weight* is its configured weight times its layers; for a nested pool also times the mean of the
layers of all its leaves, open or not, so that a member that goes does not lift its pool. Standing weights are exact
fractions: equal ones form one class however they were computed, because here a rounding error would not cost a
trifle of the traffic but all of it. What changes from moment to moment (health, cost, warmth) never moves a class.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from vibey.domain.engine import MILLION, EngineFacts, Tier
from vibey.domain.layer import Layer, product

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ONE = Fraction(1)


class Select(StrEnum):
    """How a pool chooses among its members."""

    ORDERED = "ordered"
    WEIGHTED = "weighted"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class Member:
    """A pool's member: an engine by name, or a nested pool.

    `weight` is in millionths and stands in place of the engine's own; None takes the engine's own (a nested pool's is
    then one), 0 closes the member. `tier` is the pool tier. `standing` is the standing weight, `share` the same in
    millionths, None where it is the engine's own.
    """

    key: str
    pool: Pool | None = None
    weight: int | None = None
    tier: int | None = None
    layers: tuple[Layer, ...] = ()
    factor: Fraction = field(init=False, repr=False, compare=False)
    standing: Fraction = field(init=False, repr=False, compare=False)
    share: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        factor = product(self.layers) if self.layers else ONE
        standing = ONE if self.weight is None else Fraction(self.weight, MILLION)
        for each in (factor, ONE if self.pool is None else self.pool.mean):
            standing = standing if each is ONE else standing * each
        own = self.weight is None and self.pool is None
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "standing", standing)
        object.__setattr__(self, "share", None if own else _millionths(standing))

    @property
    def leaves(self) -> tuple[str, ...]:
        """The engines a walk may find here: itself, or those under the nested pool."""
        return (self.key,) if self.pool is None else self.pool.leaves


@dataclass(frozen=True, slots=True)
class PoolClass:
    """Members that take turns. The label tells the class from the others of its pool, whatever else changes.

    `flat` says that all of them are engines.
    """

    label: str
    members: tuple[Member, ...]
    flat: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flat", all(member.pool is None for member in self.members))


@dataclass(frozen=True, slots=True)
class Pool:
    """A node of the tree. Keys are unique in a tree, and all state is kept by key, never by position.

    `by_weight` lets standing weights make the classes of a tiered pool. With `waits`, a class whose open members are
    all full is waited for instead of passed over. `classes` is what the members that are not closed compile to, best
    first; `leaves` the engines under them in declared order; `mean` the mean of all leaves' layers; `patient` says that
    this pool or one under it waits.
    """

    key: str
    select: Select
    members: tuple[Member, ...]
    by_weight: bool = False
    waits: bool = False
    classes: tuple[PoolClass, ...] = field(init=False, repr=False, compare=False)
    leaves: tuple[str, ...] = field(init=False, repr=False, compare=False)
    mean: Fraction = field(init=False, repr=False, compare=False)
    patient: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        nested = [member.pool for member in self.members if member.pool is not None]
        leaves = [name for each in self.members if each.share != 0 for name in each.leaves]
        object.__setattr__(self, "classes", tuple(_classes(self)))
        object.__setattr__(self, "leaves", tuple(leaves))
        object.__setattr__(self, "mean", _mean(self.members))
        object.__setattr__(self, "patient", self.waits or any(pool.patient for pool in nested))

    @property
    def is_even(self) -> bool:
        """Whether the members of a class have even shares."""
        return self.select is Select.TIERED and self.by_weight

    def below(self, key: str) -> Pool | None:
        """The pool nested under the member of this key; None when that member is an engine."""
        for member in self.members:
            if member.key == key:
                return member.pool
        return None

    def nested(self) -> Iterator[Pool]:
        """This pool and every pool under it."""
        yield self
        for member in self.members:
            if member.pool is not None:
                yield from member.pool.nested()

    def laden(self, weights: Mapping[str, int], layers: Mapping[str, tuple[Layer, ...]]) -> Pool:
        """This tree with layers on its members, and engines' own weights where they make the classes."""
        if not layers and not any(pool.is_even for pool in self.nested()):
            return self
        members = tuple(_laden(member, self, weights, layers) for member in self.members)
        return replace(self, members=members)


def _laden(member: Member, pool: Pool, weights: Mapping[str, int], layers: Mapping[str, tuple[Layer, ...]]) -> Member:
    below = member.pool.laden(weights, layers) if member.pool is not None else None
    own = layers.get(member.key, ())
    weight = member.weight
    if weight is None and below is None and (own or pool.is_even):
        weight = weights.get(member.key)
    return replace(member, pool=below, weight=weight, layers=own)


def _mean(members: Sequence[Member]) -> Fraction:
    """The mean over all leaves of their layers, those of the pools between included."""
    parts = [
        (member.factor, 1) if member.pool is None else (member.factor * member.pool.mean, len(member.leaves))
        for member in members
    ]
    leaves = sum(count for _, count in parts)
    if not leaves or all(factor == ONE for factor, _ in parts):
        return ONE
    return sum((factor * count for factor, count in parts), Fraction(0)) / leaves


def _classes(pool: Pool) -> Iterator[PoolClass]:
    members = tuple(member for member in pool.members if member.share != 0)
    if pool.select is Select.ORDERED:
        for member in members:
            yield PoolClass(member.key, (member,))
    elif pool.select is Select.WEIGHTED:
        yield PoolClass("", members)
    else:
        yield from _tiers(pool, members)


def _tiers(pool: Pool, members: Sequence[Member]) -> Iterator[PoolClass]:
    def rank(member: Member) -> Fraction | int:
        return member.standing if pool.by_weight else member.tier or 0

    ordered = sorted(members, key=rank, reverse=True)
    for key, equal in groupby(ordered, key=rank):
        yield PoolClass(str(key), tuple(equal))


def _millionths(weight: Fraction) -> int:
    return max(1, int(weight * MILLION)) if weight > 0 else 0


def default_pool(key: str, engines: Sequence[EngineFacts]) -> Pool:
    """The root used when none is configured: ordered [local, paid], each weighted."""
    return Pool(
        key,
        Select.ORDERED,
        tuple(Member(f"{key}.{tier}", Pool(f"{key}.{tier}", Select.WEIGHTED, _leaves(tier, engines))) for tier in Tier),
    )


def _leaves(tier: Tier, engines: Sequence[EngineFacts]) -> tuple[Member, ...]:
    declared = sorted(engines, key=lambda engine: engine.ordinal)
    return tuple(Member(engine.name) for engine in declared if engine.tier is tier)
