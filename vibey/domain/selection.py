"""Selection: walk a pool tree down to one engine.

Every mode compiles to a best-first list of classes (`vibey.domain.pool`); then one algorithm: take the first class
that has a free member, draw inside it, and go down. Only pools on the chosen path spend credit.

*Closed, full, free.* An engine that is not offered is closed. A class whose open members are all full is passed over
for the next, or, in a pool that waits, ends the walk without an engine. A nested pool is what a walk into it would
find.

*Demotion.* An engine whose quota is nearly spent serves after all others of its pool: in an ordered or tiered pool
behind every live class, keeping its order among the demoted; in a weighted one with a hundredth of its weight. A
nested pool is demoted only when everything open in it is. The offer hands a walk engines of one tier only, so no
demotion can lead from a local engine to a paid one.

*Sessions.* The member a session was given last in a class is taken again while it is free, and charged like any draw.
While it is full another is drawn in its place and the memory stays; when it is closed the new member is remembered.
Classes remember apart, so a session that fell to a lower one finds its old member when the higher one recovers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from vibey.domain.pool import PoolClass, Select
from vibey.domain.rotation import UNIT, charge, draw, shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vibey.domain.assessment import Assessment
    from vibey.domain.pool import Member, Pool

CreditKey = tuple[str, str]
SessionKey = tuple[str, str, str]
"""Pool, class label, session."""

Active = tuple["PoolClass", list["Member"], tuple[tuple[str, "Status"], ...]]
"""A class, its free members, and the labels of better classes with what was found there."""

DEMOTED_LABEL = "~"
# A demoted member keeps a hundredth of its weight; the others' are raised instead, which rounds nothing.
DEMOTION = 100


class Status(IntEnum):
    """What a walk would find at a member now."""

    CLOSED = 0
    FULL = 1
    FREE = 2


class Turn(IntEnum):
    """How the member of a step was found: drawn, taken for its session, or drawn because the session's was full."""

    DRAWN = 0
    STICKY = 1
    YIELDED = 2


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in one pool on the way.

    `skipped` are the labels of better classes with what was found there; `label` is the class taken, of which
    `members` were free; then their shares, their credits before and after, and the one chosen.
    """

    pool: str
    skipped: tuple[tuple[str, Status], ...]
    label: str
    members: tuple[str, ...]
    shares: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    chosen: str
    turn: Turn = Turn.DRAWN
    remembers: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The engine a walk arrived at, and every step of it."""

    engine: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """A caller's conversation, and which member each class remembers for every one."""

    name: str
    memory: Mapping[SessionKey, str]


@dataclass(frozen=True, slots=True)
class Field:
    """What a walk sees: the engines offered, by name, which of them are full or demoted, and for which session."""

    offered: Mapping[str, Assessment]
    full: frozenset[str] = frozenset()
    demoted: frozenset[str] = frozenset()
    session: Session | None = None

    def status(self, member: Member) -> Status:
        """What a walk would find at this member."""
        if member.pool is not None:
            return self.status_of(member.pool)
        if member.key not in self.offered:
            return Status.CLOSED
        return Status.FULL if member.key in self.full else Status.FREE

    def status_of(self, pool: Pool) -> Status:
        """What a walk into this pool would find."""
        offered, full = self.offered, self.full
        if offered.keys().isdisjoint(pool.leaves):
            return Status.CLOSED
        if not pool.patient:
            free = any(name in offered and name not in full for name in pool.leaves)
            return Status.FREE if free else Status.FULL
        for each in self.classes(pool):
            found = max(map(self.status, each.members), default=Status.CLOSED)
            if found is Status.FREE or (found is Status.FULL and pool.waits):
                return found
        return Status.FULL

    def free(self, whole: PoolClass) -> list[Member]:
        """Those members of a class that a walk could take."""
        if whole.flat:
            offered, full = self.offered, self.full
            return [member for member in whole.members if member.key in offered and member.key not in full]
        return [member for member in whole.members if self.status(member) is Status.FREE]

    def classes(self, pool: Pool) -> Sequence[PoolClass]:
        """The pool's classes as demotion leaves them."""
        if not self.demoted or pool.select is Select.WEIGHTED or self.demoted.isdisjoint(pool.leaves):
            return pool.classes
        last = [_part(self, each, demoted=True) for each in pool.classes]
        live = [_part(self, each, demoted=False) for each in pool.classes]
        if not any(self.status(member) for each in live for member in each.members):
            return pool.classes
        return [each for each in (*live, *last) if each.members]

    def is_demoted(self, member: Member) -> bool:
        """Whether this member serves last: an engine by its quota, a pool if everything open in it does."""
        if member.pool is None:
            return member.key in self.demoted
        opened = [name for name in member.pool.leaves if name in self.offered]
        return bool(opened) and self.demoted.issuperset(opened)


