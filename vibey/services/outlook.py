"""Outlook: the world of one routing pass, read under its locks: engines, credits, each project's rules and cap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vibey.domain.decide import Prospect, Request, World, prospect
from vibey.domain.offer import Fallback, Mode, Policy
from vibey.services import modes
from vibey.store import cap, engines, jobs, runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from vibey.domain.assessment import Survey
    from vibey.domain.requirement import Requirement
    from vibey.services.installation import Installation
    from vibey.services.modes import Resolved
    from vibey.services.pools import Trees
    from vibey.store.database import Connection

SHARED_PURSE = "(installation)"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a pass decides on; `resolved` and `used` come with the policies, `day` only if a unit could be taken."""

    world: World
    resolved: dict[str, Resolved] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    day: date | None = None

    @classmethod
    def open(cls, connection: Connection, installation: Installation, trees: Trees, *, wait: bool) -> Outlook | None:
        """Lock the pool's engines, accounts and credits and read them; None when someone else holds an engine."""
        settings = installation.settings.engines
        if settings.paid_daily_cap_scope == "installation":
            cap.lock_installation(connection)
        names = engines.lock(connection, trees.engine_names, wait=wait)
        if names is None:
            return None
        timing = installation.timing
        fleet = engines.fleet(connection, names, presence_ms=timing.presence_ms, half_life_ms=timing.half_life_ms)
        tree = trees.build(fleet.engines)
        credits = runs.locked_credits(connection, trees.keys(tree))
        return cls(World(tree, fleet.engines, fleet.usage, credits, settings.cost_aware))

    def with_policies(
        self, connection: Connection, installation: Installation, groups: Sequence[jobs.Group]
    ) -> Outlook:
        """The outlook with the rules of the groups' projects, and what their caps have left, counted under lock."""
        projects = projects_of(groups)
        resolved = modes.resolve(connection, installation, projects)
        spenders = [name for name in projects if may_spend(resolved[name].policy)]
        policies = {name: resolved[name].policy for name in projects}
        world = replace(self.world, policies=policies)
        if not spenders:
            return replace(self, world=world, resolved=resolved)
        shared = installation.settings.engines.paid_daily_cap_scope == "installation"
        cap.lock_projects(connection, spenders)
        day = cap.today(connection)
        used = cap.used(connection, day, None if shared else spenders)
        if shared:
            limit = installation.settings.engines.paid_daily_cap
            left = {SHARED_PURSE: max(0, limit - sum(used.values()))}
            purses = dict.fromkeys(projects, SHARED_PURSE)
        else:
            left = {name: max(0, policies[name].cap - used.get(name, 0)) for name in spenders}
            purses = {}
        return Outlook(replace(world, caps=left, purses=purses), resolved, used, day)

    def policy(self, requirement: Requirement) -> Policy:
        """The rules this requirement's jobs are decided by."""
        return self.world.policy(requirement.project)

    def prospect(self, requirement: Requirement) -> Prospect:
        """What jobs of this requirement can look forward to."""
        surveyed: Survey = self.world.survey(requirement)
        return prospect(surveyed, self.world, Request(0, 1, requirement))


def projects_of(groups: Sequence[jobs.Group]) -> list[str]:
    """The projects that have a group, each once."""
    return list(dict.fromkeys(group.requirement.project for group in groups))


def stale_projects(connection: Connection, installation: Installation, groups: Sequence[jobs.Group]) -> tuple[str, ...]:
    """The projects whose mode must be measured before it is used."""
    resolved = modes.resolve(connection, installation, projects_of(groups))
    return tuple(name for name, each in resolved.items() if each.stale)


def may_spend(policy: Policy) -> bool:
    """Whether a job under these rules could ever take a unit of the cap."""
    return policy.mode is Mode.HYBRID or policy.fallback is Fallback.COUNT
