"""Pools: trees of engines, and the best-first classes every selection mode compiles to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from vibey.domain.engine import EngineFacts, Tier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Select(StrEnum):
    """How a pool chooses among its members."""

    ORDERED = "ordered"
    WEIGHTED = "weighted"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class Member:
    """A pool's member: an engine by name, or a nested pool.

    `weight` is in millionths; None takes the engine's own (a nested pool's is then one). `tier` is the pool tier.
    """

    key: str
    pool: Pool | None = None
    weight: int | None = None
    tier: int | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """A node of the tree. Keys are unique in a tree, and all state is kept by key, never by position.

    `classes` is what the members compile to, best first: each alone, all together, or by pool tier, higher first.
    """

    key: str
    select: Select
    members: tuple[Member, ...]
    classes: tuple[tuple[Member, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _classes(self.select, self.members))

    def below(self, key: str) -> Pool | None:
        """The pool nested under the member of this key; None when that member is an engine."""
        for member in self.members:
            if member.key == key:
                return member.pool
        return None

    def engines(self) -> Iterator[str]:
        """Names of all engines under this pool, in declared order."""
        for member in self.members:
            if member.pool is None:
                yield member.key
            else:
                yield from member.pool.engines()


def _classes(select: Select, members: tuple[Member, ...]) -> tuple[tuple[Member, ...], ...]:
    if select is Select.ORDERED:
        return tuple((member,) for member in members)
    if select is Select.WEIGHTED:
        return (members,)
    by_tier = sorted(members, key=lambda member: -(member.tier or 0))
    return tuple(tuple(group) for _, group in groupby(by_tier, key=lambda member: member.tier or 0))


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
