"""Route: turn free slots and queued jobs into granted runs.

One pass is one READ COMMITTED transaction. It locks the pool's engines, then their accounts and the
rotation's credits, and counts live runs only after the first, so the count is exact. It reads one head per
group of the queue, asks the domain what each group can look forward to, holds the projects' rows where a unit
of the cap may be taken, locks as many of the groups' first jobs as could be granted and are free (`SKIP
LOCKED`), decides all of them in memory on the evolving world, and writes runs, credits, decisions, events and
job states set-wise, a few hundred at a time (`vibey.services.granting`). Slot, token, credits, cap unit, decision and
event commit together or not at all.

Only then one build message goes out per grant. The Redis lock around it spares two routers from doing the
same work; when it is lost, the second one waits for the engines' rows and finds the slots taken.

With `fair_share` the jobs are decided by turns of their projects (`vibey.domain.turn`) instead of in queue order, and
of more groups than a pass takes, it is drawn by lot which ones go first.

Cost is flat in the depth of the queue: a group without a taker costs one index probe, however many jobs it
holds; why it waits is written once for the group, and only when the reason changes; first holds are written
set-wise for the whole group.

A router leaves after a second of work, with a message behind it to go on: ticks and other pools share its
worker.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vibey.domain.errors import NothingApplied
from vibey.services import grants, measure, turns
from vibey.services.granting import Made, grant
from vibey.services.outlook import GenerationChanged, Outlook, rules
from vibey.services.pools import Trees
from vibey.services.record import Record
from vibey.store import decisions, jobs

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
# Of so many jobs it is found whose turn it is, or which one nobody holds, however few slots are free.
LISTED = 1000
HOLDS = 5000
STINT_SECONDS = 1.0
# A pass costs about the same for one freed slot as for fifty: one asked for during another lets some gather.
GATHER_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Passed:
    """What one pass did; `again` says another may find more to do, `stale` which projects must be measured first.

    `spans` tell of the runs granted, once that is committed.
    """

    granted: tuple[Granted, ...] = ()
    again: bool = False
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
            granted += _until_settled(installation, pool, router, ends_at)
            if not wakeups.finish(pool, router):
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
    if passed is None or passed.again or passed.stale:
        installation.wake(pool)
    if passed is None:
        return 0
    installation.send(passed.granted)
    return len(passed.granted)


def run_pass(installation: Installation, pool: str, *, wait: bool = True) -> Passed | None:
    """One routing transaction. None, without `wait`, when someone else holds an engine of the pool."""
    while True:
        try:
            passed = installation.database.run(lambda connection: _pass(connection, installation, pool, wait=wait))
            break
        except GenerationChanged:
            continue  # the pass begins again, under that generation
    for span in passed.spans if passed else ():
        span.end()
    return passed


def _until_settled(installation: Installation, pool: str, router: str, ends_at: float) -> int:
    granted = 0
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
        if not passed.granted:
            break
        if not passed.again:
            time.sleep(GATHER_SECONDS)
    return granted


def _pass(connection: Connection, installation: Installation, pool: str, *, wait: bool) -> Passed | None:
    began_ns = time.time_ns()
    trees = Trees.load(connection, pool)
    if trees.generation is None:
        log.warning("nothing is routed: %s", NothingApplied())
        return Passed()
    installation = installation.under(connection, trees.generation)
    outlook = Outlook.open(connection, installation, trees, wait=wait)
    if outlook is None:
        return None
    groups = jobs.groups(connection, pool)
    resolved = rules(connection, installation, groups)
    stale = tuple(name for name, each in resolved.items() if each.stale)
    if stale:
        return Passed(stale=stale)
    asked = [group.requirement for group in groups]
    outlook = outlook.with_rules(connection, installation, resolved, asked)
    prospects = _prospects(outlook, groups)
    again = _hold(connection, pool, outlook, prospects, groups)
    waiting = _waiting(prospects, groups)
    waits = [(group.requirement, waiting[group.key]) for group in groups if group.key in waiting]
    made, served, more = _fill(connection, installation, outlook, Seen(pool, groups, prospects, waits, began_ns))
    if waits and not made.granted:
        decisions.record(connection, Record(outlook.world, waits).kept())
    decisions.note_groups(connection, pool, waiting, _cleared(made.outlook, prospects, groups, served))
    return Passed(made.granted, again or more, spans=made.spans)


def _fill(
    connection: Connection, installation: Installation, outlook: Outlook, seen: Seen
) -> tuple[Made, set[int], bool]:
    """Grant what there are free slots for: what was made of it, the groups that were served, whether to look again."""
    wanted = [found for group in seen.groups if (found := _wanted(outlook, group, seen.prospects[group.key]))]
    if not wanted:
        return Made((), (), outlook), set(), False
    limit = min(BATCH, outlook.free_slots)
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
    made = grant(connection, installation, outlook, chosen, seen.waits, seen.began_ns)
    key_of = {head.job_id: head.key for head in heads}
    # Of those decided here none is left that could be granted; only of others another pass may find some.
    unseen = asked is not None and (asked >= limit or len(heads) < asked)
    unseen = unseen or (listed != wanted and bool(made.granted))
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


def _hold(
    connection: Connection,
    pool: str,
    outlook: Outlook,
    prospects: dict[int, Prospect],
    groups: Sequence[jobs.Group],
) -> bool:
    """Note first holds of every group whose jobs are to be held; whether some are left for another pass."""
    grounds = {
        group.key: grants.hold_grounds(outlook, group.requirement)
        for group in groups
        if prospects[group.key].held_first and group.unheld
    }
    return jobs.hold(connection, pool, grounds, HOLDS) >= HOLDS


def _waiting(prospects: dict[int, Prospect], groups: Sequence[jobs.Group]) -> dict[int, str]:
    """Why groups wait of which that was not known yet."""
    found = {group.key: prospects[group.key].waiting for group in groups}
    return {group.key: reason for group in groups if (reason := found[group.key]) and reason != group.reason}


def _cleared(
    outlook: Outlook, prospects: dict[int, Prospect], groups: Sequence[jobs.Group], served: set[int]
) -> list[int]:
    """The groups whose reason to wait is over.

    A group for which it holds again, now that others' jobs have taken what was free, has waited for it all along.
    Otherwise each slot that is freed would have the reason of every group forgotten, and written anew.
    """
    over = [group for group in groups if group.reason is not None and prospects[group.key].waiting is None]
    now = _prospects(outlook, over) if served else prospects
    return [group.key for group in over if group.key in served or now[group.key].waiting != group.reason]


def _prospects(outlook: Outlook, groups: Sequence[jobs.Group]) -> dict[int, Prospect]:
    """What each group's jobs can look forward to."""
    seen = outlook.prospects(group.requirement for group in groups)
    return {group.key: found for group, found in zip(groups, seen, strict=True)}
