"""Run: what a build message leads to. Start by token, hold the lease while it works, settle, hand over.

The message is only a wake-up: whoever starts the run first holds it, and a second delivery finds it taken
and leaves. The holder's lease is renewed while the engine's own process works under a supervisor (see
`vibey.engines.runner`); it ends with the settlement, and only that frees the slot. A run whose lease was
lost is not settled here: whoever took it away did.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from vibey import tracing
from vibey.domain import settlement
from vibey.domain.depth import MOST_LEVELS, is_too_deep
from vibey.domain.effort import Effort
from vibey.domain.errors import Contended, ServiceUnavailable, TooManyConnections, VibeyError
from vibey.domain.outcome import Failure, FailureClass, Outcome, one_line
from vibey.domain.settlement import RunState
from vibey.engines.contract import Job, Renewal, Stopped, StopReason
from vibey.engines.moment import Moment
from vibey.engines.processes import kill_leftovers
from vibey.engines.registry import equipped, is_foreign
from vibey.engines.runner import execute
from vibey.services import endings
from vibey.services.confidence import secrets_of
from vibey.services.connections import patiently
from vibey.services.fleet import config_of
from vibey.services.outputs import runs_root, sweep, tail_of, tidy
from vibey.services.settle import Held, close, hand_over, settle
from vibey.store import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vibey.domain.settlement import Settlement
    from vibey.services.installation import Installation
    from vibey.store.database import Connection

T = TypeVar("T")
log = logging.getLogger("vibey.run")

SETTLE_LEASES = 5
TOLD_WORDS = frozenset({"failed", "cancelled"})


def carry_out(
    installation: Installation, run_id: int, token: int, follow: Callable[[int | None], Installation] | None = None
) -> str:
    """Carry out a granted run; says in one word how it ended, `stale` when it was not this caller's to run.

    `follow` gives the installation under a generation, with this process's file read again where that is due.
    """
    began_ns = time.time_ns()
    claimed_at, started = _claim(installation, run_id, token)
    if started is None:
        log.info("run %d: not started here, its token %d no longer holds or it is at work elsewhere", run_id, token)
        return "stale"
    run = _StartedRun(installation, started, Held.of(started, token), claimed_at)
    with _span(started, run.held, began_ns) as span:
        ended = run.carried_out(span.traceparent, follow)
        word = run.settled(ended)
        _tell(span, ended, word)
    run.hand_on(word)
    return word


@dataclass(frozen=True, slots=True)
class _GivenBack:
    """A run that this process does not carry out, because it would in another way than the generation asks."""

    why: str


@dataclass(slots=True)
class _StartedRun:
    """A run from its start to its settlement. Whatever goes wrong in between ends it at once.

    The guard of `carried_out` covers everything up to the outcome, and that of `settled` an outcome which cannot be
    stored. Only where the database cannot be reached is the run left to the end of its lease.
    """

    installation: Installation
    started: Any
    held: Held
    claimed_at: Moment

    def carried_out(
        self, traceparent: str | None, follow: Callable[[int | None], Installation] | None
    ) -> Outcome | Stopped | _GivenBack:
        """How the run ended; an error before its engine was asked means that no process of it was started."""
        is_prepared = False
        try:
            # Nobody renews the lease yet, so an outage is waited for no longer than half of it.
            half = self.installation.timing.lease_ms / 2000
            work = _through_outage("prepare", lambda: self._prepared(traceparent, follow), half)
            is_prepared = True
            return work() if callable(work) else work
        except Exception as error:
            log.exception("run %d could not be carried out", self.held.run_id)
            return replace(_ours(error), unstarted=not is_prepared)

    def settled(self, ended: Outcome | Stopped | _GivenBack) -> str:
        """Settle the run; the word for how it ended."""
        if isinstance(ended, Stopped) and ended.reason is StopReason.LEASE_LOST:
            log.warning("run %d: its lease was lost, the work was killed", self.held.run_id)
            return "lost"
        is_overdue = self._is_overdue()
        try:
            settled = self._settled_through_outage(lambda: self._settle(ended, is_overdue=is_overdue))
        except (ServiceUnavailable, Contended):
            raise
        except Exception as error:
            log.exception("run %d: its end cannot be stored", self.held.run_id)
            failure = _ours(error)
            settled = self._settled_through_outage(lambda: settle(self.installation, self.held, failure))
        if settled is None:
            log.warning("run %d: ended too late, its token %d no longer holds; nothing was changed", *self.held.key)
            return "stale"
        return settled.run_state.value

    def hand_on(self, word: str) -> None:
        """Grant the freed slot, and leave nothing of the run but its log."""
        installation, held = self.installation, self.held
        try:
            if word == RunState.WITHDRAWN:
                installation.wake(held.requirement.pool)
            else:
                engine = installation.settings.engine.get(held.job.engine)
                slots = installation.settings.slots_of(engine.name) if engine else 1
                hand_over(installation, held.requirement.pool, slots)
        finally:
            installation.wakeups.release(held.run_id)
            tidy(installation, held.run_id)
        if word in TOLD_WORDS and self.started.task_id is not None:
            endings.tell(installation, [held.job.engine])

    def _prepared(
        self, traceparent: str | None, follow: Callable[[int | None], Installation] | None
    ) -> Callable[[], Outcome | Stopped] | Failure | _GivenBack:
        """What carries the run out, or why nothing does."""
        started, held = self.started, self.held
        if started.was_lost:
            kill_dead_runs(self.installation, started.job_id)
        if started.generation != self.installation.generation or self.installation.disagreement(held.job.engine):
            self.installation = _under(self.installation, held, started.generation, follow)
        if odd := self.installation.disagreement(held.job.engine):
            return _GivenBack(f"given back: its worker has {odd}")
        found = self._execution(traceparent)
        return replace(found, unstarted=True) if isinstance(found, Failure) else found

    def _execution(self, traceparent: str | None) -> Callable[[], Outcome | Stopped] | Failure:
        installation, started, held = self.installation, self.started, self.held
        settings = installation.settings
        payload = _payload(started)
        if isinstance(payload, Failure):
            return payload
        engine = settings.engine.get(held.job.engine)
        if engine is None:
            return Failure(FailureClass.VIBEY, f"engine {held.job.engine!r} is not in this worker's configuration")
        timeout = float(settings.engines.run_timeout_seconds)
        if started.deadline_seconds is not None:
            if started.deadline_seconds <= 0:
                return Failure(FailureClass.WORK, "the deadline had passed before it started")
            timeout = min(timeout, started.deadline_seconds)
        try:
            adapter = equipped(config_of(engine, settings))
        except VibeyError as error:
            return Failure(FailureClass.MISCONFIGURED, one_line(str(error)))
        return functools.partial(
            execute,
            adapter,
            _job(installation, started, payload, held, traceparent),
            directory_root=runs_root(installation),
            lease_seconds=installation.timing.lease_ms / 1000,
            renew=lambda: _renew(installation, held),
            timeout_seconds=timeout,
            stall_seconds=engine.stall_seconds or adapter.describe().stall_seconds,
            cost_limit_usd=engine.run_cost_limit_usd,
            claimed_at=self.claimed_at,
            wake=lambda seconds: installation.wakeups.await_nudge(held.run_id, seconds),
            secrets=lambda: secrets_of(settings),
            is_foreign=is_foreign(engine.kind),
        )

    def _settle(self, ended: Outcome | Stopped | _GivenBack, *, is_overdue: bool) -> Settlement | None:
        installation, held = self.installation, self.held
        if isinstance(ended, _GivenBack):
            log.warning("run %d: %s", held.run_id, ended.why)
            return close(installation, held, settlement.withdrawn(held.job, ended.why))
        tail = tail_of(installation, held.run_id)
        if isinstance(ended, Stopped):
            return close(installation, held, settlement.cancelled(held.job), ended, tail)
        if isinstance(ended, Failure) and is_overdue:
            overdue = replace(settlement.overdue(held.job), release=ended.did_no_work)
            return close(installation, held, overdue, ended, tail)
        return settle(installation, held, ended, tail)

    def _settled_through_outage(self, settling: Callable[[], Settlement | None]) -> Settlement | None:
        """Settle through an outage: the work is done, and the token makes late and repeated tries safe."""
        return _through_outage("settle", settling, SETTLE_LEASES * self.installation.timing.lease_ms / 1000)

    def _is_overdue(self) -> bool:
        seconds = self.started.deadline_seconds
        return seconds is not None and self.claimed_at.plus(seconds).has_come()


def _ours(error: Exception) -> Failure:
    """An error of our own, or of the machine, as the failure it is."""
    return Failure(FailureClass.VIBEY, one_line(f"{type(error).__name__}: {error}"))


def kill_dead_runs(installation: Installation, job_id: int | None = None) -> int:
    """Kill processes left on this machine by runs that are no longer live, then remove what those runs left on disk.

    Returns how many runs had any process.
    """

    def live(_: int, run_id: int) -> bool:
        return bool(installation.database.statement(lambda connection: runs.LIVE.all(connection, runs=[run_id])))

    killed = len(kill_leftovers(installation.identity, live=live, job_id=job_id))
    sweep(installation)
    return killed


def held_by(installation: Installation, pairs: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those of these (run, process of this machine) whose run is live and that process's, or nobody's yet."""

    def work(connection: Connection) -> set[tuple[int, int]]:
        asked = {"runs": [run for run, _ in pairs], "pids": [pid for _, pid in pairs]}
        return {(row.run, row.pid) for row in runs.HELD.all(connection, host=socket.gethostname(), **asked)}

    return installation.database.statement(work)


