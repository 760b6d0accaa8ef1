"""Measure: find out, from what the installation recorded, whether hybrid would help a project, and record that.

Demand is read once for all projects concerned and replayed without a lock held; a project's row is locked only to
record its measurement, and only if the latest one is still the one this began from. So however many measure at once,
one event is recorded; the others' work was in vain, and theirs is the same answer.

A measurement that cannot be taken or recorded is logged, and the project stays in singleton.

Only demand for local engines is judged, so what the cap covers has no part in it: a paid run that took a unit in a pool
without a local engine never wanted one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from json import loads
from typing import TYPE_CHECKING, Any

from vibey.domain.demand import would_waits
from vibey.domain.errors import Refused
from vibey.domain.measure import Measurement, verdict
from vibey.domain.offer import Mode
from vibey.services import modes
from vibey.services.demand import window
from vibey.services.modes import HOUR_MS
from vibey.services.purse import outside_cap, purses
from vibey.services.wording import instant
from vibey.settings.facts import judge_of
from vibey.store import measurements, projects, views

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from vibey.domain.demand import Demand
    from vibey.services.installation import Installation
    from vibey.services.modes import Standing
    from vibey.settings import ProjectPolicy
    from vibey.store.database import Connection

log = logging.getLogger("vibey.measure")


@dataclass(frozen=True, slots=True)
class Found:
    """A measurement not yet recorded, and how the project stood when it was begun."""

    standing: Standing
    measured: Measurement


def refresh(installation: Installation, names: Sequence[str]) -> None:
    """Measure those of these projects whose measurement is wanted and not current. Raises nothing."""
    try:
        installation = installation.current()
        standings = installation.database.run(lambda connection: modes.standings(connection, names))
        stale = [each for each in standings.values() if modes.resolved(installation, each).stale]
        if stale:
            _record(installation, _measured(installation, stale))
    except Exception:
        modes.put_off(installation, names)
        log.exception("could not measure %s; without a current measurement the mode is singleton", ", ".join(names))


def refresh_all(installation: Installation) -> None:
    """Measure every project whose measurement is wanted and not current. Raises only when projects cannot be read."""
    found = installation.database.run(projects.every)
    refresh(installation, [each.name for each in found])


def measure(installation: Installation, project: str, *, force: bool = False) -> dict[str, Any]:
    """Measure a project, whatever its mode, unless its measurement is current or `force` asks for another.

    Returns what `mode` does, and whether a measurement was `recorded`. Refused when no local engine is configured, or
    its rules cannot be read.
    """
    standing = _standing(installation, project)
    if standing.policy is None:
        raise Refused(f"project {project!r} has rules that cannot be read: {standing.problem}", "correct them first")
    if standing.slots == "{}":
        raise Refused("no local engine is configured", "there is nothing to measure without one")
    recorded = 0
    if force or not standing.is_current:
        recorded = _record(installation, _measured(installation, [standing]))
        modes.resume(installation, [project])
    return {"recorded": bool(recorded), **mode(installation, project)}


def mode(installation: Installation, project: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Which mode a project is in, since when, why, on what evidence, and when that is looked at next.

    `evidence` is the latest measurement, null where there is none that can be read; `next_measurement` is null where
    none is wanted.
    """
    return installation.database.run(lambda connection: mode_in(connection, installation, project, environ))


def mode_in(
    connection: Connection, installation: Installation, project: str, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What `mode` returns, read in the caller's transaction."""
    now: datetime = views.NOW.scalar(connection)
    projects.named(connection, project)
    standing = modes.standings(connection, [project], environ)[project]
    purse = purses(connection, installation, [project], environ)[project]
    return {
        "as_of": instant(now),
        "project": project,
        "setting": standing.policy.mode if standing.policy is not None else None,
        **_told(connection, installation, standing, now),
        "measured_at": instant(standing.at),
        "evidence": standing.recorded.evidence if standing.recorded is not None else None,
        "cap": purse.to_json(),
        **outside_cap(connection, project, purse),
    }


def _told(connection: Connection, installation: Installation, standing: Standing, now: datetime) -> dict[str, Any]:
    """The mode, and the instants around it."""
    resolved = modes.resolved(installation, standing)
    since = upcoming = None
    if resolved.source == modes.MEASURED and standing.at is not None and standing.policy is not None:
        since = measurements.same_since(connection, standing.project_id, resolved.policy.mode.value)
        left_ms = modes.max_age_ms(standing.policy) - standing.age_ms
        upcoming = now + timedelta(milliseconds=left_ms)
    elif resolved.source == modes.DECLARED:
        since = measurements.set_since(connection, standing.project_id)
    return {
        "mode": resolved.policy.mode.value,
        "mode_source": resolved.source,
        "mode_reason": resolved.reason,
        "since": instant(since),
        "next_measurement": instant(now if resolved.stale else upcoming),
    }


def _standing(installation: Installation, project: str) -> Standing:
    def read(connection: Connection) -> Standing:
        projects.named(connection, project)
        return modes.standings(connection, [project])[project]

    return installation.database.run(read)


def _measured(installation: Installation, standings: Iterable[Standing]) -> list[Found]:
    """Measure projects, with one reading of demand for all and one replay for each length of window."""
    by_window: dict[int, list[tuple[Standing, ProjectPolicy]]] = {}
    for standing in standings:
        if standing.policy is not None:
            by_window.setdefault(standing.policy.auto_window_hours, []).append((standing, standing.policy))
    if not by_window:
        return []
    demand, now_ms = installation.database.run(
        lambda connection: window(connection, max(by_window), age_ms=installation.timing.age_ms)
    )
    found = []
    for hours, judged in by_window.items():
        recent = [each for each in demand if each.looked_at_ms > now_ms - hours * HOUR_MS]
        found += _judged(recent, judged)
    return found


def _judged(demand: Sequence[Demand], judged: Iterable[tuple[Standing, ProjectPolicy]]) -> list[Found]:
    """Replay this demand and judge each of the projects by its part of it. All stand before the same local slots."""
    replays: dict[str, dict[str, list[int]]] = {}
    found = []
    for standing, policy in judged:
        slots: dict[str, int] = loads(standing.slots)
        if standing.slots not in replays:
            waits: dict[str, list[int]] = {}
            for each, wait in would_waits(demand, slots):
                waits.setdefault(each.project, []).append(wait)
            replays[standing.slots] = waits
        own = replays[standing.slots].get(standing.project, [])
        rules = judge_of(policy)
        before = standing.recorded.winner if standing.recorded is not None else Mode.SINGLETON
        verdict_ = verdict(own, rules, before)
        found.append(
            Found(standing, Measurement(verdict_, rules, standing.fingerprint, before, slots, replayed=len(demand)))
        )
    return found


def _record(installation: Installation, found: Sequence[Found]) -> int:
    """Record what was found of each project whose latest measurement is still the one it began from; how many were."""

    def work(connection: Connection) -> int:
        latest = measurements.lock_latest(connection, sorted(each.standing.project_id for each in found))
        fresh = [each for each in found if latest.get(each.standing.project_id) == each.standing.event]
        for each in fresh:
            measurements.append(connection, each.standing.project_id, each.measured)
        return len(fresh)

    recorded = installation.database.run(work)
    for each in found:
        log.info("measured project %s: %s", each.standing.project, each.measured.verdict.reason)
    return recorded
