"""Effects: what becomes of live runs and queued jobs when another generation is put in force, in sentences.

Two things are found for each group of queued jobs, by the functions that route them. Whether any engine could still
serve the group, whatever state it is in (`vibey.services.requirements`). And which paid engines it would be offered,
under the rules, the engines and the pools that are proposed instead of those in force (`vibey.domain.offer`), so that
no job begins to cost money without that being reported before. What the environment lays over the rules counts here
as it is in this process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from vibey.domain.decide import UNKNOWN, Request
from vibey.domain.engine import EngineFacts, Tier
from vibey.domain.offer import Offer, free, offer
from vibey.domain.workspace import engines_for
from vibey.services import connections, modes
from vibey.services.outlook import Outlook
from vibey.services.pools import MAIN, Trees
from vibey.services.purse import purses
from vibey.services.requirements import Candidates
from vibey.settings import ProjectPolicy
from vibey.settings.applied import followed, policy_in
from vibey.settings.difference import removed_pools, replaced_engines
from vibey.store import generations
from vibey.store.jobs import requirement_of
from vibey.store.projects import DEFAULT_PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vibey.domain.decide import World
    from vibey.domain.requirement import Requirement
    from vibey.services.installation import Installation
    from vibey.services.purse import Purse
    from vibey.store.database import Connection
    from vibey.store.statement import Row

    Content = Mapping[str, Any]


def effects(connection: Connection, installation: Installation, before: Content | None, wanted: Content) -> list[str]:
    """What becomes of live runs and queued jobs, in sentences; those that need a person first.

    Reads the engines as they are, and so must be called before their rows are changed.
    """
    live = generations.LIVE.all(connection)
    queued = generations.QUEUED_GROUPS.all(connection)
    found = [*_of_live_runs(live, before, wanted)]
    if before is not None and queued:
        found += _without_engine(queued, before, wanted)
        found += _paid(connection, installation, queued, (before, wanted))
    gone = set(removed_pools(before, wanted)) - {MAIN}
    by_pool = {pool: sum(row.n for row in queued if row.pool == pool) for pool in sorted(gone)}
    found += [
        f"{count} queued in pool {pool} {'waits' if count == 1 else 'wait'} until there is such a pool again"
        for pool, count in by_pool.items()
        if count
    ]
    found += connections.effects(connection, wanted)
    waiting, held = sum(row.n for row in queued), sum(row.held for row in queued)
    if waiting:
        found.append(
            f"{waiting} queued, {held} of them held, {'is' if waiting == 1 else 'are'} looked at again at once"
        )
    return found


def _of_live_runs(live: Sequence[Row[Any]], before: Content | None, wanted: Content) -> Iterator[str]:
    replaced = replaced_engines(before, wanted)
    for row in live:
        if row.engine in replaced:
            fate = "go on to their end" if row.state == "running" else "are withdrawn, their attempts refunded"
            one = "goes on to its end" if row.state == "running" else "is withdrawn, its attempt refunded"
            what = "running" if row.state == "running" else "granted"
            yield f"{row.n} {what} on {row.engine} {one if row.n == 1 else fate}"
    for name, engine in wanted["engine"].items():
        in_use = sum(row.n for row in live if row.engine == name)
        if name not in replaced and in_use > engine["slots"]:
            yield f"{in_use} at work on {name} go on; no more until fewer than {engine['slots']} are"


@dataclass(slots=True)
class _Jobs:
    """Queued jobs that one sentence is about: how many, and the number of the first."""

    count: int = 0
    first: int = 0
    rooms: dict[str, int] = field(default_factory=dict)

    def add(self, count: int, first: int) -> None:
        """Count some more."""
        self.count += count
        self.first = min(self.first or first, first)

    @override
    def __str__(self) -> str:
        if self.count == 1:
            return f"1 queued (job {self.first})"
        return f"{self.count} queued (such as job {self.first})"


def _without_engine(queued: Sequence[Row[Any]], before: Content, wanted: Content) -> Iterator[str]:
    """Jobs that an engine in force could serve, and none of those proposed can."""
    now, then = Candidates.of(before), Candidates.of(wanted)
    stranded: dict[tuple[str, ...], _Jobs] = {}
    for row in queued:
        if row.pool not in wanted["pool"] and row.pool != MAIN:
            continue
        asked = requirement_of(row)
        able = now.able(_placed(asked, row.repo, now))
        if able and not then.able(_placed(asked, row.repo, then)):
            stranded.setdefault(tuple(able), _Jobs()).add(row.n, row.first)
    for names, jobs in stranded.items():
        waits = "it waits" if jobs.count == 1 else "they wait"
        can = f"can run only on {', '.join(names)}, and on no engine that this leaves"
        yield f"{jobs} {can}: {waits} until one is configured again that can take {'it' if jobs.count == 1 else 'them'}"


def _placed(asked: Requirement, repository: object, candidates: Candidates) -> Requirement:
    """The requirement with the engines that can work in its repository under a generation."""
    if asked.workspace is None:
        return asked
    return replace(asked, workspace=engines_for(repository, candidates.roots))


def _paid(
    connection: Connection, installation: Installation, queued: Sequence[Row[Any]], contents: tuple[Content, Content]
) -> Iterator[str]:
    """Jobs that may run on paid engines under what is proposed, and may not, or only later, under what is in force."""
    _, wanted = contents
    current = installation.in_force(connection)
    proposed = installation.reread(followed(installation.file, wanted))
    owned = purses(connection, current, sorted({row.project for row in queued}))
    owning = _purses_under(connection, proposed, owned, wanted)
    found: dict[tuple[tuple[str, ...], bool, int], _Jobs] = {}
    for pool in sorted({row.pool for row in queued if row.due}):
        trees = Trees.load(connection, pool)
        outlook = Outlook.glance(connection, current, trees, owned)
        now, then = outlook.world, _world_under(outlook, proposed, trees, owning, contents)
        for row in queued:
            if row.pool == pool and row.due:
                _note_paid(found, row, _paid_offer(now, row), _paid_offer(then, row))
    for (names, counted, seconds), jobs in found.items():
        at_once = min(jobs.count, sum(jobs.rooms.values()))
        when = f"once held for {seconds} s" if seconds else f"at once, {at_once} of them at the same time"
        unit = "each takes a unit of the cap" if counted else "none of them takes a unit of the cap"
        yield f"{jobs} may run on paid engines ({', '.join(names)}) {when}; {unit}"


@dataclass(frozen=True, slots=True)
class _PaidOffer:
    """Paid engines with a free slot that a group is offered, with those slots; in how many seconds; if units count."""

    rooms: Mapping[str, int]
    seconds: int
    counted: bool


def _note_paid(
    found: dict[tuple[tuple[str, ...], bool, int], _Jobs],
    row: Row[Any],
    now: _PaidOffer | None,
    then: _PaidOffer | None,
) -> None:
    if then is None or (now is not None and now.seconds <= then.seconds):
        return
    jobs = found.setdefault((tuple(then.rooms), then.counted, then.seconds), _Jobs())
    jobs.add(row.due, row.first)
    jobs.rooms |= then.rooms


def _paid_offer(world: World, row: Row[Any]) -> _PaidOffer | None:
    """The paid engines a group's jobs are offered, as soon as they have been held for as long as that takes."""
    asked = requirement_of(row)
    policy = world.policy(asked.project)
    surveyed = world.survey(asked)
    if world.pool_missing:
        return None
    for waited_ms in (row.held_ms, max(row.held_ms, policy.overflow_after_ms)):
        load = world.load(Request(row.first, 1, asked, waited_ms), surveyed)
        offered = offer(surveyed, policy, load)
        if isinstance(offered, Offer):
            candidates = [each.engine for each in free(offered.candidates, load.full) if each.engine.tier is Tier.PAID]
            if not candidates:
                return None
            left = load.cap_left if offered.counted else sum(map(world.usage.free_slots, candidates))
            rooms = {each.name: min(world.usage.free_slots(each), left) for each in candidates}
            return _PaidOffer(rooms, -(-(waited_ms - row.held_ms) // 1000), offered.counted)
    return None


def _purses_under(
    connection: Connection, proposed: Installation, owned: Mapping[str, Purse], wanted: Content
) -> dict[str, Purse]:
    """The purses of these projects under what is proposed; only the implicit project's rules follow the file."""
    shared = proposed.settings.engines.paid_daily_cap_scope == "installation"
    found = {}
    for name, purse in owned.items():
        standing = modes.standings(connection, [name])[name]
        if name == DEFAULT_PROJECT:
            policy = ProjectPolicy.from_json(policy_in(wanted)).overlaid(os.environ)
            standing = replace(standing, policy=policy)
        resolved = modes.resolved(proposed, standing)
        limit = proposed.settings.engines.paid_daily_cap if shared else resolved.policy.cap
        found[name] = replace(purse, resolved=resolved, limit=limit)
    return found


def _world_under(
    outlook: Outlook,
    proposed: Installation,
    trees: Trees,
    owning: Mapping[str, Purse],
    contents: tuple[Content, Content],
) -> World:
    """The world of a pool as it would be under what is proposed, the state of its engines being the same.

    An engine that is new has no worker yet.
    """
    before, wanted = contents[0]["engine"], contents[1]
    after = Trees(trees.root, wanted["pool"], trees.adjustments)
    reached, known = after.engine_names, {each.name: each for each in outlook.world.engines}
    names = wanted["engine"] if reached is None else [name for name in reached if name in wanted["engine"]]
    engines = tuple(_facts(name, wanted["engine"][name], known.get(name), before.get(name, {})) for name in names)
    return replace(
        outlook.world,
        pool=after.build(engines, proposed.settings.windows(), outlook.now_ms),
        engines=engines,
        cost_aware=proposed.settings.engines.cost_aware,
        policies={name: purse.resolved.policy for name, purse in owning.items()},
        caps={name: purse.remaining for name, purse in owning.items()},
        pool_missing=not after.is_known,
        full=UNKNOWN,
    )


def _facts(name: str, engine: Mapping[str, Any], known: EngineFacts | None, was: Mapping[str, Any]) -> EngineFacts:
    """An engine as proposed, in the state that the one in force is in; `known` is None for a new one, `was` empty."""
    base = known or EngineFacts(name, Tier.PAID, 0, 0, name, staffed=False)
    # One that both enable and that is not enabled is paused by a person.
    is_paused = not base.enabled and was.get("enabled", True)
    return replace(
        base,
        tier=Tier(engine["tier"]),
        ordinal=engine["ordinal"],
        slots=engine["slots"],
        account=engine["account"],
        weight=engine["weight"],
        price=engine["price"],
        capabilities=frozenset(engine["capabilities"]),
        enabled=engine["enabled"] and not is_paused,
    )