def _claim(installation: Installation, run_id: int, token: int) -> tuple[Moment, Any]:
    """Start the run; when the try that did so began, from which the lease counts, and its row, None if it is not ours.

    The answer of a try may be lost in an outage although it has started the run; as every try names the same holder,
    the next one is answered like the first. While the database is full, the tick sends the message again after a while,
    and this one gives up.
    """
    holder, timing = _new_holder(), installation.timing

    def claim() -> tuple[Moment, Any]:
        return Moment.now(), _start(installation, run_id, token, holder)

    tried = functools.partial(patiently, claim, timing.resend_ms / 1000)
    return _through_outage("start", tried, timing.lease_ms / 1000, but=(TooManyConnections,))


def _new_holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"


def _start(installation: Installation, run_id: int, token: int, holder: str = "") -> Any:  # noqa: ANN401  a database row
    return installation.database.statement(
        lambda connection: runs.START.first(
            connection,
            run=run_id,
            token=token,
            holder=holder or _new_holder(),
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_ms=installation.timing.lease_ms,
        )
    )


def _under(
    installation: Installation,
    held: Held,
    generation: int | None,
    follow: Callable[[int | None], Installation] | None,
) -> Installation:
    """The installation under the generation the run was started in, its lease as long as that one says."""
    if follow is not None:
        now = follow(generation)
    else:
        now = installation.database.statement(lambda connection: installation.under(connection, generation))
    if now.timing.lease_ms != installation.timing.lease_ms:
        _renew(now, held)
    return now


