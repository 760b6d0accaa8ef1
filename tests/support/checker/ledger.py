"""Ledger: each job's events replayed, and the ledger attacked (I8)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import psycopg2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.checker.facts import Facts

MOVES = {
    (None, "JobEnqueued"): "queued",
    ("queued", "RunGranted"): "granted",
    ("queued", "JobFailed"): "failed",
    ("queued", "JobCancelled"): "cancelled",
    ("granted", "RunStarted"): "running",
    ("granted", "JobRequeued"): "queued",
    ("granted", "JobCancelled"): "cancelled",
    ("running", "JobRequeued"): "queued",
    ("running", "JobSucceeded"): "succeeded",
    ("running", "JobFailed"): "failed",
    ("running", "JobCancelled"): "cancelled",
    ("failed", "JobRetried"): "queued",
    ("cancelled", "JobRetried"): "queued",
}
# The state of the job that each end of a run may lead to is the ledger's own affair; that there is one end is not.
ENDS = ("JobRequeued", "JobSucceeded", "JobFailed", "JobCancelled")
# Events about a job that move nothing.
BESIDE = (
    "EngineSlotWaitStarted",
    "EngineOverflowSelected",
    "EngineOverflowReleased",
    "PaidFallbackSelected",
    "PaidAssignmentSelected",
    "ExclusionWaived",
)
ATTACKS = (
    "update ledger set kind = kind",
    "delete from ledger",
    "truncate ledger",
)


def moves(facts: Facts) -> Iterator[str]:
    """Replay the ledger of each job and compare where it leads with where the job is."""
    state: dict[int, str | None] = defaultdict(lambda: None)
    ends: dict[int, int] = defaultdict(int)
    grants: dict[int, int] = defaultdict(int)
    for kind, job, run in facts.rows(
        "select kind, job_id, run_id from ledger where job_id is not null and kind <> 'CancelRequested' order by id"
    ):
        if run is not None:
            ends[run] += kind in ENDS
            grants[run] += kind == "RunGranted"
        if kind in BESIDE:
            continue
        following = MOVES.get((state[job], kind))
        if following is None:
            yield f"the ledger moves job {job} from {state[job]} by {kind}"
            continue
        state[job] = following
    for job, now in facts.rows("select id, state from jobs"):
        if state.pop(job, None) != now:
            yield f"the ledger's replay does not lead to job {job} being {now}"
    for job in state:
        yield f"the ledger tells of job {job}, which does not exist"
    for run in facts.spans.values():
        told = grants[run.run], ends[run.run]
        if told != (1, int(run.over)):
            yield f"the ledger has (grants, ends) {told} for run {run.run}"


def attacks(facts: Facts) -> Iterator[str]:
    """Try to change what was written."""
    for attack in ATTACKS:
        if not _refused(facts, attack):
            yield f"the ledger let itself be changed: {attack}"


def _refused(facts: Facts, attack: str) -> bool:
    try:
        facts.rows(attack)
    except psycopg2.errors.RestrictViolation:
        return True
    return False
