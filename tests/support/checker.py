"""What must hold of an installation after any fault, judged only by its tables and by what the jobs' programs wrote.

Nothing of Vibey's own code is used here: a rule that Vibey has wrong is not copied. `violations` names every breach;
an empty list is the proof. It is meant for a fleet at rest: every job ended, or queued for a reason that can be read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg2

from tests.support.databases import query

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

# Each query returns what breaks the rule it stands under.
RULES = {
    "a job is neither ended nor queued with a reason": """
        select j.id, j.state, j.attempt from jobs j
        left join group_states g on g.pool = j.pool and g.requirement_key = j.requirement_key
        where j.state not in ('succeeded', 'failed', 'cancelled')
          and not (j.state = 'queued' and (j.reason <> '' or g.reason is not null))""",
    "a job and its live run do not agree": """
        select j.id, j.state, j.run_id, r.id, r.state from jobs j
        full join (select * from runs where ended_at is null) r on r.job_id = j.id
        where j.id is null or j.run_id is distinct from r.id or (r.id is not null and r.state <> j.state)""",
    "two runs of a job were live at once": """
        select a.job_id, a.id, a.ended_at, b.id, b.granted_at from runs a
        join runs b on b.job_id = a.job_id and b.id > a.id
        where b.granted_at < coalesce(a.ended_at, 'infinity')""",
    "a run's instants are out of order": """
        select id, granted_at, started_at, ended_at from runs
        where started_at < granted_at or ended_at < coalesce(started_at, granted_at)""",
    "a run has no decision, or several": """
        select r.id, count(d.id) from runs r left join decisions d on d.run_id = r.id
        group by r.id having count(d.id) <> 1""",
    "a decision does not say what its run is": """
        select d.id from decisions d join runs r on r.id = d.run_id
        where (d.job_id, d.engine, d.attempt) is distinct from (r.job_id, r.engine, r.attempt)""",
    "the credits of a pool do not sum to zero": """
        select pool, sum(credit) from credits group by pool having sum(credit) <> 0""",
    "an engine's count of picks is not its number of runs": """
        select e.name, e.selected_count, count(r.id) from engines e left join runs r on r.engine = e.name
        group by e.name having e.selected_count <> count(r.id)""",
    "a job succeeded more or less than once": """
        select j.id, count(r.id) from jobs j left join runs r on r.job_id = j.id and r.state = 'succeeded'
        group by j.id having (j.state = 'succeeded') <> (count(r.id) = 1)""",
    "a job used more attempts than it has": "select id, attempt, max_attempts from jobs where attempt > max_attempts",
    "a job's attempts are not those of its runs": """
        select j.id, j.attempt, count(r.id) from jobs j left join runs r on r.job_id = j.id
          and r.state <> 'withdrawn' and coalesce(r.failure_class, '') not in ('capacity', 'handoff', 'misconfigured')
        where not exists (select 1 from ledger l where l.job_id = j.id and l.kind = 'JobRetried')
        group by j.id having j.state in ('succeeded', 'failed') and j.attempt <> count(r.id) and j.attempt > 0""",
}
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
# Grounds of a decision, and wishes: they move no job.
REMARKS = (
    "CancelRequested",
    "EngineSlotWaitStarted",
    "EngineOverflowSelected",
    "EngineOverflowReleased",
    "PaidFallbackSelected",
)
ATTACKS = (
    "update ledger set kind = kind",
    "delete from ledger",
    "truncate ledger",
)


@dataclass(frozen=True, slots=True)
class Work:
    """The time from a run's first sign of life to its last, in nanoseconds of the wall clock."""

    run: int
    job: int
    engine: str
    first: int
    last: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A run as its row tells it, its instants in nanoseconds of the wall clock."""

    engine: str
    state: str
    granted: int
    started: int | None
    ended: int


def violations(database_url: str, labour_log: Path) -> list[str]:
    """Every breach there is, as a sentence with its evidence."""
    work = works(labour_log)
    found = [f"{rule}: {row}" for rule, text in RULES.items() for row in query(database_url, text)]
    found += _ledger(database_url)
    found += _slots(database_url, work)
    found += _overlaps(work)
    found += _outlived(database_url, work)
    found += [f"the ledger let itself be changed: {attack}" for attack in ATTACKS if not _refused(database_url, attack)]
    return found


def works(labour_log: Path) -> list[Work]:
    """What the programs of the jobs wrote, one entry for each run that began."""
    signs: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    ended = set()
    for line in labour_log.read_text(encoding="utf-8").splitlines():
        word, run, job, engine, _, instant = line.split()
        signs[int(run), int(job), engine].append(int(instant))
        if word == "end":
            ended.add(int(run))
    return [Work(*key, min(seen), max(seen), key[0] in ended) for key, seen in sorted(signs.items())]


def _ledger(url: str) -> list[str]:
    """Replay the ledger of each job and compare where it leads with where the job is."""
    found = []
    state: dict[int, str | None] = defaultdict(lambda: None)
    ends: dict[int, int] = defaultdict(int)
    grants: dict[int, int] = defaultdict(int)
    rows: Sequence[tuple[Any, ...]] = query(
        url,
        f"select kind, job_id, run_id from ledger where job_id is not null and kind not in {REMARKS} order by id",
    )
    for kind, job, run in rows:
        if run is not None:
            ends[run] += kind in ENDS
            grants[run] += kind == "RunGranted"
        following = MOVES.get((state[job], kind))
        if following is None:
            found.append(f"the ledger moves job {job} from {state[job]} by {kind}")
            continue
        state[job] = following
    for job, now in query(url, "select id, state from jobs"):
        if state.pop(job, None) != now:  # type: ignore[call-overload]
            found.append(f"the ledger's replay does not lead to job {job} being {now}")
    found += [f"the ledger tells of job {job}, which does not exist" for job in state]
    for run, over in query(url, "select id, ended_at is not null from runs"):
        told = grants[run], ends[run]  # type: ignore[index]
        if told != (1, int(bool(over))):
            found.append(f"the ledger has (grants, ends) {told} for run {run}")
    return found


def _slots(url: str, work: Iterable[Work]) -> list[str]:
    """An engine's runs at once, by their rows and by their processes, against its slots."""
    spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for run in _spans(url).values():
        spans["runs", run.engine].append((run.granted, run.ended))
    for each in work:
        spans["process trees", each.engine].append((each.first, each.last))
    most = {key: most_at_once(intervals) for key, intervals in spans.items()}
    slots = {str(name): int(str(count)) for name, count in query(url, "select name, slots from engines")}
    return [
        f"{count} {what} at once on {engine}, which has {slots[engine]} slots"
        for (what, engine), count in most.items()
        if count > slots[engine]
    ]


