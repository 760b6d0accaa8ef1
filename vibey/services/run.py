"""Run: what a build message leads to. Start by token, hold the lease while it works, settle, hand over.

The message is only a wake-up: whoever starts the run first holds it, and a second delivery finds it taken
and leaves. The holder's lease is renewed while the engine's own process works under a supervisor (see
`vibey.engines.runner`); it ends with the settlement, and only that frees the slot. A run whose lease was
lost is not settled here: whoever took it away did.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from vibey.domain.effort import Effort
from vibey.domain.errors import ServiceUnavailable, VibeyError
from vibey.domain.outcome import Failure, FailureClass, Outcome
from vibey.engines.context import LOG_NAME, run_directory, run_log
from vibey.engines.contract import Job, Renewal, Stopped, StopReason
from vibey.engines.moment import Moment
from vibey.engines.output import read_tail
from vibey.engines.processes import kill_leftovers
from vibey.engines.registry import build
from vibey.engines.runner import execute
from vibey.services.fleet import config_of
from vibey.services.settle import Held, hand_over, settle, stop
from vibey.store import runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.settlement import Settlement
    from vibey.services.installation import Installation

log = logging.getLogger("vibey.run")

TAIL_LINES = 40
TAIL_BYTES = 8192
KEPT_SECONDS = 14 * 86400
SETTLE_LEASES = 5
SETTLE_PAUSE_SECONDS = 0.5


def carry_out(installation: Installation, run_id: int, token: int) -> str:
    """Carry out a granted run; says in one word how it ended, `stale` when it was not this caller's to run."""
    claimed_at = Moment.now()
    started = _start(installation, run_id, token)
    if started is None:
        log.info("run %d: not started here, its token %d no longer holds or it is at work elsewhere", run_id, token)
        return "stale"
    held = Held.of(started, token)
    ended = _executed(installation, started, held, claimed_at)
    word = _settled(installation, held, ended)
    _tidy(run_directory(runs_root(installation), run_id))
    hand_over(installation, held.pool, installation.settings.slots_of(held.job.engine))
    return word


def runs_root(installation: Installation) -> Path:
    """The folder that holds the runs' own folders."""
    return installation.settings.data_dir / "runs"


def output_of(installation: Installation, run_id: int) -> Path:
    """Where a run's output is kept, if it ran on this machine."""
    return run_log(runs_root(installation), run_id)


def kill_dead_runs(installation: Installation, job_id: int | None = None) -> int:
    """Kill processes left on this machine by runs that are no longer live; returns how many runs had any."""

    def live(_: int, run_id: int) -> bool:
        return bool(installation.database.statement(lambda connection: runs.LIVE.all(connection, runs=[run_id])))

    return len(kill_leftovers(installation.identity, live=live, job_id=job_id))


def prune_outputs(installation: Installation) -> int:
    """Remove the folders of runs whose output has not changed for `KEPT_SECONDS`; returns how many."""
    root = runs_root(installation)
    if not root.is_dir():
        return 0
    oldest = time.time() - KEPT_SECONDS
    old = [entry for entry in root.iterdir() if entry.is_dir() and _changed_at(entry) < oldest]
    for entry in old:
        shutil.rmtree(entry, ignore_errors=True)
    return len(old)


def _changed_at(directory: Path) -> float:
    return max((entry.stat().st_mtime for entry in directory.iterdir()), default=directory.stat().st_mtime)


def _start(installation: Installation, run_id: int, token: int) -> Any:  # noqa: ANN401  a database row
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"
    started = installation.database.statement(
        lambda connection: runs.START.first(
            connection,
            run=run_id,
            token=token,
            holder=holder,
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_ms=installation.timing.lease_ms,
        )
    )
    if started is not None and started.was_lost:
        kill_dead_runs(installation, started.job_id)
    return started


def _executed(installation: Installation, started: Any, held: Held, claimed_at: Moment) -> Outcome | Stopped:  # noqa: ANN401
    settings = installation.settings
    engine = settings.engine.get(held.job.engine)
    if engine is None:
        detail = f"engine {held.job.engine!r} is not in this worker's configuration"
        return Failure(FailureClass.MISCONFIGURED, detail)
    timeout = float(settings.engines.run_timeout_seconds)
    if started.deadline_seconds is not None:
        timeout = max(0.001, min(timeout, started.deadline_seconds))
    try:
        adapter = build(config_of(engine))
    except VibeyError as error:
        return Failure(FailureClass.MISCONFIGURED, str(error))
    return execute(
        adapter,
        _job(installation, started, held),
        directory_root=runs_root(installation),
        lease_seconds=installation.timing.lease_ms / 1000,
        renew=lambda: _renew(installation, held),
        timeout_seconds=timeout,
        stall_seconds=engine.stall_seconds,
        cost_limit_usd=engine.run_cost_limit_usd,
        claimed_at=claimed_at,
        wake=lambda seconds: _await_news(installation, held.run_id, seconds),
    )


def _job(installation: Installation, started: Any, held: Held) -> Job:  # noqa: ANN401  a database row
    return Job(
        job_id=held.job.job_id,
        run_id=held.run_id,
        token=held.token,
        attempt=held.job.attempt,
        effort=Effort(started.effort_now),
        payload=started.payload,
        project=started.project,
        installation=installation.identity,
        session=started.session,
        capabilities=held.capabilities,
    )


def _renew(installation: Installation, held: Held) -> Renewal:
    row = installation.database.statement(
        lambda connection: runs.RENEW.first(
            connection,
            run=held.run_id,
            token=held.token,
            lease_ms=installation.timing.lease_ms,
            tail=_tail(installation, held.run_id),
        )
    )
    if row is None:
        return Renewal.LOST
    return Renewal.CANCEL if row.cancel else Renewal.KEPT


def _await_news(installation: Installation, run_id: int, seconds: float) -> bool:
    try:
        return installation.wakeups.await_nudge(run_id, seconds)
    except ConnectionError:
        threading.Event().wait(min(seconds, 3.0))
        return False


def _settled(installation: Installation, held: Held, ended: Outcome | Stopped) -> str:
    tail = _tail(installation, held.run_id)
    if isinstance(ended, Stopped):
        if ended.reason is StopReason.LEASE_LOST:
            log.warning("run %d: its lease was lost, the work was killed", held.run_id)
            return "lost"
        settled = _persistently(installation, lambda: stop(installation, held, tail))
    else:
        settled = _persistently(installation, lambda: settle(installation, held, ended, tail))
    if settled is None:
        log.warning("run %d: ended too late, its token %d no longer holds; nothing was changed", *held.key)
        return "stale"
    return settled.run_state.value


def _persistently(installation: Installation, settling: Callable[[], Settlement | None]) -> Settlement | None:
    """Settle through an outage of the database: the work is done, and the token makes late and repeated tries safe."""
    patience = threading.Event()
    deadline = Moment.now().plus(SETTLE_LEASES * installation.timing.lease_ms / 1000)
    while True:
        try:
            return settling()
        except ServiceUnavailable as error:
            if deadline.has_come():
                raise
            log.warning("could not settle yet, trying again: %s", error)
            patience.wait(SETTLE_PAUSE_SECONDS)


def _tail(installation: Installation, run_id: int) -> str | None:
    path = output_of(installation, run_id)
    if not path.exists():
        return None
    text = read_tail(path, TAIL_LINES)
    return text[-TAIL_BYTES:].replace("\x00", "�")


def _tidy(directory: Path) -> None:
    """Remove what the run left in its folder, and keep its log."""
    if not directory.is_dir():
        return
    for entry in directory.iterdir():
        if entry.name.startswith(LOG_NAME):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
