"""Requirements: which configured engines could ever serve what a job asks, and what is missing for each of the others.

Only what does not pass by itself counts: the engines a job names or excludes, the repository it works in, the
capabilities it needs, and the pool it is for. Pauses, circuits, logins and full slots come and go, and a disabled
engine counts as configured.

The engines that can work in a job's repository are part of what the job asks. They are found when it is enqueued, and
again whenever the configuration changes (`refresh_workspace_sets`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vibey.domain.assessment import Exclusion, misfit
from vibey.domain.call import ROUTED_ONLY
from vibey.domain.errors import Unservable
from vibey.domain.prompt import NEEDS_PROMPT, prompt_of
from vibey.domain.workspace import REPOSITORY, WORKS_ELSEWHERE, Roots, engines_for
from vibey.services.pools import Trees
from vibey.store import fleet, jobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vibey.domain.requirement import Requirement
    from vibey.store.database import Connection
    from vibey.store.statement import Row

NAMES_SHOWN = 5
REASONS_SHOWN = 8
ROUNDS = 5


def can_serve(requirement: Requirement, engine: str, capabilities: frozenset[str]) -> bool:
    """Whether an engine with these capabilities could ever serve a requirement, its pool aside."""
    return misfit(requirement, engine, capabilities, calls_only=ROUTED_ONLY in capabilities) is None


@dataclass(slots=True)
class Candidates:
    """The configured engines, as far as it matters to whether they could ever serve a job."""

    capabilities: Mapping[str, frozenset[str]]
    roots: Sequence[Roots]
    pools: Mapping[str, Mapping[str, Any]]
    generation: int | None = None
    _judged: dict[tuple[object, ...], tuple[str, str] | None] = field(default_factory=dict)
    _trees: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    @classmethod
    def load(cls, connection: Connection) -> Candidates:
        """Read the engines, the pools and the number of the generation in force (None: none yet)."""
        rows = fleet.configured(connection)
        generation, pools, _ = fleet.pools_in_force(connection)
        capabilities = {row.name: frozenset(row.capabilities) for row in rows}
        return cls(capabilities, list(map(_roots, rows)), pools, generation)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Candidates:
        """Those of a generation, whether it is in force or not."""
        engines: Mapping[str, Mapping[str, Any]] = content["engine"]
        able = {name: frozenset(engine["capabilities"]) for name, engine in engines.items()}
        roots = [
            Roots(name, engine["kind"], tuple(engine["workspace_roots"]) if "workspace_roots" in engine else None)
            for name, engine in engines.items()
        ]
        return cls(able, roots, content["pool"])

    def able(self, requirement: Requirement) -> list[str]:
        """The engines that could serve a requirement, whatever state they are in."""
        reached = self._reached(requirement.pool)
        return [
            name
            for name, able in self.capabilities.items()
            if (reached is None or name in reached) and can_serve(requirement, name, able)
        ]

    def workspace(self, payload: Mapping[str, Any]) -> frozenset[str] | None:
        """The engines that can work in the repository a payload names; None when it names none."""
        return engines_for(payload[REPOSITORY], self.roots) if REPOSITORY in payload else None

    def require_one(self, requirement: Requirement, payload: Mapping[str, Any]) -> None:
        """Unservable, with what is missing for each engine, when none could ever serve the job."""
        repository, prompted = payload.get(REPOSITORY), prompt_of(payload) is not None
        asked = (
            requirement.pool,
            requirement.capabilities,
            requirement.excluded,
            requirement.pinned,
            requirement.workspace,
            str(repository) if requirement.workspace == frozenset() else None,
            prompted,
        )
        if asked not in self._judged:
            missing = list(self._missing(requirement, repository, prompted=prompted))
            servable = any(words is None for _, words in missing)
            self._judged[asked] = None if servable else (_listed(missing), self._configure(requirement))
        if (words := self._judged[asked]) is not None:
            raise Unservable(*words)

    def _configure(self, requirement: Requirement) -> str:
        """What to configure so that the job can be served: workspace roots, where engines lack nothing else."""
        placed = replace(requirement, workspace=None)
        kinds = {each.engine: each.kind for each in self.roots}
        names = [name for name in self.able(placed) if kinds.get(name) not in WORKS_ELSEWHERE]
        if requirement.workspace is None or not names:
            return "configure such an engine"
        return (
            f"add the folder above its repository to workspace_roots of {some(names)} in vibey.toml and run vibey apply"
        )

    def _reached(self, pool: str) -> tuple[str, ...] | None:
        """The engines under a root pool; None for all of them."""
        if pool not in self._trees:
            self._trees[pool] = Trees(pool, self.pools, {}).engine_names
        return self._trees[pool]

    def _missing(
        self, requirement: Requirement, repository: object, *, prompted: bool
    ) -> Iterator[tuple[str, str | None]]:
        """Each engine with what is missing for it; None when nothing is."""
        unable = set() if prompted else {each.engine for each in self.roots if each.kind in NEEDS_PROMPT}
        reached = self._reached(requirement.pool)
        rooted = {each.engine for each in self.roots if each.folders}
        for name, able in self.capabilities.items():
            found = misfit(requirement, name, able, calls_only=ROUTED_ONLY in able)
            if reached is not None and name not in reached:
                yield name, f"not in pool {requirement.pool}"
            elif found is Exclusion.NO_WORKSPACE:
                yield name, _no_workspace(repository, has_roots=name in rooted)
            elif found is not None:
                yield name, _WORDS.get(found) or lacking(requirement, able)
            elif name in unable:
                yield name, "needs a prompt"
            else:
                yield name, None
        for name in sorted(requirement.pinned - self.capabilities.keys()):
            yield name, "not configured"


@dataclass(frozen=True, slots=True)
class Serving:
    """Which engines could serve what a job asks, and which of them have a live worker, as of one reading.

    `problems` has what one live worker reports that keeps it from serving an engine, by engine.
    """

    candidates: Candidates
    served: Mapping[str, bool]
    problems: Mapping[str, str]

    @classmethod
    def load(cls, connection: Connection, presence_ms: int) -> Serving:
        """Read the engines, the pools and the workers; a worker counts as live for `presence_ms` after it reported."""
        rows = fleet.SERVED.all(connection, presence_ms=presence_ms)
        served = {row.name: row.served for row in rows}
        problems = {row.name: row.problem for row in rows if row.problem is not None}
        return cls(Candidates.load(connection), served, problems)

    def could(self, requirement: Requirement) -> bool:
        """Whether any configured engine could serve it, whatever state that is in."""
        return bool(self.candidates.able(requirement))

    def without_worker(self, requirement: Requirement) -> list[str]:
        """The enabled engines that could serve it, where none of them has a live worker; else none."""
        able = [name for name in self.candidates.able(requirement) if name in self.served]
        return [] if any(self.served[name] for name in able) else able


def lacking(requirement: Requirement, capabilities: frozenset[str]) -> str:
    """What an engine with these capabilities lacks for a requirement."""
    lacks = requirement.capabilities - capabilities
    return f"lacks {', '.join(sorted(lacks))}" if lacks else "runs only calls of Celery tasks"


def refresh_workspace_sets(connection: Connection) -> None:
    """Find anew which engines can work in the repositories that open jobs name, after the configuration has changed.

    Jobs whose set is another one now move to the group of that set. Jobs that change while this runs are looked at
    again, a few times; what is left then is found by the next call, at the latest within ten minutes.
    """
    for _ in range(ROUNDS):
        roots = [_roots(row) for row in fleet.configured(connection)]
        changed = [row for found in jobs.WORKSPACES.all(connection) if (row := _changed(found, roots))]
        if not changed:
            return
        jobs.SET_WORKSPACES.run(connection, rows=json.dumps(changed))


def workspace_now(connection: Connection, repository: object) -> frozenset[str]:
    """The engines that can work in a repository a payload names, as they are configured now."""
    return engines_for(repository, [_roots(row) for row in fleet.configured(connection)])


def _changed(found: Row[Any], roots: Sequence[Roots]) -> dict[str, Any] | None:
    asked = jobs.requirement_of(found)
    now = replace(asked, workspace=engines_for(found.repo, roots))
    if now == asked:
        return None
    return {"key": found.key, "repo": found.repo, "workspace": sorted(now.workspace or ()), "new_key": now.key}


def _roots(row: Row[Any]) -> Roots:
    return Roots(row.name, row.kind, None if row.workspace_roots is None else tuple(row.workspace_roots))


_WORDS = {Exclusion.EXCLUDED_BY_JOB: "excluded by the job", Exclusion.NOT_PINNED: "not an engine the job names"}


def _no_workspace(repository: object, *, has_roots: bool) -> str:
    if not has_roots:
        return "works in no repository (it has no workspace_roots)"
    return f"repository {str(repository)[:100]!r} is not under its workspace_roots"


def _listed(missing: Sequence[tuple[str, str | None]]) -> str:
    """What is missing, each reason once with the engines it holds for."""
    if not missing:
        return "no engine is configured"
    by_words: dict[str, list[str]] = {}
    for name, words in missing:
        by_words.setdefault(str(words), []).append(name)
    shown = [f"{some(names)}: {words}" for words, names in list(by_words.items())[:REASONS_SHOWN]]
    more = sum(len(names) for names in list(by_words.values())[REASONS_SHOWN:])
    return "; ".join([*shown, f"and {more} more engines"] if more else shown)


def some(names: Sequence[str]) -> str:
    """The first few of these names, and how many there are besides."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
