"""Notes: why groups of jobs wait, and the first holds of their jobs, written without keeping a slot waiting.

A pass judges the groups of its queue under the locks of its engines. What it finds of at most `PART` groups it writes
in the same transaction. What is more than that waits until its grants are committed and sent: `note_rest` then judges
the groups again, without a lock on any engine, and writes what it finds in transactions of at most `PART` groups and
`HELD` jobs each. Before each of them but the first the router looks whether someone waits for its next pass.

A pass that begins meanwhile ends this (`vibey.store.notes`): it judges by what is newer. What is left is found again by
it, for a reason is to be noted as long as it is not the one that is stored; so nothing is lost when a router dies
between two parts. Each part is kept as a pass of its own, with the world it was judged on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from vibey.services import grants
from vibey.services.outlook import GenerationChanged, Outlook, rules
from vibey.services.pools import Trees
from vibey.services.record import Record
from vibey.store import decisions, jobs
from vibey.store import notes as store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from vibey.domain.decide import Prospect
    from vibey.services.installation import Installation
    from vibey.services.record import Waits
    from vibey.store.database import Connection

PART = 250
"""So many groups are noted in one transaction, and"""
HELD = 1000
"""so many jobs are held in one."""


class NotesClaimed(Exception):
    """Reasons of the pool are being written by another router, on what it judged before this pass began."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What is to be noted of some groups: which have jobs to be held, why groups wait, whose reason is over."""

    held: tuple[jobs.Group, ...] = ()
    waiting: tuple[tuple[jobs.Group, str], ...] = ()
    over: tuple[jobs.Group, ...] = ()

    @classmethod
    def found(cls, groups: Sequence[jobs.Group], prospects: Mapping[int, Prospect]) -> Notes:
        """What is not known yet of these groups, by what their jobs can look forward to."""
        held, waiting, over = [], [], []
        for group in groups:
            found = prospects[group.key]
            if found.held_first and group.unheld:
                held.append(group)
            if found.waiting is None:
                if group.reason is not None:
                    over.append(group)
            elif found.waiting != group.reason:
                waiting.append((group, found.waiting))
        return cls(tuple(held), tuple(waiting), tuple(over))

    @property
    def is_small(self) -> bool:
        """Whether all of it, but for reasons that are over, fits into one transaction."""
        return len(self._keys()) <= PART

    @property
    def reasons(self) -> dict[int, str]:
        """Why groups wait, by their keys."""
        return {group.key: reason for group, reason in self.waiting}

    @property
    def waits(self) -> Waits:
        """Why groups wait, as a pass records it."""
        return [(group.requirement, reason) for group, reason in self.waiting]

    def parts(self) -> Iterator[Notes]:
        """The same in parts, each for one transaction."""
        keys = [*self._keys(), *(group.key for group in self.over)]
        for start in range(0, len(keys), PART):
            part = set(keys[start : start + PART])
            yield Notes(
                tuple(group for group in self.held if group.key in part),
                tuple(each for each in self.waiting if each[0].key in part),
                tuple(group for group in self.over if group.key in part),
            )

    def _keys(self) -> list[int]:
        return list(dict.fromkeys([*(each.key for each in self.held), *(each.key for each, _ in self.waiting)]))


def hold(connection: Connection, pool: str, outlook: Outlook, held: Collection[jobs.Group]) -> bool:
    """Note first holds of these groups' jobs; whether some are left."""
    grounds = {group.key: grants.hold_grounds(outlook, group.requirement) for group in held}
    return jobs.hold(connection, pool, grounds, grants.local_slots(outlook.world), HELD) >= HELD


def note_rest(installation: Installation, pool: str, *, may_go_on: Callable[[], bool] = lambda: True) -> bool:
    """Write what passes of a pool left to be noted; False when some of it is left.

    `may_go_on` is asked before each transaction but the first.
    """
    database = installation.database
    number = database.statement(lambda connection: store.claim(connection, pool))
    try:
        outlook, found = database.run(lambda connection: _look(connection, installation, pool))
    except GenerationChanged:
        return False
    left = deque(found.parts())
    while left:
        part = left.popleft()
        more = database.run(partial(_write, pool=pool, number=number, outlook=outlook, part=part))
        if more is None:
            return False
        if more:
            left.appendleft(Notes(held=part.held))
        if left and not may_go_on():
            return False
    database.statement(lambda connection: store.release(connection, pool, number))
    return True


def _look(connection: Connection, installation: Installation, pool: str) -> tuple[Outlook, Notes]:
    """What is to be noted by now, read without a lock, and the outlook it was judged on."""
    trees = Trees.load(connection, pool)
    installation = installation.under(connection, trees.generation)
    outlook = Outlook.look(connection, installation, trees)
    groups, _ = jobs.groups(connection, pool)
    resolved = rules(connection, installation, groups)
    asked = [group.requirement for group in groups]
    outlook = outlook.with_rules(connection, installation, resolved, asked, locking=False)
    seen = outlook.prospects(asked)
    return outlook, Notes.found(groups, {group.key: each for group, each in zip(groups, seen, strict=True)})


def _write(connection: Connection, pool: str, number: int, outlook: Outlook, part: Notes) -> bool | None:
    """Write one part: whether jobs are left to be held, None when another pass has ended the claim."""
    if not store.lock(connection, pool, number):
        return None
    more = hold(connection, pool, outlook, part.held)
    if part.waiting:
        decisions.record(connection, Record(outlook.world, part.waits).kept())
    store.write(connection, pool, part.reasons, [group.key for group in part.over])
    return more
