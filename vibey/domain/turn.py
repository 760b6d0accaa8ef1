"""Turn: where a job stands in the queue, and whose turn it is when projects share the slots.

*Standing.* Jobs are served by standing, the smallest first, and those of equal standing in the order they were
enqueued. Without ageing a job's standing is its priority, negated. With ageing a waiting job gains one priority every
`age_ms`. All jobs wait at the same pace, so what one is ahead of another never changes, and the standing is fixed at
the enqueue: enqueued_at − priority × age. A job of priority p is overtaken by one of priority q > p only if that one
is enqueued less than (q − p) × age after it: that is the bound. A job's *level* is what its priority has grown to by
now, in whole steps.

*Turns.* With `fair_share` the projects that have a job which could be granted now, at the highest level any of these
jobs has, take turns: by the rotation that engines are drawn by (`vibey.domain.rotation`), over projects, with their
`fair_weights`. Whoever takes no part gains nothing and owes nothing, so a project comes back from a quiet month with
what it left with, and a hundred thousand jobs of one keep another's one waiting for no longer than a turn. Ties go to
the project whose job stands first.

Of more than `RIVALS` projects the turn is drawn in two steps, so that no decision has to keep a credit of each: first
among as many groups, which a project belongs to by its name and which weigh what their waiting projects weigh, then
within the group. Everybody's part stays what it would have been.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vibey.domain.backoff import fraction
from vibey.domain.rotation import draw, shares
from vibey.domain.selection import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.selection import CreditKey

RIVALS = 64


def standing(priority: int, enqueued_at_ms: int, age_ms: int) -> int:
    """Where a job stands: the smaller, the sooner. `age_ms` 0 means that waiting changes nothing."""
    return enqueued_at_ms - priority * age_ms if age_ms else -priority


def level(stands: int, now_ms: int, age_ms: int) -> int:
    """The priority that a job of this standing has grown to by now."""
    return (now_ms - stands) // age_ms if age_ms else -stands


def turns_key(root: str) -> str:
    """The key that the credits of projects are kept under, for the jobs of one root pool; no pool can have it."""
    return f"({root} projects)"


def credits_of(root: str, projects: Sequence[str]) -> tuple[list[str], list[str]]:
    """The keys and the members whose credits decide whose turn it is among these projects."""
    key = turns_key(root)
    if len(projects) <= RIVALS:
        return [key], list(projects)
    groups = sorted({_group(name) for name in projects})
    return [key, *(f"{key}{group}" for group in groups)], [*groups, *projects]


def is_turn(key: str) -> bool:
    """Whether a step with this key was drawn among projects."""
    return key.startswith("(")


@dataclass(frozen=True, slots=True)
class Lot:
    """What a draw is among: members, under the key their credits are kept by, and the share each is offered."""

    key: str
    members: tuple[str, ...]
    shares: tuple[int, ...]

    @classmethod
    def among(cls, key: str, weights: Mapping[str, int]) -> Lot:
        """A lot in which members have shares by weight."""
        return cls(key, tuple(weights), shares(tuple(weights.values())))

    def drawn(self, credits: Mapping[CreditKey, int]) -> Step:
        """Draw one; it pays for its turn."""
        before = tuple([credits.get((self.key, name), 0) for name in self.members])
        winner, after = draw(before, self.shares)
        return Step(self.key, (), "", self.members, self.shares, before, after, self.members[winner])


def turn(root: str, weights: Mapping[str, int], credits: Mapping[CreditKey, int]) -> tuple[str, tuple[Lot, ...]]:
    """Whose turn it is among these projects, which come in queue order, and what was drawn to find out.

    Nothing is drawn, and nobody pays, where there is nobody to share with.
    """
    key, lots, left = turns_key(root), [], dict(weights)
    if len(left) > RIVALS:
        groups: dict[str, dict[str, int]] = {}
        for name, weight in left.items():
            groups.setdefault(_group(name), {})[name] = weight
        lots.append(Lot.among(key, {name: sum(each.values()) for name, each in groups.items()}))
        group = lots[0].drawn(credits).chosen
        key, left = f"{key}{group}", groups[group]
    if len(left) == 1:
        return next(iter(left)), tuple(lots)
    lots.append(Lot.among(key, left))
    return lots[-1].drawn(credits).chosen, tuple(lots)


def highest(heads: Sequence[tuple[str, int]]) -> list[str]:
    """The projects whose first job has the highest level of all, from each project's first job's level."""
    top = max((each for _, each in heads), default=0)
    return [name for name, each in heads if each == top]


# Each draw among thousands asks for the group of every one of them.
@lru_cache(maxsize=2**16)
def _group(project: str) -> str:
    return f"#{fraction(project, RIVALS)}"