def _span(started: Any, held: Held, began_ns: int) -> tracing.Span:  # noqa: ANN401  a database row
    told: tracing.Attributes = {
        "vibey.job_id": held.job.job_id,
        "vibey.run_id": held.run_id,
        "vibey.attempt": held.job.attempt,
        "vibey.project": held.requirement.project,
        "vibey.engine": held.job.engine,
        "vibey.account": held.account,
        "vibey.effort": held.requirement.effort.label,
    }
    return tracing.begin("vibey.run", "consumer", started.traceparent, told, began_ns=began_ns)


def _tell(span: tracing.Span, ended: Outcome | Stopped | _GivenBack, word: str) -> None:
    """Note on the span how the run ended, and what it took."""
    if isinstance(ended, _GivenBack):
        span.note({"vibey.outcome": word})
        span.fail(ended.why)
        return
    failure = ended.failure_class.value if isinstance(ended, Failure) else None
    cost = None if ended.cost_usd is None else float(ended.cost_usd)
    span.note({"vibey.outcome": word, "vibey.failure_class": failure, "vibey.cost_usd": cost})
    span.note({"gen_ai.usage.input_tokens": ended.tokens_in, "gen_ai.usage.output_tokens": ended.tokens_out})
    if isinstance(ended, Failure):
        span.fail(ended.detail)
    elif isinstance(ended, Stopped):
        span.fail(f"stopped: {ended.reason.value}")


def _payload(started: Any) -> Mapping[str, Any] | Failure:  # noqa: ANN401  a database row
    """What the job is about, or the job's own failure where it cannot be read, such as one of an earlier version."""
    try:
        payload: object = json.loads(started.payload)
    except (ValueError, RecursionError) as error:
        return _unreadable(str(error))
    if not isinstance(payload, dict):
        return _unreadable(f"it is no object but {type(payload).__name__}")
    if is_too_deep(payload):
        return _unreadable(f"it has more than {MOST_LEVELS} levels of lists and objects")
    return payload


def _unreadable(why: str) -> Failure:
    return Failure(FailureClass.WORK, one_line(f"the payload cannot be read: {why}"), final=True)


def _job(
    installation: Installation,
    started: Any,  # noqa: ANN401  a database row
    payload: Mapping[str, Any],
    held: Held,
    traceparent: str | None,
) -> Job:
    return Job(
        job_id=held.job.job_id,
        run_id=held.run_id,
        token=held.token,
        attempt=held.job.attempt,
        effort=Effort(started.effort_now),
        payload=payload,
        project=started.project,
        installation=installation.identity,
        session=started.session,
        capabilities=held.requirement.capabilities,
        traceparent=traceparent,
        title=started.title,
    )


def _renew(installation: Installation, held: Held) -> Renewal:
    row = installation.database.statement(
        lambda connection: runs.RENEW.first(
            connection,
            run=held.run_id,
            token=held.token,
            lease_ms=installation.timing.lease_ms,
            tail=tail_of(installation, held.run_id),
        )
    )
    if row is None:
        return Renewal.LOST
    return Renewal.CANCEL if row.cancel else Renewal.KEPT


def _through_outage(
    verb: str, work: Callable[[], T], seconds: float, *, but: tuple[type[ServiceUnavailable], ...] = ()
) -> T:
    """Do what may be done several times; while the database is away, do it again for so many seconds.

    The errors of `but` end it at once.
    """

    def note(error: VibeyError) -> None:
        log.warning("could not %s yet, trying again: %s", verb, error)

    return patiently(work, seconds, errors=(ServiceUnavailable, Contended), but=but, note=note)
