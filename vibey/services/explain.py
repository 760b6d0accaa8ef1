"""Explain: why a job's runs were granted where they were, or why a job has not started and what would have to change.

A run is explained from what its pass recorded, by the functions that decided it; where they do not come to what was
recorded, that is said instead. What keeps a queued job is found on the world as it is now, read as of one instant in a
transaction that takes no lock and cannot write.

The explanation is a plain value:

    as_of, job_id, project, pool, state, reason, attempt, max_attempts      as `vibey job` has them
    runs        latest first: run_id, attempt, granted_at, engine, tier, why, state, decision, pass, reproduced,
                problem, grounds, walk, engines; the last three are None or empty where it is not `reproduced`, and
                `problem` then says why
      grounds   because (a sentence), mode, waited_seconds, threshold_seconds, cap_left (before; None when no unit was
                taken), counted, waived, waiver (a sentence), local_slots [engine, in_use, slots]
      walk      a step for each pool: pool, select, skipped [class, found: full|closed], class, demoted, members
                [member, share, credit_before, credit_after], chosen, turn: only|drawn|sticky|yielded
      engines   every engine in declared order: engine, tier, verdict, ground, detail (a sentence), pool, share,
                credit_before, credit_after (in the draw it took part in, else None), weight, factors [base, layers
                [kind, factor, until, note], health, fidelity, cost, affinity], demoted, waived, slots, in_use
    waiting     None unless the job is queued: reason, since, held_since, backoff_until, deadline_at, decision (the
                latest about its group: decision, at, outcome, reason, words, reproduced), outcome (what the router
                would say now: assign, overflow, fallback, hold or wait), why (the word for a hold or wait), earliest
                [at, by, engine, words], engines as above
    unstarted   None unless the job ended without a run: decision (the latest about its group before that, as above;
                None where none is recorded), engines as above, at that decision

A verdict is chosen, lost, passed_over, not_offered, full or excluded (`vibey.services.verdicts`). `at` of `earliest` is
None when no instant is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Assign, Wait, decide
from vibey.domain.offer import WaitReason
from vibey.domain.settlement import JobState
from vibey.services import starts, telling
from vibey.services.absence import absent
from vibey.services.outlook import Outlook
from vibey.services.pools import Trees
from vibey.services.purse import purses
from vibey.services.replay import Question, replayed
from vibey.services.requirements import Serving
from vibey.services.wording import HELD, cap_spent, engine_detail, instant, reason_in_words, reason_of
from vibey.store import audit, decisions, engines, views

if TYPE_CHECKING:
    from datetime import datetime

    from vibey.domain.decide import Decision
    from vibey.services.installation import Installation
    from vibey.services.purse import Purse
    from vibey.services.replay import Replayed
    from vibey.services.view_rows import View
    from vibey.store.database import Connection
    from vibey.store.statement import Row

UNRECORDED = "no decision is recorded for it"
UNLIKE = "the router's functions do not come to what was recorded: see vibey replay --job {job}"


def explain(installation: Installation, job_id: int, *, every_run: bool = False) -> View:
    """The explanation of a job, with its latest run or all of them; UnknownName when there is no such job."""

    def read(connection: Connection) -> View:
        audit.SNAPSHOT.run(connection)
        return explained_in(connection, installation, job_id, every_run=every_run)

    return installation.database.run(read)


def explained_in(connection: Connection, installation: Installation, job_id: int, *, every_run: bool = False) -> View:
    """What `explain` returns, read in the caller's transaction, which sees one instant."""
    job = views.JOB.first(connection, id=job_id)
    if job is None:
        raise absent(connection, job_id)
    purse = purses(connection, installation, [job.project])[job.project]
    made = list(reversed(views.RUNS.all(connection, job=job_id)))
    waiting = _waiting(connection, installation, job, purse) if job.state == JobState.QUEUED else None
    explained = _runs(connection, job_id, made if every_run else made[:1])
    return {
        "as_of": instant(job.now),
        "job_id": job.id,
        "project": job.project,
        "pool": job.pool,
        "state": job.state,
        "reason": reason_of(job, purse, Serving.load(connection, installation.timing.presence_ms)),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "runs": explained,
        "waiting": waiting,
        "unstarted": _unstarted(connection, job) if job.ended_at is not None and not made else None,
    }


def spent_cap(installation: Installation, job_id: int) -> str | None:
    """Why a queued job waits for the next day's cap, as the router would find it now; None if it does not."""

    def read(connection: Connection) -> str | None:
        audit.SNAPSHOT.run(connection)
        job = views.JOB.first(connection, id=job_id)
        if job is None or job.state != JobState.QUEUED or job.not_before is not None:
            return None
        purse = purses(connection, installation, [job.project])[job.project]
        if purse.remaining:
            return None
        question = _question(connection, installation, job, purse)
        answer = decide(question.request, question.world, question.surveyed)
        is_spent = isinstance(answer, Wait) and answer.reason is WaitReason.CAP_SPENT
        return cap_spent(purse) if is_spent else None

    return installation.database.run(read)


