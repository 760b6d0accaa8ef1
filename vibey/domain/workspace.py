"""Workspace: which engines can work in the repository a job names, judged by its name alone.

A job's payload may name a repository, by an absolute path or by its path below a root. Engines have `workspace_roots`.
Whether the repository exists, and where links lead, is found out when a run begins, on the machine it begins on
(`vibey.engines.source`). When a job is enqueued, only names can be compared: an absolute path has to lie under one of
an engine's roots; a relative path may lie under the roots of every engine that has any.

The payload of engines that work in no repository is their own affair for some kinds: they read `repo` as data. They
count only where no engine of the installation has roots, because there `repo` cannot mean a repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

REPOSITORY = "repo"
"""The key of a payload that names a repository."""

READS_THE_PAYLOAD = frozenset({"command", "noop", "python"})
"""Kinds that, without roots, take `repo` as data of their own; any other kind works in a folder."""

WORKS_ELSEWHERE = frozenset({"celery", "openai"})
"""Kinds whose work is done by another program that is given no folder: roots are of no use to them."""


@dataclass(frozen=True, slots=True)
class Roots:
    """An engine's roots; `folders` are None where they are not known yet, and then it may work anywhere."""

    engine: str
    kind: str
    folders: tuple[str, ...] | None = ()


def engines_for(repository: object, engines: Collection[Roots]) -> frozenset[str]:
    """The names of the engines that can work in a repository a payload names."""
    if not any(each.folders is None or each.folders for each in engines):
        return frozenset(each.engine for each in engines if each.kind in READS_THE_PAYLOAD)
    place = _place(repository)
    return frozenset(
        each.engine for each in engines if each.folders is None or (place is not None and _holds(each.folders, place))
    )


def _place(repository: object) -> str | None:
    """The path by name, with a slash at its end; None for what can lie under no root."""
    if not isinstance(repository, str) or not repository:
        return None
    path = PurePosixPath(repository)
    return None if ".." in path.parts else _closed(str(path))


def _holds(folders: tuple[str, ...], place: str) -> bool:
    if not place.startswith("/"):
        return bool(folders)
    return any(place.startswith(_closed(folder)) for folder in folders)


def _closed(path: str) -> str:
    return path if path.endswith("/") else f"{path}/"
