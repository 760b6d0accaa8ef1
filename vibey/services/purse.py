"""Purse: the cap a project's paid work draws on, as it stands on the UTC day by the database's clock.

The same rules, the same day and the same count that admit jobs: `vibey.services.modes` and `vibey.store.cap`. What a
cap of "exceptions" does not cover is told beside it (`outside_cap`), so that no count of units is taken for a count of
paid runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.engine import Tier
from vibey.domain.offer import Covers, Fallback
from vibey.services import modes
from vibey.services.pools import MAIN, Trees
from vibey.services.requirements import can_serve
from vibey.store import cap, fleet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from vibey.domain.offer import Policy
    from vibey.domain.requirement import Requirement
    from vibey.services.installation import Installation
    from vibey.services.modes import Resolved
    from vibey.store.database import Connection


@dataclass(frozen=True, slots=True)
class Purse:
    """A project's rules, and of its cap (its own or, by scope, the installation's) the units used on `day`.

    `paid` are the engines that units are spent on, with their capabilities.
    """

    resolved: Resolved
    limit: int
    used: int
    day: date
    paid: Mapping[str, frozenset[str]]

    @property
    def remaining(self) -> int:
        """Units left today; 0 where a cap was lowered below what had been used."""
        return max(0, self.limit - self.used)

    def concerns(self, requirement: Requirement) -> bool:
        """Whether a unit could help a job that asks this: a paid engine could serve it."""
        return any(can_serve(requirement, name, able) for name, able in self.paid.items())

    def to_json(self) -> dict[str, Any]:
        """As views show it."""
        return {
            "limit": self.limit,
            "used": self.used,
            "remaining": self.remaining,
            "utc_day": self.day.isoformat(),
            "scope": self.resolved.scope,
            "covers": self.resolved.policy.covers.value,
        }


@dataclass(frozen=True, slots=True)
class PaidPools:
    """The root pools with paid engines: `mixed` have a local engine too, `paid_only` have none."""

    mixed: tuple[str, ...]
    paid_only: tuple[str, ...]

    @classmethod
    def read(cls, connection: Connection) -> PaidPools:
        """Sort the pools that are in force; a pool that is a member of another one is part of that."""
        definitions, _ = fleet.pools(connection)
        engines = fleet.tiers(connection)
        local = {row.name for row in engines if row.tier == Tier.LOCAL}
        paid = {row.name for row in engines if row.tier == Tier.PAID and row.enabled}
        nested = {each.get("pool") for pool in definitions.values() for each in pool["members"]}
        mixed: list[str] = []
        paid_only: list[str] = []
        for root in sorted({MAIN, *definitions} - nested):
            names = Trees(root, definitions, {}).engine_names
            reached = local | paid if names is None else set(names)
            if reached & paid:
                (mixed if reached & local else paid_only).append(root)
        return cls(tuple(mixed), tuple(paid_only))

    def outside_cap(self, policy: Policy) -> list[str]:
        """Why a project with these rules can have paid runs that take no unit; empty where the cap covers them all."""
        if policy.covers is Covers.ALL:
            return []
        reasons = []
        if self.mixed and policy.fallback is Fallback.ALLOW:
            reasons.append('paid_fallback is "allow" for jobs that no local engine can serve')
        if self.paid_only:
            pools = ", ".join(self.paid_only)
            reasons.append(f'no local engine is in pool {pools}, and paid_daily_cap_covers is "exceptions"')
        return reasons


def outside_cap(connection: Connection, project: str, purse: Purse) -> dict[str, Any]:
    """Paid runs outside a project's cap: `paid_outside_cap_today`, how many, and `paid_outside_cap`, why there can be.

    Where all projects share one cap the runs of all of them are counted.
    """
    owners = None if purse.resolved.scope == "installation" else [project]
    return {
        "paid_outside_cap_today": sum(cap.outside(connection, purse.day, owners).values()),
        "paid_outside_cap": PaidPools.read(connection).outside_cap(purse.resolved.policy),
    }


def purses(
    connection: Connection,
    installation: Installation,
    projects: Sequence[str],
    environ: Mapping[str, str] | None = None,
) -> dict[str, Purse]:
    """The purse of each of these projects that exists."""
    if not projects:
        return {}
    found = modes.resolve(connection, installation, projects, environ)
    day = cap.today(connection)
    paid = fleet.paid_engines(connection)
    settings = installation.settings.engines
    if settings.paid_daily_cap_scope == "installation":
        used = sum(cap.used(connection, day).values())
        return {name: Purse(each, settings.paid_daily_cap, used, day, paid) for name, each in found.items()}
    by_project = cap.used(connection, day, list(found))
    return {name: Purse(each, each.policy.cap, by_project.get(name, 0), day, paid) for name, each in found.items()}
