"""Route: turn free slots and queued jobs into granted runs.

One pass is one READ COMMITTED transaction. It locks the pool's engines, then their accounts and the
rotation's credits, and counts live runs only after the first, so the count is exact. It reads one head per
group of the queue, asks the domain which groups have a taker, locks as many of their first jobs as could be
taken and are free (`SKIP LOCKED`), decides all of them in memory on the evolving world, and writes runs,
credits, decisions, events and job states with one set-based statement. Slot, token, credits, decision and
event commit together or not at all.

Only then one build message goes out per grant. The Redis lock around it spares two routers from doing the
same work; when it is lost, the second one waits for the engines' rows and finds the slots taken.

Cost is flat in the depth of the queue: a group without a taker costs one index probe, however many jobs it
holds, and why it waits is written once for the group, and only when the reason changes.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Assign, Request, World, decide_all, takers, wait_reason
from vibey.domain.snapshot import requirement_json, trace_json, world_json
from vibey.services.pools import Trees
from vibey.store import engines, jobs, runs
from vibey.store.runs import Granted, Grants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.domain.assessment import Survey
    from vibey.services.installation import Installation
    from vibey.store.database import Connection

BATCH = 1000
PASSES = 50
# After a pass that granted, one more notes why the rest waits. It costs about the same for no freed slot as for
# fifty, so slots freed meanwhile are let gather for it.
GATHER_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Passed:
    """What one pass did; `again` says that another may find more to do. None granted and not again: all is waiting."""

    granted: tuple[Granted, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """The groups of due jobs of a pool, surveyed: which have takers, and why the others wait."""

    groups: tuple[jobs.Group, ...]
    surveys: dict[int, Survey]
    wanted: tuple[tuple[int, int], ...]
    waiting: dict[int, str]


def route(installation: Installation, pool: str) -> int:
    """Route a pool until nothing more can be granted; returns how many runs were. Leaves if someone is at it."""
    router = f"{socket.gethostname()}:{os.getpid()}"
    if not installation.wakeups.begin(pool, router):
        return 0
    granted = 0
    try:
        while True:
            granted += _until_settled(installation, pool, router)
            if not installation.wakeups.finish(pool, router):
                return granted
    except BaseException:
        installation.wakeups.finish(pool, router)
        raise


def grant_freed(installation: Installation, pool: str) -> int:
    """Try one pass at once, from a task that has just freed a slot; leave it to whoever is routing its engines now."""
    passed = run_pass(installation, pool, wait=False)
    if passed is None or passed.again:
        installation.wake(pool)
    if passed is None:
        return 0
    installation.send(passed.granted)
    return len(passed.granted)


def run_pass(installation: Installation, pool: str, *, wait: bool = True) -> Passed | None:
    """One routing transaction. None, without `wait`, when someone else holds an engine of the pool."""
    return installation.database.run(lambda connection: _pass(connection, installation, pool, wait=wait))


def _until_settled(installation: Installation, pool: str, router: str) -> int:
    granted = 0
    for _ in range(PASSES):
        installation.wakeups.go_on(pool, router)
        passed = run_pass(installation, pool)
        if passed is None:
            break
        installation.send(passed.granted)
        granted += len(passed.granted)
        if not passed.granted:
            break
        if not passed.again:
            time.sleep(GATHER_SECONDS)
    return granted


def _pass(connection: Connection, installation: Installation, pool: str, *, wait: bool) -> Passed | None:
    trees = Trees.load(connection, pool)
    names = engines.lock(connection, trees.engine_names, wait=wait)
    if names is None:
        return None
    world = _world(connection, installation, trees, names)
    queue = _surveyed(world, jobs.groups(connection, pool))
    granted: tuple[Granted, ...] = ()
    again = False
    if queue.wanted:
        chosen, asked = jobs.heads(connection, pool, queue.wanted, BATCH)
        granted = _grant(connection, installation, world, queue, chosen)
        again = asked is None or asked >= BATCH or len(granted) < asked
    _note_waiting(connection, pool, queue)
    return Passed(granted, again)


def _world(connection: Connection, installation: Installation, trees: Trees, names: Sequence[str]) -> World:
    timing = installation.timing
    fleet = engines.fleet(connection, names, presence_ms=timing.presence_ms, half_life_ms=timing.half_life_ms)
    tree = trees.build(fleet.engines)
    credits = runs.locked_credits(connection, trees.keys(tree))
    return World(tree, fleet.engines, fleet.usage, credits, installation.settings.engines.cost_aware)


def _surveyed(world: World, groups: Sequence[jobs.Group]) -> Queue:
    surveys: dict[int, Survey] = {}
    wanted: list[tuple[int, int]] = []
    waiting: dict[int, str] = {}
    for group in groups:
        surveyed = surveys[group.key] = world.survey(group.requirement)
        free = sum(world.usage.free_slots(engine) for engine in takers(surveyed, world.usage))
        if free:
            wanted.append((group.key, min(free, BATCH)))
        else:
            waiting[group.key] = wait_reason(surveyed, world.usage).value
    return Queue(tuple(groups), surveys, tuple(wanted), waiting)


def _grant(
    connection: Connection,
    installation: Installation,
    world: World,
    queue: Queue,
    chosen: Sequence[jobs.Head],
) -> tuple[Granted, ...]:
    """Decide the chosen jobs, which are locked, and write what was assigned."""
    requirements = {group.key: group.requirement for group in queue.groups}
    requests = [Request(head.job_id, head.attempt + 1, requirements[head.key]) for head in chosen]
    assigned = [each for each in decide_all(requests, world) if isinstance(each, Assign)]
    if not assigned:
        return ()
    made = runs.grant(connection, _grants(world, assigned), installation.timing.lease_ms)
    _save_probes(connection, assigned, {row.job_id: row.id for row in made})
    by_job = {decision.request.job_id: decision for decision in assigned}
    return tuple(_granted(row, by_job[row.job_id]) for row in made)


def _grants(world: World, assigned: Sequence[Assign]) -> Grants:
    # Each row becomes text at once: thousands of nested lists alive together would set the garbage collector off.
    rows = [json.dumps(_row(number, decision)) for number, decision in enumerate(assigned)]
    credits: dict[tuple[str, str], int] = {}
    picks: dict[str, int] = {}
    expected: dict[str, int] = {}
    for decision in assigned:
        picks[decision.engine.name] = picks.get(decision.engine.name, 0) + 1
        for step in decision.selection.steps:
            for key, after in zip(step.members, step.after, strict=True):
                credits[step.pool, key] = after
        for name, share in decision.selection.offered().items():
            expected[name] = expected.get(name, 0) + share
    return Grants(world.pool.key, world_json(world), rows, credits, picks, expected)


def _row(number: int, decision: Assign) -> dict[str, Any]:
    return {
        "n": number,
        "job_id": decision.request.job_id,
        "engine": decision.engine.name,
        "account": decision.engine.account,
        "attempt": decision.request.attempt,
        "outcome": decision.outcome,
        "tier": decision.engine.tier.value,
        "requirement": requirement_json(decision.request.requirement),
        "trace": trace_json(decision),
    }


def _granted(row: Any, decision: Assign) -> Granted:  # noqa: ANN401  a database row
    requirement = decision.request.requirement
    return Granted(row.id, row.token, row.job_id, row.engine, requirement.project, decision.request.attempt)


def _save_probes(connection: Connection, assigned: Sequence[Assign], run_of: dict[int, int]) -> None:
    for decision in assigned:
        if decision.is_probe:
            engines.SET_PROBE.run(connection, account=decision.engine.account, run=run_of[decision.request.job_id])


def _note_waiting(connection: Connection, pool: str, queue: Queue) -> None:
    known = {group.key: group.reason for group in queue.groups}
    changed = {key: reason for key, reason in queue.waiting.items() if known[key] != reason}
    cleared = [key for key, _ in queue.wanted if known[key] is not None]
    runs.note_groups(connection, pool, changed, cleared)
