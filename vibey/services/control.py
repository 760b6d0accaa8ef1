"""Control: what a person or program asks of jobs, projects and engines from outside their runs.

`by` is who asks, as the ledger's event then says: in the pages `flower:user`, else whose process this is, `user@host`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vibey.domain import settlement
from vibey.domain.effort import Effort, effort_of
from vibey.domain.errors import InvalidInput, Refused, UnknownName
from vibey.domain.settlement import JobState
from vibey.domain.titles import check_labels
from vibey.services.absence import absent
from vibey.services.enqueue import check_word
from vibey.services.owner import owner
from vibey.services.requirements import workspace_now
from vibey.services.settle import end_row
from vibey.services.wording import instant
from vibey.settings import ProjectPolicy
from vibey.store import engines, fleet, jobs, ledger, projects, runs
from vibey.store.ledger import Event
from vibey.store.projects import DEFAULT_PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.statement import Row

ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
OPEN = tuple(state.value for state in JobState if state not in ENDED)
SHOWN_JOBS = 5
PAGE_JOBS = 500


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel did: the job's state after it, and the run whose holder was told to stop, if one was."""

    state: str
    stopping_run: int | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """Jobs that have not ended and fit a filter, as they were when it was asked: `counts` by state, and the first few.

    `last` bounds what `cancel_matching` takes: a job enqueued later is not cancelled unseen.
    """

    project_id: int | None
    states: tuple[str, ...]
    labels: Mapping[str, str]
    counts: Mapping[str, int]
    first: tuple[Row[Any], ...]
    last: int


@dataclass(slots=True)
class CancelledMany:
    """What cancelling many jobs did: how many have ended, and how many runs were told to stop."""

    cancelled: int = 0
    stopping: int = 0


def cancel(installation: Installation, job_id: int, *, by: str | None = None) -> Cancelled:
    """Cancel a job: at once while no process of it runs, else by telling the holder. Refused once it has ended."""

    def work(connection: Connection) -> Row[Any]:
        row = _locked(connection, job_id)
        _cancel_locked(connection, [row], by or owner())
        return row

    row = installation.database.run(work)
    return Cancelled("running", row.run_id) if _tell_cancelled(installation, [row]) else Cancelled("cancelled")


