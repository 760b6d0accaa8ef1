"""Projects: the unit that owns jobs, a cap and a mode."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import Refused, UnknownName
from vibey.domain.shell import command
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from sqlalchemy import Connection

DEFAULT_PROJECT = "default"
"""The implicit project, which follows what is applied."""

INSERT = Statement(
    "project-insert",
    "make a project, unless the name is taken",
    """insert into projects (name, policy) values (%(name)s, %(policy)s::jsonb)
       on conflict (name) do nothing returning id""",
)
BY_NAME = Statement(
    "project-by-name", "find one project", "select id, name, policy from projects where name = %(name)s"
)
NAMES = Statement("project-names", "list projects for a hint", "select name from projects order by name limit 20")
ALL = Statement(
    "project-all", "list projects with their policies", "select id, name, policy from projects order by name"
)
SET_POLICY = Statement(
    "project-set-policy",
    "replace a project's policy",
    "update projects set policy = %(policy)s::jsonb where id = %(id)s",
)
LOCK = Statement(
    "project-lock",
    "hold a project while its policy changes",
    "select policy from projects where id = %(id)s for no key update",
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project as stored; `policy` is its copy of the settings it may differ in."""

    id: int
    name: str
    policy: dict[str, Any]


def create(connection: Connection, name: str, policy: dict[str, Any]) -> Project:
    """Make a project; Refused when the name is taken."""
    made = INSERT.scalar(connection, name=name, policy=json.dumps(policy))
    if made is None:
        raise Refused(
            f"project {name!r} exists already", f"change it with: {command('vibey project set', name)} KEY=VALUE"
        )
    return Project(int(made), name, policy)


def ensure(connection: Connection, name: str, policy: dict[str, Any]) -> Project:
    """The project of this name, made if missing."""
    INSERT.scalar(connection, name=name, policy=json.dumps(policy))
    return named(connection, name)


def named(connection: Connection, name: str) -> Project:
    """The project of this name; UnknownName, with the known ones, when there is none."""
    row = BY_NAME.first(connection, name=name)
    if row is None:
        raise UnknownName("project", name, tuple(known.name for known in NAMES.all(connection)))
    return Project(row.id, row.name, row.policy)


def every(connection: Connection) -> list[Project]:
    """All projects by name."""
    return [Project(row.id, row.name, row.policy) for row in ALL.all(connection)]


def lock(connection: Connection, project_id: int) -> dict[str, Any]:
    """Lock the project's row and return its policy as of now."""
    policy: dict[str, Any] = LOCK.scalar(connection, id=project_id)
    return policy


def set_policy(connection: Connection, project_id: int, policy: dict[str, Any]) -> None:
    """Replace the policy of a project whose row is locked."""
    SET_POLICY.run(connection, id=project_id, policy=json.dumps(policy))
