"""Outlook: the world of one routing pass, read under its locks: engines, credits, each project's rules and cap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vibey.domain.decide import SHARED_PURSE, Prospect, Request, World, prospect
from vibey.domain.turn import credits_of
from vibey.services import modes
from vibey.services.pools import Trees
from vibey.store import ageing, cap, engines, fleet, rotation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from vibey.domain.assessment import Survey
    from vibey.domain.offer import Policy
    from vibey.domain.requirement import Requirement
    from vibey.services.installation import Installation
    from vibey.services.modes import Resolved
    from vibey.services.purse import Purse
    from vibey.store import jobs
    from vibey.store.database import Connection


class GenerationChanged(Exception):
    """Another generation was put in force after a pass had read its number and before it had its locks."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a pass decides on; `resolved` and `used` come with the policies, `at` only if a unit could be taken then.

    `shared_cap` is the installation's cap where all projects draw on that one. `age_ms` is None unless projects take
    turns. `surveys` keeps each assessment of the pool's engines, which holds for the whole pass.
    """

    world: World
    resolved: dict[str, Resolved] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    at: datetime | None = None
    shared_cap: int | None = None
    now_ms: int = 0
    age_ms: int | None = None
    surveys: dict[tuple[object, ...], Survey] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def open(cls, connection: Connection, installation: Installation, trees: Trees, *, wait: bool) -> Outlook | None:
        """Lock the pool's engines, accounts and credits and read them; None when someone else holds an engine."""
        settings = installation.settings.engines
        if settings.paid_daily_cap_scope == "installation":
            cap.lock_installation(connection)
        names = engines.lock(connection, trees.engine_names, wait=wait)
        if names is None:
            return None
        return cls._read(connection, installation, trees, names, locking=True)

    @classmethod
    def glance(
        cls, connection: Connection, installation: Installation, trees: Trees, purses: Mapping[str, Purse]
    ) -> Outlook:
        """What a pass would decide on now for projects with these purses: to be looked at, not to be granted by."""
        outlook = cls.look(connection, installation, trees)
        policies = {name: purse.resolved.policy for name, purse in purses.items()}
        caps = {name: purse.remaining for name, purse in purses.items()}
        resolved = {name: purse.resolved for name, purse in purses.items()}
        return cls(replace(outlook.world, policies=policies, caps=caps), resolved)

    @classmethod
    def look(cls, connection: Connection, installation: Installation, trees: Trees) -> Outlook:
        """The same as `open`, read without a lock: good to find why jobs wait, not to grant any."""
        configured, reached = fleet.engine_names(connection), trees.engine_names
        names = [each for each in (configured if reached is None else reached) if each in configured]
        return cls._read(connection, installation, trees, names, locking=False)

    @classmethod
    def _read(
        cls, connection: Connection, installation: Installation, trees: Trees, names: Sequence[str], *, locking: bool
    ) -> Outlook:
        timing = installation.timing
        found = engines.fleet(
            connection,
            names,
            presence_ms=timing.presence_ms,
            half_life_ms=timing.half_life_ms,
            locking=locking,
        )
        if found.generation is not None and found.generation != trees.generation:
            raise GenerationChanged
        tree = trees.build(found.engines, installation.settings.windows(), found.now_ms)
        credits = rotation.credits(connection, Trees.keys(tree), locking=locking)
        world = World(
            tree,
            found.engines,
            found.usage,
            credits,
            installation.settings.engines.cost_aware,
            pool_missing=not trees.is_known,
        )
        return cls(world, now_ms=found.now_ms)

    def with_rules(
        self,
        connection: Connection,
        installation: Installation,
        resolved: dict[str, Resolved],
        requirements: Iterable[Requirement],
        *,
        locking: bool = True,
    ) -> Outlook:
        """The outlook with the rules of the groups' projects, and what their caps have left, counted under lock.

        Only those projects' rows are locked of whose `requirements` one could take a unit of the cap now.
        """
        projects = list(resolved)
        policies = {name: resolved[name].policy for name in projects}
        world = replace(self.world, policies=policies)
        ruled = replace(self, world=world, resolved=resolved)
        spending = {asked.project for asked in requirements if ruled.may_take_unit(asked)}
        spenders = [name for name in projects if name in spending]
        if not spenders:
            return ruled
        settings = installation.settings.engines
        shared_cap = settings.paid_daily_cap if settings.paid_daily_cap_scope == "installation" else None
        at = cap.lock_projects(connection, spenders) if locking else None
        day = cap.today(connection) if at is None else at.date()
        used = cap.used(connection, day, spenders if shared_cap is None else None)
        if shared_cap is None:
            left = {name: max(0, policies[name].cap - used.get(name, 0)) for name in spenders}
            purses = {}
        else:
            left = {SHARED_PURSE: max(0, shared_cap - sum(used.values()))}
            purses = dict.fromkeys(projects, SHARED_PURSE)
        world = replace(world, caps=left, purses=purses)
        return replace(ruled, world=world, used=used, at=at, shared_cap=shared_cap)

    def may_take_unit(self, asked: Requirement) -> bool:
        """Whether a job that asks this could take a unit of its cap now."""
        policy = self.policy(asked)
        return policy.may_spend and policy.may_take_unit(self._survey(asked))

    def _survey(self, asked: Requirement) -> Survey:
        """The assessment of the pool's engines; jobs of all projects that ask alike share one."""
        return self.world.surveyed(asked, self.surveys)

    def recalling(self, connection: Connection, sessions: Iterable[str | None]) -> Outlook:
        """The outlook with what is remembered of these sessions; None, the session of a job without one, is none."""
        named = sorted({each for each in sessions if each is not None})
        if not named:
            return self
        recalled = rotation.recalled(connection, Trees.keys(self.world.pool), named)
        return replace(self, world=replace(self.world, sessions=recalled))

    def taking_turns(self, connection: Connection, projects: Sequence[str]) -> Outlook:
        """The outlook with what the turns of these projects have left behind, and the ageing in force.

        Read without a lock: only passes over the same root pool draw turns, and they hold the same engines.
        """
        turns = rotation.turns(connection, *credits_of(self.world.pool.key, projects))
        world = replace(self.world, credits={**self.world.credits, **turns})
        return replace(self, world=world, age_ms=ageing.AGE.scalar(connection))

    @property
    def free_slots(self) -> int:
        """How many runs at most the pool's engines could take now, whoever asks."""
        return sum(map(self.world.usage.free_slots, self.world.engines))

    def limit(self, project: str) -> int:
        """The units a day that a project's paid work may take in all: its own cap, or the shared one."""
        return self.resolved[project].policy.cap if self.shared_cap is None else self.shared_cap

    def policy(self, requirement: Requirement) -> Policy:
        """The rules this requirement's jobs are decided by."""
        return self.world.policy(requirement.project)

    def prospects(self, requirements: Iterable[Requirement]) -> Iterator[Prospect]:
        """What jobs of each requirement can look forward to. Those that ask alike under like rules are judged once."""
        known: dict[tuple[object, ...], Prospect] = {}
        for asked in requirements:
            left = self.world.caps.get(self.world.purse(asked.project))
            surveyed = self._survey(asked)
            alike = (id(surveyed), self.policy(asked), left)
            found = known.get(alike)
            if found is None:
                found = known[alike] = prospect(surveyed, self.world, Request(0, 1, asked))
            yield found


def rules(connection: Connection, installation: Installation, groups: Sequence[jobs.Group]) -> dict[str, Resolved]:
    """The rules in force for each project that has a group."""
    projects = list(dict.fromkeys(group.requirement.project for group in groups))
    return modes.resolve(connection, installation, projects) if projects else {}