def matching(
    installation: Installation,
    *,
    project: str | None,
    states: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Matching:
    """The unended jobs of these states (of all by default) and this project that have all these labels.

    They are as they were before they are cancelled.
    """
    check_labels(wanted_labels := dict(labels or {}))
    unknown = [state for state in states if state not in OPEN]
    if unknown:
        raise InvalidInput("state", unknown[0], f"one of {', '.join(OPEN)}: a job in another state has ended")

    def read(connection: Connection) -> Matching:
        found = projects.named(connection, project).id if project is not None else None
        wanted = {"project": found, "states": list(states or OPEN), "labels": json.dumps(wanted_labels)}
        counted = jobs.MATCHING.all(connection, **wanted)
        first = jobs.FIRST_MATCHING.all(connection, **wanted, limit=SHOWN_JOBS)
        counts = {row.state: row.n for row in counted}
        last = max((row.last for row in counted), default=0)
        return Matching(found, tuple(states or OPEN), wanted_labels, counts, tuple(first), last)

    return installation.database.run(read)


def cancel_matching(installation: Installation, wanted: Matching, *, by: str | None = None) -> CancelledMany:
    """Cancel every job that still fits, some hundreds in each transaction."""
    done, after = CancelledMany(), 0
    who = by or owner()
    while rows := installation.database.run(_page_of(wanted, after, who)):
        stopping = _tell_cancelled(installation, rows)
        done.stopping += stopping
        done.cancelled += len(rows) - stopping
        after = rows[-1].id
    return done


def _page_of(wanted: Matching, after: int, by: str) -> Callable[[Connection], Sequence[Row[Any]]]:
    """A transaction that cancels the next jobs and returns them."""

    def work(connection: Connection) -> Sequence[Row[Any]]:
        rows = jobs.LOCK_MATCHING.all(
            connection,
            project=wanted.project_id,
            states=list(wanted.states),
            labels=json.dumps(dict(wanted.labels)),
            after=after,
            last=wanted.last,
            limit=PAGE_JOBS,
        )
        _cancel_locked(connection, rows, by)
        return rows

    return work


def _cancel_locked(connection: Connection, rows: Sequence[Row[Any]], by: str) -> None:
    """Cancel locked jobs: queued ones end, grants are withdrawn, and the holders of running ones are asked to stop."""
    if not rows:
        return
    ids = [row.id for row in rows]
    jobs.NOTE_CANCEL.run(connection, ids=ids, by=by)
    jobs.CANCEL_QUEUED.run(connection, ids=ids)
    live = [row for row in rows if row.state != JobState.QUEUED]
    if not live:
        return
    jobs.REQUEST_CANCEL.run(connection, ids=[row.id for row in live])
    granted = [row for row in live if row.state == JobState.GRANTED]
    if granted:
        tokens = {row.id: row.token for row in runs.TOKENS.all(connection, runs=[row.run_id for row in granted])}
        runs.end(connection, [_withdrawal(row, tokens[row.run_id]) for row in granted])


def _withdrawal(row: Row[Any], token: int) -> dict[str, Any]:
    job = settlement.Attempted(
        row.id, row.engine, row.attempt, row.max_attempts, Effort(row.effort), cancel_requested=True
    )
    return end_row((row.run_id, token), settlement.withdrawn(job, "cancelled"), row.requirement_key)


def _tell_cancelled(installation: Installation, rows: Sequence[Row[Any]]) -> int:
    """Tell the holders of running jobs to look, and the router of the others' pools; how many runs were told."""
    running = [row.run_id for row in rows if row.state == JobState.RUNNING]
    for run_id in running:
        installation.wakeups.nudge(run_id)
    for pool in sorted({row.pool for row in rows if row.state != JobState.RUNNING}):
        installation.wake(pool)
    return len(running)


def retry(installation: Installation, job_id: int) -> None:
    """Queue a failed or cancelled job again with fresh attempts; Refused for any other."""
    pool = installation.database.run(lambda connection: _retry(connection, job_id))
    installation.wake(pool)


def _retry(connection: Connection, job_id: int) -> str:
    row = _found(connection, job_id)
    if row.state not in {JobState.FAILED, JobState.CANCELLED}:
        raise Refused(f"job {job_id} is {row.state}", "only a failed or cancelled job can be retried")
    effort = effort_of(1, Effort(row.effort))
    asked = jobs.requirement_of(row)
    workspace = None if asked.workspace is None else workspace_now(connection, row.repo)
    nobody = frozenset[str]()
    anew = replace(asked, effort=effort, avoided=nobody, handed_off=nobody, workspace=workspace)
    kept = None if workspace is None else sorted(workspace)
    jobs.RETRY.run(connection, id=job_id, effort=int(effort), key=anew.key, workspace=kept)
    ledger.append(connection, Event.JOB_RETRIED, project=row.project_id, job=job_id)
    return str(row.pool)


def _found(connection: Connection, job_id: int) -> Row[Any]:
    row = jobs.LOCK.first(connection, id=job_id)
    if row is None:
        raise absent(connection, job_id)
    return row


def _locked(connection: Connection, job_id: int) -> Row[Any]:
    row = _found(connection, job_id)
    if row.state in ENDED:
        raise Refused(f"job {job_id} has already {_ended_words(row.state)}", "nothing was changed")
    return row


def _ended_words(state: str) -> str:
    return "been cancelled" if state == JobState.CANCELLED else state


def new_project(installation: Installation, name: str, *, by: str | None = None) -> projects.Project:
    """Make a project with a copy of the dispatch settings; Refused when the name is taken."""
    check_word("project", name)
    with installation.database.begin() as connection:
        policy = ProjectPolicy.of(installation.in_force(connection).settings).to_json()
        project = projects.create(connection, name, policy)
        data = {**policy, "by": by or owner()}
        ledger.append(connection, Event.PROJECT_CREATED, project=project.id, data=data)
    return project


def set_project(
    installation: Installation, name: str, changes: Mapping[str, str], *, by: str | None = None
) -> dict[str, object]:
    """Change keys of a project's own policy, all or none; returns the policy as it now is.

    Refused for the implicit project, which follows the file.
    """
    if name == DEFAULT_PROJECT:
        raise _follows_the_file(installation, changes)

    def work(connection: Connection) -> dict[str, object]:
        project = projects.named(connection, name)
        before = ProjectPolicy.from_json(projects.lock(connection, project.id))
        policy = before
        for key, text in changes.items():
            policy = policy.changed(key, text)
        after = policy.to_json()
        projects.set_policy(connection, project.id, after)
        was = {key: before.to_json().get(key) for key in changes}
        data = {**{key: after[key] for key in changes}, "was": was, "by": by or owner()}
        ledger.append(connection, Event.PROJECT_CHANGED, project=project.id, data=data)
        return after

    return installation.database.run(work)


def _follows_the_file(installation: Installation, changes: Mapping[str, str]) -> Refused:
    """Why the implicit project is not changed here, and the lines of the file to edit."""
    file = installation.file.path or "vibey.toml (there is none here)"
    lines = []
    for key, text in changes.items():
        value = ProjectPolicy().changed(key, text).to_json()[key]
        lines.append(f"{key} = {json.dumps(value)}")
    return Refused(
        f"project {DEFAULT_PROJECT!r} follows the file",
        f"edit [engines] in {file}: {'; '.join(lines)}; then run: vibey apply",
    )


def pause_engine(installation: Installation, name: str, *, paused: bool, by: str | None = None) -> None:
    """Stop granting runs to an engine, or go on; live runs finish."""

    def work(connection: Connection) -> None:
        before = engines.SET_PAUSED.first(connection, engine=name, paused=paused)
        if before is None:
            raise UnknownName("engine", name, tuple(fleet.engine_names(connection)))
        data = {"paused": paused, "was": {"paused": before.paused}, "by": by or owner()}
        ledger.append(connection, Event.ENGINE_CHANGED, engine=name, data=data)

    installation.database.run(work)
    wake_all(installation)


def reset_engine(installation: Installation, name: str, *, by: str | None = None) -> None:
    """Close the engine's circuit by hand and forget what else keeps it out, its account's other engines included."""

    def work(connection: Connection) -> None:
        row = engines.RESET_ENGINE.first(connection, engine=name)
        if row is None:
            raise UnknownName("engine", name, tuple(fleet.engine_names(connection)))
        circuit, _, _ = engines.locked_circuit(connection, row.account)
        was = {
            "open": circuit.open_reason,
            "demoted_until": instant(row.demoted_until),
            "conformant": row.conformant,
            "installed": row.installed,
            "detail": row.detail,
            "login_ok": engines.RESET_ACCOUNT.scalar(connection, account=row.account),
        }
        data = {"account": row.account, "open": None, "was": was, "by": by or owner()}
        ledger.append(connection, Event.CIRCUIT_CHANGED, engine=name, data=data)

    installation.database.run(work)
    wake_all(installation)


def wake_all(installation: Installation) -> None:
    """Have every pool that has a due job looked at soon."""
    for row in installation.database.statement(jobs.POOLS_DUE.all):
        installation.wake(row.pool)
