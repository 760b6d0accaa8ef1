"""Modes: which mode each project is in, and by whose word.

The word is the project's stored policy with the environment laid over it. `singleton` and `hybrid` are declared.
`auto` takes the winner of the project's latest measurement while that is current (`vibey.domain.measure`); one that
is missing, unreadable or not current leaves singleton in force and marks the project *stale*: it has to be measured
before it is used. Where measuring has just failed in this process the mark is withheld for a while, so that a failure
that lasts costs jobs a mode, never their turn.

Rules that cannot be read are no licence to spend: then nothing paid runs at all.

Resolving is part of every routing pass: one query for all its projects; what the texts in it mean is remembered.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from functools import cache, lru_cache
from json import loads
from typing import TYPE_CHECKING, Any

from vibey import __version__
from vibey.domain.errors import SettingsError
from vibey.domain.measure import Judge, fingerprint, is_current
from vibey.domain.offer import Covers, Fallback, Mode, Policy
from vibey.settings import ProjectPolicy
from vibey.settings.facts import judge_of, policy_of
from vibey.settings.source import OVERLAID, policy_variable
from vibey.store import measurements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.measurements import Recorded
    from vibey.store.statement import Row

log = logging.getLogger("vibey.modes")

AUTO = "auto"
DECLARED, MEASURED, FALLBACK = "declared", "measured", "fallback"
PUT_OFF_SECONDS = 60.0
HOUR_MS = 3_600_000
# As many projects as may have jobs at once; with fewer remembered than there are, a pass would remember none.
REMEMBERED = 16_384


@dataclass(frozen=True, slots=True)
class Resolved:
    """The rules a project's jobs are decided by, where its mode comes from (declared, measured or fallback) and why.

    `stale` asks for a measurement before use. `scope` says whose cap paid work draws on: the project's or the
    installation's.
    """

    policy: Policy
    source: str
    reason: str
    stale: bool
    scope: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How a project stands: its policy in force, or what is wrong with it, and its latest measurement if readable.

    `event` numbers the latest measurement, readable or not, `at` and `age_ms` are its instant and age.
    `fingerprint` is the one a measurement of now would have.
    """

    project_id: int
    project: str
    policy: ProjectPolicy | None
    problem: str
    slots: str
    fingerprint: str
    event: int | None
    recorded: Recorded | None
    at: datetime | None
    age_ms: int

    @property
    def is_current(self) -> bool:
        """Whether the latest measurement may be used."""
        if self.recorded is None or self.policy is None:
            return False
        return is_current(self.recorded.fingerprint, self.fingerprint, self.age_ms, max_age_ms(self.policy))

    @property
    def lacks(self) -> str:
        """What keeps the latest measurement from being current, in words."""
        if self.event is None:
            return "nothing has been measured yet"
        if self.recorded is None:
            return "the last measurement cannot be read by this version"
        if self.recorded.fingerprint != self.fingerprint:
            return "the last measurement was of other engines, slots or thresholds, or by another version"
        return "the last measurement is too old" if self.age_ms >= 0 else "the last measurement lies in the future"


def resolve(
    connection: Connection,
    installation: Installation,
    projects: Sequence[str],
    environ: Mapping[str, str] | None = None,
) -> dict[str, Resolved]:
    """The rules in force for each of these projects that exists; writes nothing and measures nothing."""
    found = standings(connection, projects, environ)
    return {name: resolved(installation, standing) for name, standing in found.items()}


def standings(
    connection: Connection, projects: Sequence[str], environ: Mapping[str, str] | None = None
) -> dict[str, Standing]:
    """How each of these projects stands that exists, in one query."""
    variables = os.environ if environ is None else environ
    over = tuple((name, variables[name]) for name in _variables() if name in variables)
    return {row.name: _standing(row, over) for row in measurements.standings(connection, projects)}