def select(pool: Pool, seen: Field, credits: Mapping[CreditKey, int]) -> Selection | None:
    """Draw one of the free engines; None when the pool has none, or waits for one that is full."""
    steps: list[Step] = []
    node: Pool | None = pool
    while node is not None:
        step = _step(node, seen, credits)
        if step is None:
            return None
        steps.append(step)
        node = node.below(step.chosen)
    return Selection(steps[-1].chosen, tuple(steps))


def within_reach(pool: Pool, seen: Field) -> Iterator[str]:
    """The free engines that walks could arrive at before anything else changes, best first."""
    for each in seen.classes(pool):
        for member in each.members:
            if member.pool is not None:
                yield from within_reach(member.pool, seen)
            elif seen.status(member) is Status.FREE:
                yield member.key
        if pool.waits and any(map(seen.status, each.members)):
            return


def shares_of(pool: Pool, members: Sequence[Member], seen: Field) -> tuple[int, ...]:
    """The share of the unit that each of these members of one class is offered."""
    if pool.is_even:
        return shares((1,) * len(members))
    offered = seen.offered
    weights = tuple(
        [offered[each.key].weight if each.share is None else _stated(each, each.share, offered) for each in members]
    )
    if seen.demoted and pool.select is Select.WEIGHTED:
        raised = [1 if seen.is_demoted(member) else DEMOTION for member in members]
        weights = tuple([weight * factor for weight, factor in zip(weights, raised, strict=True)])
    return shares(weights)


def _stated(member: Member, weight: int, offered: Mapping[str, Assessment]) -> int:
    """A weight the pool states itself: a nested pool's as it is, an engine's with its soft factors."""
    return weight if member.pool is not None else offered[member.key].factors.on(weight)


def active(pool: Pool, seen: Field) -> Active | None:
    """The class a walk into this pool takes, its free members, and the better classes; None when it takes none."""
    skipped: tuple[tuple[str, Status], ...] = ()
    for each in seen.classes(pool):
        free = seen.free(each)
        if free:
            return each, free, skipped
        found = max(map(seen.status, each.members), default=Status.CLOSED)
        if found is Status.FULL and pool.waits:
            return None
        skipped = (*skipped, (each.label, found))
    return None


def _step(pool: Pool, seen: Field, credits: Mapping[CreditKey, int]) -> Step | None:
    found = active(pool, seen)
    return None if found is None else _turn(pool, *found, seen, credits)


def _turn(
    pool: Pool,
    taken: PoolClass,
    free: Sequence[Member],
    skipped: tuple[tuple[str, Status], ...],
    seen: Field,
    credits: Mapping[CreditKey, int],
) -> Step:
    session = seen.session if len(taken.members) > 1 else None
    if len(free) == 1 and session is None:
        return _only(pool, taken, free[0].key, skipped, credits)
    keys = tuple([member.key for member in free])
    gains = shares_of(pool, free, seen)
    before = tuple([credits.get((pool.key, key), 0) for key in keys])
    if session is None:
        winner, after = draw(before, gains)
        return Step(pool.key, skipped, taken.label, keys, gains, before, after, keys[winner])
    remembered = session.memory.get((pool.key, taken.label, session.name))
    if remembered in keys:
        winner, turn = keys.index(remembered), Turn.STICKY
        after = charge(before, gains, winner)
    else:
        full = any(each.key == remembered and seen.status(each) is Status.FULL for each in taken.members)
        turn = Turn.YIELDED if full else Turn.DRAWN
        winner, after = draw(before, gains)
    return Step(pool.key, skipped, taken.label, keys, gains, before, after, keys[winner], turn, remembers=True)


def _only(
    pool: Pool,
    taken: PoolClass,
    key: str,
    skipped: tuple[tuple[str, Status], ...],
    credits: Mapping[CreditKey, int],
) -> Step:
    """A step without a choice: what it gains it pays."""
    credit = (credits.get((pool.key, key), 0),)
    return Step(pool.key, skipped, taken.label, (key,), (UNIT,), credit, credit, key)


def _part(seen: Field, whole: PoolClass, *, demoted: bool) -> PoolClass:
    """The live or the demoted members of a class, as a class of its own."""
    members = tuple([member for member in whole.members if seen.is_demoted(member) is demoted])
    return PoolClass(f"{DEMOTED_LABEL}{whole.label}" if demoted else whole.label, members)
