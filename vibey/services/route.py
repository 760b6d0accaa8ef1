"""Route: turn free slots and queued jobs into granted runs.

One pass is one READ COMMITTED transaction. It reads one head per group of the queue and the rules of the groups'
projects. Then it locks the pool's engines, their accounts and the rotation's credits, and counts live runs only after
the first, so the count is exact. It asks the domain what each group can look forward to, holds the projects' rows where
a unit of the cap may be taken, locks as many of the groups' first jobs as could be granted and are free (`SKIP
LOCKED`), decides all of them in memory on the evolving world, and writes runs, credits, decisions, events and
job states set-wise, a few hundred at a time (`vibey.services.granting`). Slot, token, credits, cap unit, decision and
event commit together or not at all.

Only then one build message goes out per grant. The Redis lock around it spares two routers from doing the
same work; when it is lost, the second one waits for the engines' rows and finds the slots taken.

With `fair_share` the jobs are decided by turns of their projects (`vibey.domain.turn`) instead of in queue order, and
of more groups than a pass takes, it is drawn by lot which ones go first.

Cost is flat in the depth of the queue: a group without a taker costs one index probe, however many jobs it
holds; why it waits is written once for the group, and only when the reason changes; first holds are written
set-wise for the whole group. A pass holds its locks for no longer than a bounded amount of work takes: it grants at
most as many runs as `WORK` allows for its number of engines, and what there is to note of many groups is noted after
it (`vibey.services.notes`).

A router leaves after a second of work, with a message behind it to go on: ticks and other pools share its
worker.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from vibey.domain.errors import NothingApplied
from vibey.services import measure, notes, turns
from vibey.services.granting import Made, grant
from vibey.services.notes import Notes, NotesClaimed
from vibey.services.outlook import GenerationChanged, Outlook, rules
from vibey.services.pools import Trees
from vibey.services.record import Record
from vibey.store import decisions, jobs
from vibey.store import notes as stored_notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.decide import Prospect
    from vibey.services.installation import Installation
    from vibey.services.record import Waits
    from vibey.store.database import Connection
    from vibey.store.runs import Granted
    from vibey.tracing import Span

log = logging.getLogger("vibey.route")

BATCH = 5000
# A draw, and the record of it, cost what its pool has of engines: a pass grants so many runs times engines at most.
WORK = 100_000
# Of so many jobs it is found whose turn it is, or which one nobody holds, however few slots are free.
LISTED = 1000
STINT_SECONDS = 1.0
# A pass costs about the same for one freed slot as for fifty: one asked for during another lets some gather.
GATHER_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Passed:
    """What one pass did; `again` says another may find more to do, `stale` which projects must be measured first.

    `noted` says that nothing is left to be noted by `notes.note_rest`. `spans` tell of the runs granted, once that is
    committed.
    """

    granted: tuple[Granted, ...] = ()
    again: bool = False
    noted: bool = True
    stale: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pass sees of its pool's queue: the groups, what each can look forward to, why some wait; and its begin."""

    pool: str
    groups: Sequence[jobs.Group]
    prospects: Mapping[int, Prospect]
    waits: Waits
    began_ns: int


def route(installation: Installation, pool: str) -> int:
    """Route a pool until nothing more can be granted; returns how many runs were. Leaves if someone is at it."""
    router = f"{socket.gethostname()}:{os.getpid()}"
    wakeups = installation.wakeups
    if not wakeups.begin(pool, router):
        return 0
    granted = 0
    ends_at = time.monotonic() + STINT_SECONDS
    try:
        while time.monotonic() < ends_at:
            runs, is_noted = _until_settled(installation, pool, router, ends_at)
            granted += runs
            if is_noted and not wakeups.finish(pool, router):
                return granted
    except BaseException:
        wakeups.abandon(pool, router)
        raise
    wakeups.abandon(pool, router)
    installation.wake(pool)
    return granted


def grant_freed(installation: Installation, pool: str) -> int:
    """Try one pass at once, from a task that has just freed a slot; leave it to whoever is routing its engines now."""
    passed = run_pass(installation, pool, wait=False)
    if passed is None or passed.again or passed.stale or not passed.noted:
        installation.wake(pool)
    if passed is None:
        return 0
    installation.send(passed.granted)
    return len(passed.granted)


def run_pass(installation: Installation, pool: str, *, wait: bool = True) -> Passed | None:
    """One routing transaction. None, without `wait`, when someone else holds an engine of the pool."""
    passed: Passed | None = None
    while True:
        try:
            passed = installation.database.run(lambda connection: _pass(connection, installation, pool, wait=wait))
            break
        except GenerationChanged:
            continue  # the pass begins again, under that generation
        except NotesClaimed:
            installation.database.statement(lambda connection: stored_notes.take(connection, pool))
    for span in passed.spans if passed else ():
        span.end()
    return passed


def _until_settled(installation: Installation, pool: str, router: str, ends_at: float) -> tuple[int, bool]:
    """Make passes until one grants nothing; how many runs were granted, and whether all that was to note is noted."""
    granted, is_noted = 0, True
    while time.monotonic() < ends_at:
        installation.wakeups.go_on(pool, router)
        passed = run_pass(installation, pool)
        if passed is None:
            break
        if passed.stale:
            measure.refresh(installation, passed.stale)
            continue
        installation.send(passed.granted)
        granted += len(passed.granted)
        is_noted = passed.noted
        if not is_noted:
            may_go_on = partial(_may_note, installation, pool, settled=not passed.granted, ends_at=ends_at)
            is_noted = notes.note_rest(installation, pool, may_go_on=may_go_on)
        if not passed.granted:
            break
        if not passed.again:
            time.sleep(GATHER_SECONDS)
    return granted, is_noted