def _question(connection: Connection, installation: Installation, job: Row[Any], purse: Purse) -> Question:
    """What the router would be asked about a queued job now."""
    asked = starts.asked(job)
    outlook = Outlook.glance(connection, installation, Trees.load(connection, job.pool), {job.project: purse})
    outlook = outlook.recalling(connection, [asked.session])
    return Question(asked, outlook.world, outlook.world.survey(asked.requirement))


def _runs(connection: Connection, job_id: int, made: list[Row[Any]]) -> list[View]:
    wanted = {row.id for row in made}
    ids = [row.pass_id for row in decisions.OF_RUNS.all(connection, job=job_id, runs=list(wanted))]
    found: dict[int, Replayed] = {}
    for each in decisions.read(connection, ids):
        found |= {decided.row.run_id: decided for decided in replayed(each) if decided.row.run_id in wanted}
    return [_run(row, found.get(row.id)) for row in made]


def _run(row: Row[Any], found: Replayed | None) -> View:
    problem = UNRECORDED if found is None else None if found.is_same else UNLIKE.format(job=found.row.job_id)
    told: View = {
        "run_id": row.id,
        "attempt": row.attempt,
        "granted_at": instant(row.granted_at),
        "engine": row.engine,
        "tier": None if found is None else found.row.tier,
        "why": row.why,
        "state": row.state,
        "decision": None if found is None else found.row.id,
        "pass": None if found is None else found.row.pass_id,
        "reproduced": problem is None,
        "problem": problem,
        "grounds": None,
        "turn": [],
        "walk": [],
        "engines": [],
    }
    if problem is not None or found is None or found.question is None or not isinstance(found.answer, Assign):
        return told
    question, answer = found.question, found.answer
    return told | {
        "grounds": telling.grounds(question, answer),
        "turn": telling.turn(answer),
        "walk": telling.walk(answer, question.world.pool),
        "engines": telling.engines(question, answer),
    }


def _waiting(connection: Connection, installation: Installation, job: Row[Any], purse: Purse) -> View:
    question = _question(connection, installation, job, purse)
    asked = question.request
    answer = decide(asked, question.world, question.surveyed)
    known = starts.Known.of(connection, question.world, {job.project: purse})
    return {
        "reason": job.group_reason,
        "since": instant(job.group_since),
        "held_since": instant(job.held_at),
        "backoff_until": instant(job.not_before),
        "deadline_at": instant(job.deadline_at),
        "decision": _of_group(connection, job),
        "outcome": answer.outcome,
        "why": _word(answer),
        "earliest": known.earliest(asked, job),
        "engines": telling.engines(question, answer, _live(connection, installation)),
    }


def _of_group(connection: Connection, job: Row[Any]) -> View | None:
    """The latest decision about why the job's group waits."""
    found = _latest(connection, job)
    return None if found is None else _decided(*found)


def _unstarted(connection: Connection, job: Row[Any]) -> View:
    """Why no engine was free for a job that ended without a run, as last decided about its group before its end."""
    found = _latest(connection, job, until=job.ended_at)
    if found is None:
        return {"decision": None, "engines": []}
    latest, decided = found
    if not decided.is_same or decided.question is None:
        return {"decision": _decided(latest, decided), "engines": []}
    held = 0 if job.held_at is None else max(0, int((latest.at - job.held_at).total_seconds() * 1000))
    question = replace(decided.question, request=replace(decided.question.request, waited_ms=held))
    answer = decide(question.request, question.world, question.surveyed)
    return {"decision": _decided(latest, decided), "engines": telling.engines(question, answer)}


def _latest(connection: Connection, job: Row[Any], until: datetime | None = None) -> tuple[Row[Any], Replayed] | None:
    """The latest decision about the job's group, and what replaying it comes to."""
    latest = decisions.LATEST_OF_GROUP.first(connection, key=job.requirement_key, until=until)
    if latest is None:
        return None
    (kept,) = decisions.read(connection, [latest.pass_id])
    return latest, next(each for each in replayed(kept) if each.row.id == latest.id)


def _decided(latest: Row[Any], found: Replayed) -> View:
    reason = latest.trace.get("reason")
    return {
        "decision": latest.id,
        "at": instant(latest.at),
        "outcome": latest.outcome,
        "reason": reason,
        "words": reason_in_words(str(reason)),
        "reproduced": found.is_same,
    }


def _word(answer: Decision) -> str | None:
    if isinstance(answer, Wait):
        return answer.reason.value
    return None if isinstance(answer, Assign) else HELD


def _live(connection: Connection, installation: Installation) -> dict[str, str]:
    """Of every configured engine what keeps it from being picked, in words that know its circuit and its health."""
    rows = views.ENGINES.all(connection, presence_ms=installation.timing.presence_ms)
    return {row.name: engine_detail(row, engines.circuit_of(row, row.account).phase(row.now_ms).value) for row in rows}