def most_at_once(intervals: Iterable[tuple[int, int]]) -> int:
    """The largest number of intervals that share an instant; one that ends where another begins shares none."""
    steps = sorted((instant, step) for first, last in intervals for instant, step in ((first, 1), (last, -1)))
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def _overlaps(work: Iterable[Work]) -> list[str]:
    """Two process trees of one job at work at the same time."""
    by_job: dict[int, list[Work]] = defaultdict(list)
    for each in sorted(work, key=lambda work: work.first):
        by_job[each.job].append(each)
    return [
        f"job {job}: run {earlier.run} was still at work when run {later.run} began"
        for job, trees in by_job.items()
        for number, later in enumerate(trees)
        for earlier in trees[:number]
        if earlier.last >= later.first
    ]


def _outlived(url: str, work: Iterable[Work]) -> list[str]:
    """Work outside the time its run was started and not ended."""
    spans = _spans(url)
    found = []
    for each in work:
        run = spans[each.run]
        if run.started is None or each.first < run.started or each.last > run.ended:
            late = (each.last - run.ended) / 1e9
            found.append(f"run {each.run} ({run.state}) was at work outside its time, {late:+.3f} s after its end")
        if run.state == "succeeded" and not each.ended:
            found.append(f"run {each.run} succeeded, but its program never came to its end")
    return found


def _spans(url: str) -> dict[int, Span]:
    nanoseconds = "(extract(epoch from {}) * 1000000000)::bigint"
    instants = [
        nanoseconds.format(column) for column in ("granted_at", "started_at", "coalesce(ended_at, clock_timestamp())")
    ]
    rows: list[tuple[Any, ...]] = query(url, f"select id, engine, state, {', '.join(instants)} from runs")
    return {row[0]: Span(*row[1:]) for row in rows}


def _refused(url: str, attack: str) -> bool:
    try:
        query(url, attack)
    except psycopg2.errors.RestrictViolation:
        return True
    return False