def _may_note(installation: Installation, pool: str, *, settled: bool, ends_at: float) -> bool:
    """Whether more may be noted now: not while a pass could grant what was freed or enqueued meanwhile."""
    return settled and time.monotonic() < ends_at and not installation.wakeups.is_awaited(pool)


def _pass(connection: Connection, installation: Installation, pool: str, *, wait: bool) -> Passed | None:
    began_ns = time.time_ns()
    trees = Trees.load(connection, pool)
    if trees.generation is None:
        log.warning("nothing is routed: %s", NothingApplied())
        return Passed()
    installation = installation.under(connection, trees.generation)
    groups, noting = jobs.groups(connection, pool)
    if noting.is_claimed:
        raise NotesClaimed
    resolved = rules(connection, installation, groups)
    stale = tuple(name for name, each in resolved.items() if each.stale)
    if stale:
        return Passed(stale=stale)
    outlook = Outlook.open(connection, installation, trees, wait=wait)
    if outlook is None:
        return None
    asked = [group.requirement for group in groups]
    outlook = outlook.with_rules(connection, installation, resolved, asked)
    prospects = _prospects(outlook, groups)
    found = Notes.found(groups, prospects)
    # Whatever was noted since the groups were read was found after it.
    is_newest = found == Notes() or stored_notes.take(connection, pool, noting.number)
    small = found if is_newest and found.is_small else Notes()
    made, served, more = _fill(connection, installation, outlook, Seen(pool, groups, prospects, small.waits, began_ns))
    held_all = not notes.hold(connection, pool, outlook, small.held)
    if small.waiting and not made.granted:
        decisions.record(connection, Record(outlook.world, small.waits).kept())
    over = _over(made.outlook, found.over, served)
    is_noted = held_all and is_newest and found.is_small and len(over) <= notes.PART
    if is_newest:
        cleared = over if is_noted else [group for group in over if group.key in served]
        stored_notes.write(connection, pool, small.reasons, [group.key for group in cleared])
    return Passed(made.granted, more, is_noted, spans=made.spans)


def _fill(
    connection: Connection, installation: Installation, outlook: Outlook, seen: Seen
) -> tuple[Made, set[int], bool]:
    """Grant what there are free slots for: what was made of it, the groups that were served, whether to look again."""
    wanted = [found for group in seen.groups if (found := _wanted(outlook, group, seen.prospects[group.key]))]
    if not wanted:
        return Made((), (), outlook), set(), False
    most = max(1, min(BATCH, WORK // len(outlook.world.engines)))
    limit = min(most, outlook.free_slots)
    if installation.settings.engines.fair_share:
        limit, outlook = LISTED, outlook.taking_turns(connection, _projects(seen.groups, wanted))
    listed = turns.shortlist(outlook, seen.groups, wanted, limit)
    heads, asked = jobs.heads(connection, seen.pool, listed, limit)
    if not heads:
        # Someone holds each of the first few: those behind them may take what these would.
        deeper = [replace(each, count=LISTED) for each in listed]
        heads, asked = jobs.heads(connection, seen.pool, deeper, LISTED)
    requirements = {group.key: group.requirement for group in seen.groups}
    chosen = [(head, requirements[head.key]) for head in heads]
    made = grant(connection, installation, outlook, chosen, most, seen.waits, seen.began_ns)
    key_of = {head.job_id: head.key for head in heads}
    # Of those decided here none is left that could be granted; only of others another pass may find some.
    unseen = asked is not None and (asked >= limit or len(heads) < asked)
    unseen = unseen or (listed != wanted and bool(made.granted)) or len(made.granted) >= most
    left = unseen and any(found.room for found in made.outlook.prospects(requirements[each.key] for each in wanted))
    return made, {key_of[run.job_id] for run in made.granted}, left


def _wanted(outlook: Outlook, group: jobs.Group, seen: Prospect) -> jobs.Wanted | None:
    if not seen.room:
        return None
    patience = outlook.policy(group.requirement).overflow_after_ms if seen.held_first else None
    if patience is not None and (group.held_ms is None or group.held_ms < patience):
        return None
    return jobs.Wanted(group.key, min(seen.room, BATCH), patience)


def _projects(groups: Sequence[jobs.Group], wanted: Sequence[jobs.Wanted]) -> list[str]:
    keys = {each.key for each in wanted}
    return sorted({group.requirement.project for group in groups if group.key in keys})


def _over(outlook: Outlook, over: Sequence[jobs.Group], served: set[int]) -> list[jobs.Group]:
    """The groups, of those whose reason to wait seemed over before anything was granted, for which it is.

    A group for which it holds again, now that others' jobs have taken what was free, has waited for it all along.
    Otherwise each slot that is freed would have the reason of every group forgotten, and written anew.
    """
    now = _prospects(outlook, over) if served else None
    return [group for group in over if now is None or group.key in served or now[group.key].waiting != group.reason]


def _prospects(outlook: Outlook, groups: Sequence[jobs.Group]) -> dict[int, Prospect]:
    """What each group's jobs can look forward to."""
    seen = outlook.prospects(group.requirement for group in groups)
    return {group.key: found for group, found in zip(groups, seen, strict=True)}
