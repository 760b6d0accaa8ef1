"""Purse: the cap a project's paid work draws on, as it stands on the UTC day by the database's clock.

The same rules, the same day and the same count that admit jobs: `vibey.services.modes` and `vibey.store.cap`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.services import modes
from vibey.services.requirements import can_serve
from vibey.store import cap, fleet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

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