def resolved(installation: Installation, standing: Standing) -> Resolved:
    """The rules a project that stands so is decided by."""
    policy, scope = standing.policy, installation.settings.engines.paid_daily_cap_scope
    poll_ms = installation.timing.poll_ms
    if policy is None:
        closed = Policy(Mode.SINGLETON, poll_ms=poll_ms, cap=0, fallback=Fallback.NEVER, covers=Covers.ALL)
        return Resolved(closed, FALLBACK, standing.problem, stale=False, scope=scope)
    mode, source, reason, stale = _chosen(installation, standing, policy)
    weight = installation.settings.engines.fair_weights.get(standing.project, 1)
    return Resolved(policy_of(policy, mode, poll_ms, weight), source, reason, stale, scope)


def max_age_ms(policy: ProjectPolicy) -> int:
    """How long a measurement is current at most, in milliseconds."""
    return policy.auto_max_age_hours * HOUR_MS


def put_off(installation: Installation, projects: Iterable[str]) -> None:
    """Let these projects do without a measurement for a while, in this process: taking one has failed."""
    until = time.monotonic() + PUT_OFF_SECONDS
    _put_off.update(dict.fromkeys([(installation.identity, name) for name in projects], until))


def resume(installation: Installation, projects: Iterable[str]) -> None:
    """Ask for measurements of these projects again."""
    for name in projects:
        _put_off.pop((installation.identity, name), None)


# When a project of an installation may be asked to be measured again, by this process's monotonic clock.
_put_off: dict[tuple[str, str], float] = {}


def _chosen(installation: Installation, standing: Standing, policy: ProjectPolicy) -> tuple[Mode, str, str, bool]:
    """Mode, its source, the reason, and whether a measurement is wanted first."""
    if policy.mode != AUTO:
        return Mode(policy.mode), DECLARED, f"{policy.mode} is configured", False
    if standing.slots == "{}":
        return Mode.SINGLETON, FALLBACK, "auto is configured, but no local engine is", False
    if standing.is_current and standing.recorded is not None:
        return standing.recorded.winner, MEASURED, standing.recorded.reason, False
    reason = f"auto is configured, but {standing.lacks}"
    if _put_off and time.monotonic() < _put_off.get((installation.identity, standing.project), 0.0):
        return Mode.SINGLETON, FALLBACK, f"{reason}, and measuring failed", False
    return Mode.SINGLETON, FALLBACK, reason, True


def _standing(row: Row[Any], over: tuple[tuple[str, str], ...]) -> Standing:
    policy, judged, problem = _policy(row.name, row.policy, over)
    return Standing(
        project_id=row.id,
        project=row.name,
        policy=policy,
        problem=problem,
        slots=row.slots,
        fingerprint=_fingerprint(row.slots, judged) if judged is not None else "",
        event=row.event,
        recorded=_recorded(row.name, row.event, row.data) if row.event is not None else None,
        at=row.at,
        age_ms=row.age_ms or 0,
    )


@cache
def _variables() -> tuple[str, ...]:
    return tuple(map(policy_variable, OVERLAID))


@lru_cache(maxsize=REMEMBERED)
def _policy(
    project: str, stored: str, over: tuple[tuple[str, str], ...]
) -> tuple[ProjectPolicy | None, Judge | None, str]:
    """The policy in force and its thresholds, or what is wrong with it, which is logged when it is first met."""
    try:
        return *_parsed(stored, over), ""
    except (SettingsError, AttributeError) as error:
        # AttributeError: JSON, but no object
        problem = " ".join(str(error).split())
        log.error("project %s: %s; it stays in singleton, and nothing paid runs", project, problem)  # noqa: TRY400
        return None, None, problem


@lru_cache(maxsize=REMEMBERED)
def _parsed(stored: str, over: tuple[tuple[str, str], ...]) -> tuple[ProjectPolicy, Judge]:
    """A policy and its thresholds; most projects have the same, which is read once for all of them."""
    policy = ProjectPolicy.from_json(loads(stored)).overlaid(dict(over))
    return policy, judge_of(policy)


@lru_cache(maxsize=REMEMBERED)
def _recorded(project: str, event: int, data: str) -> Recorded | None:
    """A measurement; one that cannot be read is logged when it is first met."""
    found = measurements.recorded(data)
    if found is None:
        log.warning("project %s: measurement %d on its ledger cannot be read by this version", project, event)
    return found


@lru_cache(maxsize=1024)
def _fingerprint(slots: str, judged: Judge) -> str:
    return fingerprint(loads(slots), judged, __version__)
