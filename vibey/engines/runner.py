"""Runner: one run from its claim to its outcome, in the process that holds its lease. It knows no database.

Authority. The holder owns the run as long as its lease does; `renew`, given by the caller, asks whoever keeps
leases. Windows, and who closes each:
- the claim was sent, the first process is not yet born: the lease counts from `claimed_at`, taken before the
  claim;
- between two processes of one run: `spawn` refuses after a stop or past the lease;
- a stop is asked while the work ends by itself: the supervisor says which came first. Work that ended by
  itself keeps its outcome, even after a cancel; only a lost lease takes it away, because then the run is
  somebody else's;
- the outcome is known, not yet settled: nothing runs any more, and the caller's write is fenced by the run's token.

The tree's own protection, and each death, is told in `vibey.engines.supervisor`; the lease's arithmetic in
`vibey.engines.watch`.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.outcome import Failure, FailureClass, Outcome, Success, one_line
from vibey.engines.context import RunContext
from vibey.engines.contract import Engine, Job, Progress, Renewal, RunStopped, Stopped, StopReason
from vibey.engines.moment import Moment
from vibey.engines.results import storable_outcome
from vibey.engines.spending import Spending
from vibey.engines.watch import Limits, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

logger = logging.getLogger(__name__)


def execute(  # noqa: PLR0913  (one call holds a whole run together, all but two arguments by keyword)
    engine: Engine,
    job: Job,
    *,
    directory_root: Path,
    lease_seconds: float,
    renew: Callable[[], Renewal],
    timeout_seconds: float,
    stall_seconds: float | None = None,
    cost_limit_usd: Decimal | None = None,
    grace_seconds: float = 10.0,
    claimed_at: Moment | None = None,
    wake: Callable[[float], bool] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    secrets: Callable[[], Sequence[str]] = tuple,
    is_foreign: bool = False,
) -> Outcome | Stopped:
    """Run the job on the engine; its outcome, or why it was stopped. Blocks until nothing of it is left.

    `claimed_at` is the moment before the claim was sent (default: now, right only if the claim is sent
    later). `renew` is called from another thread, a third of a lease apart; it may raise when it could not
    ask. `wake(seconds)` blocks up to that long and returns True to have the lease renewed, and so a cancel
    seen, at once; it may be called, and block, for a moment after the run has ended. `on_progress` is called
    from this thread. `secrets` gives what no log and no outcome may show, beside what the processes are given; it is
    asked when there is something to show. `is_foreign`: the engine is of an installed kind, which may work in its own
    thread, so that a run without a process is no proof that it did no work.
    """
    description = engine.describe()
    watch = Watch(
        Limits(lease_seconds, timeout_seconds, stall_seconds, grace_seconds, description.silent_work),
        claimed_at=claimed_at or Moment.now(),
        renew=renew,
        wake=wake,
        name=f"vibey-run-{job.run_id}",
    )
    context = RunContext(job, directory_root, watch, secrets)
    spending = Spending(description, cost_limit_usd, watch, on_progress)
    try:
        outcome = _outcome(engine, job, context, spending)
        reason = context.ended_for()
    finally:
        context.close()
    if isinstance(outcome, Failure) and not (context.has_worked or is_foreign):
        outcome = replace(outcome, unstarted=True)
    return outcome if reason is None else _ended(reason, outcome, context.limits)


def _outcome(engine: Engine, job: Job, context: RunContext, spending: Spending) -> Outcome:
    """What the adapter answers, fit to be stored; what it does wrong is Vibey's failure."""
    try:
        return context.masked(spending.completed(_followed(engine, job, context, spending)))
    except RunStopped as stop:
        return spending.completed(Failure(FailureClass.VIBEY, str(stop)))
    except Exception as error:  # noqa: BLE001  (whatever an adapter does wrong)
        # An adapter's error may quote what it was about to send.
        logger.error("the engine of run %s broke:\n%s", job.run_id, context.hidden(traceback.format_exc()))  # noqa: TRY400
        where = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        return context.masked(spending.completed(Failure(FailureClass.VIBEY, one_line(detail))))


def _followed(engine: Engine, job: Job, context: RunContext, spending: Spending) -> Outcome:
    steps = engine.run(job, context)
    answer: object = None
    try:
        while True:
            spending.heard(next(steps))
    except StopIteration as ended:
        answer = ended.value
    finally:
        steps.close()
    if not isinstance(answer, Success | Failure):
        raise TypeError(f"the engine answered {type(answer).__name__} instead of an outcome")
    return storable_outcome(answer)


def _ended(reason: StopReason, outcome: Outcome, limits: Limits) -> Outcome | Stopped:
    """What a run that was told to end comes to; only what it cost is taken from its own answer."""
    cost, tokens_in, tokens_out = outcome.cost_usd, outcome.tokens_in, outcome.tokens_out
    if reason in {StopReason.CANCEL, StopReason.LEASE_LOST}:
        return Stopped(reason, cost, tokens_in, tokens_out)
    failure_class = FailureClass.WORK if reason is StopReason.COST_LIMIT else FailureClass.ENGINE
    nothing = "no output, and no processor, file or socket activity," if limits.silent_work else "silent"
    detail = {
        StopReason.TIMEOUT: f"timeout: not done after {limits.timeout_seconds:g} s",
        StopReason.STALL: f"stall: {nothing} for {limits.stall_seconds or 0:g} s",
        StopReason.COST_LIMIT: f"stopped: its cost, {cost} USD, is above its limit",
    }[reason]
    return Failure(failure_class, detail, cost_usd=cost, tokens_in=tokens_in, tokens_out=tokens_out)
